"""The tables of one report. Each is a function of the report; `show` makes the text of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from musebench.report import latencies, metrics, roofline, slo
from musebench.report.latencies import Summary
from musebench.report.replicas import parts
from musebench.report.schema import COMPLETE, PHASES, Report
from musebench.report.table import DEFAULT_FORMAT, Row, Table, pretty, require_format, text, to_csv, to_json
from musebench.report.verdict import Check, Judgement, judge

MOST_REASONS = 10
"""Rows of reasons in the table of correctness; the others are summed in one."""


def show(
    report: Report, form: str = DEFAULT_FORMAT, checks: Iterable[Check] = (), more: Iterable[Table] = ()
) -> str:
    """All tables of a report in one of `musebench.report.table.FORMATS`, judged by `checks`, its verdict
    first, and `more` at the end.

    Raises:
        UsageError: there is no such format.
    """
    require_format(form)
    (judgement,) = judge([report], checks)
    return show_judged(report, judgement, form, more)


def show_judged(
    report: Report, judgement: Judgement, form: str = DEFAULT_FORMAT, more: Iterable[Table] = ()
) -> str:
    """As `show`, of a report that was judged before."""
    require_format(form)
    made = [*tables(report, judgement), *more]
    if form == "json":
        verdict = {"valid": judgement.valid, "reasons": list(judgement.reasons)}
        return to_json(made, id=report.id, status=report.status, verdict=verdict)
    if form == "csv":
        return to_csv(made)
    return "\n".join([headline(report), judgement.line(), "", text(made, form)])


def tables(report: Report, judgement: Judgement) -> list[Table]:
    """Every table; speed is struck out where the judgement is INVALID. A table may have no row."""
    made = [build(report) for build in TABLES.values()]
    if report.slo:
        made.insert(2, objectives(report))
    if report.choices.router:
        made.insert(2, replicas(report))
    if judgement.valid:
        return made
    return [
        Table(t.title, t.columns, t.rows, frozenset(t.columns) - t.counts, t.counts, t.notes) for t in made
    ]


def headline(report: Report) -> str:
    """One line: what ran, on what."""
    choices, conditions = report.choices, report.conditions
    model = conditions.model
    clock = " in virtual time" if conditions.clock == "virtual" else ""
    state = "" if report.status == COMPLETE else " (incomplete)"
    chosen = ", ".join(f"{kind} {name}" for kind, name in choices.named().items())
    return (
        f"{report.id}{state}: {model.name} in {model.dtype} on {conditions.device}{clock}, "
        f"workload {conditions.workload.name}: {chosen}"
        + (f", {choices.replicas} replicas, router {choices.router.name}" if choices.router else "")
    )


def throughput(report: Report) -> Table:
    """Rates over the counted requests (no row without one); with several runs, the lowest and highest too."""
    total = metrics.throughput(report)
    if not total.requests:
        return Table("throughput", ("value",), ())
    every = [metrics.run_throughput(run) for run in report.runs]
    several = len(every) > 1

    def row(name: str, unit: str, field: str) -> Row:
        values = [getattr(total, field)]
        if several:
            known = [value for one in every if (value := getattr(one, field)) is not None]
            values += [min(known, default=None), max(known, default=None)]
        return Row(name, unit, tuple(values), speed=unit in ("/s", "s"))

    def whole(name: str, unit: str, value: float | None) -> Row:
        return Row(name, unit, (value, None, None) if several else (value,), speed=unit == "tokens/J")

    reasons = {run.energy_reason for run in report.runs if run.energy_joules is None and run.energy_reason}
    return Table(
        "throughput",
        ("all runs", "lowest", "highest") if several else ("value",),
        (
            row("output tokens/s", "/s", "output_tokens_per_second"),
            row("prompt tokens/s", "/s", "prompt_tokens_per_second"),
            row("requests/s", "/s", "requests_per_second"),
            row("output tokens", "count", "output_tokens"),
            row("prompt tokens", "count", "prompt_tokens"),
            row("requests counted", "count", "requests"),
            row("span", "s", "span_seconds"),
            whole("energy", "J", metrics.energy_joules(report)),
            whole("output tokens/J", "tokens/J", metrics.tokens_per_joule(report)),
        ),
        notes=tuple(f"energy: {reason}" for reason in sorted(reasons)),
    )


def latency(report: Report) -> Table:
    """Mean and percentiles over the counted requests of all runs (no row without one)."""
    every = latencies.summaries(report)
    columns = ("mean", "p50", "p90", "p99", "samples")
    if not metrics.throughput(report).requests:
        return Table("latency", columns, ())
    return Table(
        "latency",
        columns,
        tuple(Row(name, "s", _spread(every[name]), speed=True) for name in latencies.LATENCIES),
        counts=frozenset({"samples"}),
        notes=_pieces(report),
    )


def _pieces(report: Report) -> tuple[str, ...]:
    """That times are those of pieces, where a piece held several tokens."""
    pieces = tokens = 0
    for run in report.runs:
        requests = run.requests
        if requests.chunks is not None:
            rows = metrics.counted(requests)
            pieces += sum(requests.chunks[row] for row in rows)
            tokens += sum(requests.generated_tokens[row] for row in rows)
    if pieces >= tokens:
        return ()
    return (f"{tokens:,} tokens came in {pieces:,} pieces: TTFT and TPOT are of pieces, not of tokens",)


def objectives(report: Report) -> Table:
    """How many requests meet the objectives, each and all, and how many a second do."""
    held = slo.attainment(report)

    def share(met: int) -> float | None:
        return met / held.requests if held.requests else None

    rows = [
        Row(f"{name.upper()} at most {pretty(limit, 's')}", "share", (share(held.requests - missed),))
        for (name, limit), missed in zip(report.slo.items(), held.missed.values(), strict=True)
    ]
    rows += [
        Row("all of them", "share", (share(held.met),)),
        Row("requests that meet all", "count", (held.met,)),
        Row("goodput: requests/s", "/s", (held.goodput,), speed=True),
        Row("goodput: output tokens/s", "/s", (held.goodput_tokens,), speed=True),
    ]
    return Table("objectives", ("value",), tuple(rows))


def steps(report: Report) -> Table:
    """How many steps, what they held, and how they were launched."""
    total = metrics.step_totals(report)
    counters: Counter[str] = Counter()
    for run in report.runs:
        counters.update({k: v for k, v in run.counters.items() if isinstance(v, int | float)})
    counter = "executor" if report.choices.engine is None else "engine"
    real = (total.decode_tokens or 0) + (total.prefill_tokens or 0)
    rows = [
        Row("steps", "count", (total.steps,)),
        Row("decode tokens", "count", (total.decode_tokens,)),
        Row("prefill tokens", "count", (total.prefill_tokens,)),
        *_reused(total),
        Row("padded tokens", "count", (total.padded_tokens,)),
        Row("tokens a step", "count", (real / total.steps if total.steps else None,)),
        Row("forwards", "count", (total.forwards,)),
        *(
            Row(f"forwards of {name or 'the program'}", "count", (n,))
            for name, n in sorted(total.programs.items())
        ),
        Row("device time", "s", (total.device_seconds,), speed=True),
        Row("host time", "s", (total.host_seconds,), speed=True),
        *_shrinks(report),
        *(Row(f"{counter}: {name}", "count", (count,)) for name, count in sorted(counters.items())),
    ]
    return Table("steps", ("value",), tuple(rows))


def replicas(report: Report) -> Table:
    """What each of several replicas did over all runs."""
    columns = ("requests", "output tokens", "steps", "most cells", "preemptions", "TTFT p50", "TPOT p50")
    every = [parts(run) for run in report.runs]

    def row(place: int) -> Row:
        own = replace(report, runs=[of_run[place] for of_run in every])
        latency = latencies.summaries(own)
        pools = [run.pool for run in own.runs if run.pool is not None]
        return Row(
            f"replica {place}",
            "s",
            (
                sum(len(run.requests) for run in own.runs),
                metrics.throughput(own).output_tokens,
                sum(len(run.steps) for run in own.runs),
                max(pool.most_in_use for pool in pools),
                sum(pool.preemptions for pool in pools),
                latency["TTFT"].p50,
                latency["TPOT"].p50,
            ),
            speed=True,
        )

    rows = tuple(row(place) for place in range(report.choices.replicas)) if every else ()
    return Table("replicas", columns, rows, counts=frozenset(columns[:5]))


def _reused(total: metrics.StepTotals) -> list[Row]:
    """What sequences did not have to compute, beside what prefills did; nothing where nothing was reused."""
    if not total.reused_tokens or total.prefill_tokens is None:
        return []
    whole = total.prefill_tokens + total.reused_tokens
    return [
        Row("reused tokens", "count", (total.reused_tokens,)),
        Row("reused, of these and the prefill's", "share", (total.reused_tokens / whole,)),
    ]


def _shrinks(report: Report) -> list[Row]:
    """What a run went on with after it was out of memory; nothing where none was."""
    shrunk = [run for run in report.runs if run.shrinks]
    limits = [run.last_limits for run in shrunk if run.last_limits is not None]
    if not shrunk:
        return []
    return [
        Row("out of memory: limits halved", "count", (sum(run.shrinks for run in shrunk),)),
        Row("most sequences then", "count", (min((one.most_sequences for one in limits), default=None),)),
        Row("most tokens of a step then", "count", (min((one.most_tokens for one in limits), default=None),)),
    ]


def pool(report: Report) -> Table:
    """The pool's rows, cells and growths over all runs."""
    total = metrics.pool_totals(report)
    if total is None:
        return Table("pool", ("value",), ())
    return Table(
        "pool",
        ("value",),
        (
            Row("policy", "", (total.policy,)),
            Row("capacity (cells)", "count", (total.capacity,)),
            Row("rows", "count", (total.rows,)),
            Row("most cells in use", "count", (total.most_in_use,)),
            Row("bytes per cell", "bytes", (total.cell_bytes,)),
            Row("bytes", "bytes", (total.bytes,)),
            Row("growths", "count", (total.growths,)),
            Row("bytes copied", "bytes", (total.copied_bytes,)),
            Row("growth time", "s", (total.growth_seconds,), speed=True),
            Row("passing peak", "bytes", (total.peak_bytes,)),
            Row("refusals", "count", (total.refusals,)),
            Row("preemptions", "count", (total.preemptions,)),
            *(Row(f"pool: {name}", "count", (count,)) for name, count in total.counters.items()),
        ),
    )


def memory(report: Report) -> Table:
    """What was computed before the run against what was there: torch's allocator, and the pool's buffers."""
    computed, snapshots = report.memory.computed, report.memory.snapshots
    start, loaded, peak = (snapshots.get(phase) for phase in ("start", "loaded", "peak"))
    weights = None
    if start and loaded and start.allocated is not None and loaded.allocated is not None:
        weights = loaded.allocated - start.allocated
    parts = (computed.weights, computed.rows, computed.workspace, computed.graphs)
    known = [part for part in parts if part is not None]
    total = metrics.pool_totals(report)
    return Table(
        "memory",
        ("computed", "measured"),
        (
            Row("weights", "bytes", (computed.weights, weights)),
            Row("rows", "bytes", (computed.rows, total.bytes if total else None)),
            Row("workspace", "bytes", (computed.workspace, None)),
            Row("graphs", "bytes", (computed.graphs, None)),
            Row(
                "sum / peak", "bytes", (sum(known) if len(known) == 4 else None, peak.peak if peak else None)
            ),
        ),
    )


def memory_phases(report: Report) -> Table:
    """Every snapshot by phase, the three sources kept apart."""
    columns = {
        "allocated": "allocated",
        "reserved": "reserved",
        "peak": "peak",
        "NVML device": "device_used",
        "NVML process": "process_used",
        "host": "host_resident",
        "host peak": "host_peak",
    }
    snapshots = report.memory.snapshots
    phases = [phase for phase in PHASES if phase in snapshots]
    phases += [phase for phase in snapshots if phase not in PHASES]
    return Table(
        "memory by phase",
        tuple(columns),
        tuple(
            Row(phase, "bytes", tuple(getattr(snapshots[phase], field) for field in columns.values()))
            for phase in phases
        ),
        notes=tuple(f"{source}: {reason}" for source, reason in report.memory.reasons.items()),
    )


def correctness(report: Report) -> Table:
    """Answers right and wrong, how requests ended, and why those that did not succeed did not."""
    outcome = metrics.outcome(report)
    rows = [
        Row("requests", "count", (outcome.requests,)),
        Row("succeeded", "count", (outcome.succeeded,)),
        Row("succeeded without a token", "count", (outcome.succeeded - outcome.counted,)),
        Row("answers expected", "count", (outcome.expected,)),
        Row("answers right", "count", (outcome.right if outcome.expected else None,)),
        Row("answers wrong", "count", (outcome.wrong if outcome.expected else None,)),
        *(Row(f"ended: {name}", "count", (n,)) for name, n in sorted(outcome.finish_reasons.items())),
    ]
    reasons = [(name, message, n) for (name, message), n in outcome.reasons.items() if message]
    rows += [Row(f"{name}: {message}", "count", (n,)) for name, message, n in reasons[:MOST_REASONS]]
    if rest := reasons[MOST_REASONS:]:
        rows.append(Row(f"{len(rest):,} more reasons", "count", (sum(n for *_, n in rest),)))
    notes = tuple(report.conditions.workload.notes)
    return Table("correctness", ("value",), tuple(rows), notes=notes)


def costs(report: Report) -> Table:
    """One-off work, which no rate contains."""
    seconds, counters = report.costs.seconds, report.costs.counters
    rows = [Row(name, "s", (value,), speed=True) for name, value in seconds.items()]
    rows += [
        Row(name, "count" if isinstance(value, int | float) else "", (_value(value),))
        for name, value in counters.items()
    ]
    return Table("one-off costs", ("value",), tuple(rows))


TABLES: dict[str, Callable[[Report], Table]] = {
    "throughput": throughput,
    "latency": latency,
    "steps": steps,
    "steps by kind": roofline.table,
    "pool": pool,
    "memory": memory,
    "memory by phase": memory_phases,
    "correctness": correctness,
    "one-off costs": costs,
}
"""By title, in the order shown."""


def _spread(summary: Summary) -> tuple[float | None, ...]:
    return (summary.mean, summary.p50, summary.p90, summary.p99, summary.count)


def _value(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
