"""What the measured reports say, in sentences: `results/refresh.py` puts them where a document has
`<!-- findings -->`.

A sentence has no digit of its own: every number in it, and every name that holds one, is read off a committed
report. A sentence whose report is not there is left out, and so is a question without answers. What was timed
in several runs stands with the interval that holds it at 95 %; what was timed in one says so; bytes and
counts are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from evidence import DECODE_SHARE, ENERGY, HEADLINE, Evidence, Measured, MissingReport, Timed, say
from simulated import simulated_row

from musebench.report.numbers import Numbers, metric
from musebench.report.table import pretty

MATRIX = Path(__file__).resolve().parent / "baselines" / "h200" / "matrix"
SHAPES = ("smollm2-135m", "llama-3.2-1b", "llama-3.1-8b")
SMALL, LARGE = SHAPES[1:]
SIMULATED = (HEADLINE, "eager-geometric-chunked", "compiled-geometric-chunked",
             *(f"graph-geometric-{one}" for one in ("continuous", "static", "solo")))  # fmt: skip
"""Rows that a simulated device can be asked for; pools of packages and exported programs are none of them."""

COUNTS = ("1", "64", "256")

Answers = Iterator[Callable[[], str]]
"""Sentences to be said, each of which may miss its report."""


def _rates(where: str, name: str, one: Measured, other_name: str, other: Measured) -> str:
    """Output tokens per second of two rows of one work, and how many times the other's the one's are."""
    rate, against = (row.timed("output_tokens_per_second") for row in (one, other))
    return say(
        where + ": `{name}` makes {ratio} the tokens per second of `{other}`, {rate} against {against}.",
        work=one.work, model=one.model, name=name, other=other_name, ratio=rate.over(against), rate=rate,
        against=against,
    )  # fmt: skip


def graphs(of: Evidence) -> Answers:
    """What graphs buy at which batch"""

    def decode(shape: str, count: str, one: str, other: str, sentence: str) -> str:
        """ITL of two executors; `ratio` is the first's over the second's."""
        row, base = (of(f"steady{count}", shape, f"{name}-geometric-chunked") for name in (one, other))
        time, against = row.timed("itl_p50"), base.timed("itl_p50")
        return say(
            "A token of {model}, {requests} at a time: " + sentence,
            model=base.model, requests=base.requests, ratio=time.over(against), **{one: time, other: against},
        )  # fmt: skip

    def whole(work: str, shape: str, executor: str) -> str:
        graph, other = of(work, shape), of(work, shape, f"{executor}-geometric-chunked")
        return _rates("{work} on {model}", "graph", graph, executor, other)

    for shape in (SMALL, LARGE):
        for count in COUNTS:
            yield lambda shape=shape, count=count: decode(
                shape, count, "eager", "graph",
                "{graph} replayed, {eager} launched eagerly, which is {ratio} as long.",
            )  # fmt: skip
            yield lambda shape=shape, count=count: decode(
                shape, count, "exported", "compiled",
                "{exported} from a program that was exported before, {compiled} from one compiled in the "
                "run, both replayed; the first takes {ratio} as long.",
            )  # fmt: skip
    for work in ("mixed64", "mixed"):
        for executor in ("eager", "compiled", "exported"):
            for shape in SHAPES:
                yield lambda w=work, s=shape, e=executor: whole(w, s, e)


def reservation(of: Evidence) -> Answers:
    """What a fixed reservation costs in memory and sessions"""

    def cost(work: str, shape: str) -> str:
        fixed, grown = (
            of(work, shape, f"graph-{pool}-chunked", fresh=True) for pool in ("fixed", "geometric")
        )
        pool = fixed.first.runs[0].pool
        bounds = fixed.first.choices.bounds
        if pool is None or bounds is None:
            raise MissingReport
        used = fixed.exact("most_cells_in_use") * pool.cell_bytes
        return say(
            "{work} on {model}: `fixed` reserves {fixed} for {sessions} sessions, of which {used} are ever "
            "in use at once ({share}); `geometric` ends with {grown}, and passes {peak} on the way. What "
            "`fixed` reserves holds {more} as many sessions as it admits, if they are like these.",
            work=fixed.work,
            model=fixed.model,
            fixed=fixed.shown("pool_bytes"),
            sessions=f"{bounds.max_sessions:,}",
            used=pretty(used, "bytes"),
            share=pretty(100.0 * used / fixed.exact("pool_bytes"), "percent"),
            grown=grown.shown("pool_bytes"),
            peak=grown.shown("pool_peak_bytes"),
            more=f"{fixed.exact('pool_bytes') / used:.1f} times",
        )

    for work in ("mixed", "longtail"):
        for shape in (SMALL, LARGE):
            yield lambda work=work, shape=shape: cost(work, shape)


def growth(of: Evidence) -> Answers:
    """What growth costs by copy and recapture, against virtual memory"""

    def parts(work: str, shape: str, pool: str) -> str:
        grown = of(work, shape, f"graph-{pool}-chunked", fresh=True)
        totals = Numbers(replace(grown.first, runs=grown.first.runs[:1])).pool
        if totals is None:
            raise MissingReport
        return say(
            "{work} on {model}, `{pool}` from empty: {growths} growths take {seconds} and copy {copied}; "
            "{captures} graphs are captured again in {again}; its pool ends with {bytes} and passes {peak}.",
            work=grown.work,
            model=grown.model,
            pool=pool,
            growths=totals.growths,
            seconds=pretty(totals.growth_seconds, "s"),
            copied=pretty(totals.copied_bytes, "bytes"),
            captures=f"{grown.counter('recaptures'):,.0f}",
            again=pretty(grown.counter("recapture seconds"), "s"),
            bytes=grown.shown("pool_bytes"),
            peak=grown.shown("pool_peak_bytes"),
        )

    def speed(work: str, shape: str, pool: str) -> str:
        base, other = (of(work, shape, f"graph-{one}-chunked", fresh=True) for one in ("geometric", pool))
        return _rates("{work} on {model} from empty", pool, other, "geometric", base)

    for work in ("mixed", "longtail"):
        for shape in (SMALL, LARGE):
            for pool in ("geometric", "vmm"):
                yield lambda w=work, s=shape, p=pool: parts(w, s, p)
            for pool in ("vmm", "paged", "fixed"):
                yield lambda w=work, s=shape, p=pool: speed(w, s, p)


def schedulers(of: Evidence) -> Answers:
    """Which scheduler for throughput, for TTFT, for ITL"""
    every = ("chunked", "continuous", "static", "solo")

    def best(work: str, shape: str, key: str) -> str:
        found: list[tuple[str, Measured, Timed]] = []
        for scheduler in every:
            try:
                row = of(work, shape, f"graph-geometric-{scheduler}")
                found.append((scheduler, row, row.timed(key)))
            except MissingReport:
                continue
        if len(found) < 2:
            raise MissingReport
        found.sort(key=lambda one: -metric(key).better * one[2].level.value)
        row = found[0][1]
        return say(
            "{name}, {work} on {model}, best median first: {listed}.",
            name=metric(key).name,
            work=row.work,
            model=row.model,
            listed="; ".join(f"`{scheduler}` {timed}" for scheduler, _, timed in found),
        )

    for key in ("output_tokens_per_second", "ttft_p50", "itl_p50", "itl_p99"):
        for work in ("mixed", "longtail", "mixed64"):
            for shape in SHAPES:
                yield lambda w=work, s=shape, k=key: best(w, s, k)


def bandwidth(of: Evidence) -> Answers:
    """How far from the memory's speed"""

    def share(shape: str, count: str, executor: str) -> str:
        steps = of(f"steady{count}", shape, f"{executor}-geometric-chunked")
        return say(
            "All steps that only decode, of {requests} sequences of {model} or of those left, `{executor}`: "
            "{share} of the speed that the device's bandwidth and matrix rate allow.",
            model=steps.model,
            requests=steps.requests,
            executor=executor,
            share=steps.timed(DECODE_SHARE),
        )

    for shape in SHAPES:
        for executor in ("graph", "compiled"):
            for count in COUNTS:
                yield lambda s=shape, c=count, e=executor: share(s, c, e)


def energy(of: Evidence) -> Answers:
    """Joules per token"""

    def joules(work: str, shape: str, choice: str) -> str:
        row = of(work, shape, choice)
        return say(
            "{work} on {model}, `{choice}`: {joules} an output token, its share of the prefills included.",
            work=row.work,
            model=row.model,
            choice=choice.split("-geometric")[0],
            joules=row.timed(ENERGY),
        )

    for work in ("mixed", "mixed64", "longtail"):
        for shape in SHAPES:
            for choice in (HEADLINE, "compiled-geometric-chunked", "eager-geometric-chunked", *PEERS):
                yield lambda w=work, s=shape, c=choice: joules(w, s, c)


PEERS = ("transformers-static", "transformers-batch")


def peers(of: Evidence) -> Answers:
    """Against transformers' own ways of serving"""

    def against(work: str, shape: str, peer: str) -> str:
        own, other = of(work, shape), of(work, shape, peer)
        rate, first = "output_tokens_per_second", "ttft_p50"
        return say(
            "{work} on {model}: `graph` makes {ratio} the tokens per second of `{peer}`, {own} against "
            "{other}; half of the first tokens are there after {first} against {late}.",
            work=own.work,
            model=own.model,
            ratio=own.timed(rate).over(other.timed(rate)),
            peer=peer,
            own=own.timed(rate),
            other=other.timed(rate),
            first=own.timed(first),
            late=other.timed(first),
        )

    for work in ("mixed64", "mixed"):
        for shape in (SMALL, LARGE):
            for peer in PEERS:
                yield lambda w=work, s=shape, p=peer: against(w, s, p)


def simulator(of: Evidence) -> Answers:
    """Where the simulator is off"""

    def error(row: Measured, choice: str) -> str:
        made = simulated_row(row)
        keys = ("output_tokens_per_second", "ttft_p50", "tpot_p50")
        off = (
            f"{made.timed(key).level.value / row.timed(key).level.value - 1:+.1%} {metric(key).name}"
            for key in keys
        )
        return say(
            "{work} on {model}, `{choice}`: `{device}` is off by {off}.",
            work=row.work,
            model=row.model,
            choice=choice,
            device=made.first.choices.device,
            off=", ".join(off),
        )

    for work in ("mixed", "longtail", "mixed64"):
        for shape in SHAPES:
            for choice in SIMULATED:
                yield lambda w=work, s=shape, c=choice: error(of(w, s, c), c)
            for pool in ("geometric", "fixed"):
                choice = f"graph-{pool}-chunked"
                yield lambda w=work, s=shape, c=choice: error(of(w, s, c, fresh=True), f"{c}, from empty")


QUESTIONS = (graphs, reservation, growth, schedulers, bandwidth, energy, peers, simulator)


def findings(folder: Path = MATRIX) -> str:
    """Each question that has an answer, with its answers, as Markdown."""
    of = Evidence(folder)
    parts = []
    for question in QUESTIONS:
        said = []
        for answer in question(of):
            try:
                said.append(f"- {answer()}\n")
            except MissingReport:
                continue
        if said:
            parts.append(f"\n### {question.__doc__}\n\n{''.join(said)}")
    return "".join(parts) + "\n"
