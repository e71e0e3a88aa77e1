"""Numbers of a report: pure functions of its raw data, numpy only. Seconds, bytes, joules; None for missing.

What counts
    A request *succeeded* when it ended with "stop" or "length". Only requests that succeeded and made at
    least one token are *counted*: for throughput and for every percentile. A request that succeeded without a
    token (it asked for 0) is finished and nothing else.
Span
    From the earliest arrival to the latest finish of one run, over all its requests, failed ones too: time
    that was spent on them was spent. Idle time before the first arrival is not in it. Rates are sums of the
    counted requests over that span; with several runs, sums over the sum of the spans. A span of 0 (a clock
    that read the same twice) gives no rate.
Latencies of one request (all from the clock of its run)
    TTFT = first token - arrival. TPOT = (last token - first token) / (tokens - 1), None for one token, and
    for several that came in one piece. ITL = the gaps between one token and the next, each token at the end
    of the step that made it, so that tokens of one step lie 0 apart. E2E = finish - arrival. Wait = first
    admission - arrival.
Percentiles
    Over the samples of all runs together, linear between the two nearest (numpy's default).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from musebench.report.column import Column, Runs, bounds_of, total_of
from musebench.report.replicas import parts
from musebench.report.schema import Report, RequestColumns, RunData, StepColumns


@dataclass(frozen=True)
class Weighted:
    """Seconds of which there are `counts` samples each, float64 and int64 [values]."""

    values: np.ndarray
    counts: np.ndarray

    def __len__(self) -> int:
        return int(self.counts.sum())

    def __iter__(self) -> Iterator[float]:
        return iter(np.repeat(self.values, self.counts).tolist())


Samples = list[float] | np.ndarray | Weighted
"""Seconds, one a sample; an array where there may be millions, weighted where there may be more."""


@dataclass(frozen=True)
class Summary:
    """Of some samples: how many, mean and percentiles; all None when there are none."""

    count: int
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None


@dataclass(frozen=True)
class Throughput:
    """Rates per second over `span_seconds`, of the counted requests; None where there is no such request, and
    where the span is 0 or unknown."""

    requests: int
    prompt_tokens: int
    output_tokens: int
    span_seconds: float | None
    requests_per_second: float | None
    prompt_tokens_per_second: float | None
    output_tokens_per_second: float | None


@dataclass(frozen=True)
class Outcome:
    """How the requests of all runs ended. `reasons` counts the messages of those that did not succeed, by
    (finish reason, message). `decode_tokens` = sum over requests of (generated - 1): the first token comes
    from the prefill."""

    requests: int
    succeeded: int
    counted: int
    finish_reasons: dict[str, int]
    reasons: dict[tuple[str, str], int]
    expected: int
    right: int
    wrong: int
    generated_tokens: int
    decode_tokens: int
    preemptions: int


@dataclass(frozen=True)
class StepTotals:
    """Sums over the steps of all runs; the two times are None unless every step has one, and all are where
    an engine did not tell its steps. `reused_tokens` were in no step: the pool had their cells."""

    steps: int | None
    decode_tokens: int | None
    prefill_tokens: int | None
    reused_tokens: int | None
    padded_tokens: int | None
    forwards: int | None
    programs: dict[str, int]
    device_seconds: float | None
    host_seconds: float | None


@dataclass(frozen=True)
class PoolTotals:
    """The pool over all runs: most rows and cells of any run and replica, sums of what growing cost.
    `counters` are sums of what the policy alone counts."""

    policy: str
    capacity: int | None
    cell_bytes: int
    rows: int
    bytes: int
    most_in_use: int
    growths: int
    copied_bytes: int
    growth_seconds: float
    peak_bytes: int | None
    refusals: int
    preemptions: int
    counters: dict[str, int]


POOL_COUNTERS = ("refusals", "resizes", "generation")
"""Counters of every pool, which a report has elsewhere."""


def summary(samples: Iterable[float]) -> Summary:
    if isinstance(samples, Weighted):
        return _weighted_summary(samples)
    values = samples if isinstance(samples, np.ndarray) else np.asarray(list(samples), np.float64)
    if not len(values):
        return Summary(0)
    p50, p90, p99 = (float(value) for value in np.percentile(values, (50, 90, 99)))
    return Summary(len(values), float(values.mean()), p50, p90, p99)


def _weighted_summary(samples: Weighted) -> Summary:
    """What `summary` says of all samples written out."""
    number = len(samples)
    if not number:
        return Summary(0)
    order = np.argsort(samples.values)
    values, upto = samples.values[order], np.cumsum(samples.counts[order])
    mean = float(np.dot(samples.values, samples.counts)) / number

    def percentile(share: float) -> float:
        place = share * (number - 1)
        low, high = np.searchsorted(upto, (math.floor(place), math.ceil(place)), side="right")
        return float(values[low] + (values[high] - values[low]) * (place - math.floor(place)))

    return Summary(number, mean, percentile(0.5), percentile(0.9), percentile(0.99))


def counted(requests: RequestColumns) -> list[int]:
    """Rows of the requests that succeeded and made a token, in order."""
    rows: list[int] = requests.counted.tolist()
    return rows


def ttft(run: RunData) -> list[float]:
    requests = run.requests
    return _differences(requests, requests.first_token_seconds, requests.arrival_seconds)


def e2e(run: RunData) -> list[float]:
    requests = run.requests
    return _differences(requests, requests.finish_seconds, requests.arrival_seconds)


def wait(run: RunData) -> list[float]:
    requests = run.requests
    return _differences(requests, requests.scheduled_seconds, requests.arrival_seconds)


def tpot(run: RunData) -> list[float]:
    requests = run.requests
    made = _counted(requests, requests.generated_tokens)
    first = _counted(requests, requests.first_token_seconds)
    last = _counted(requests, requests.last_token_seconds)
    several = made > 1
    if requests.chunks is not None:  # what came in one piece says nothing of its tokens
        several &= _counted(requests, requests.chunks) > 1
    return _known((last[several] - first[several]) / (made[several] - 1))


def itl(run: RunData) -> Samples:
    """All gaps of all counted requests; empty where neither steps nor times of the tokens were kept."""
    requests = run.requests
    if not requests.token_steps and not requests.token_seconds:
        return []
    ends = np.asarray(run.steps.end, np.float64)
    made = np.asarray(requests.generated_tokens, np.int64)
    counts = np.zeros(len(made), bool)
    counts[requests.counted] = True
    if isinstance(requests.token_steps, Runs):
        return _gaps_of_runs(ends, requests.token_steps, np.cumsum(made), counts)
    if requests.token_steps:
        times = ends[np.asarray(requests.token_steps, np.int64)]
    else:
        times = np.array(requests.token_seconds, np.float64)  # None becomes NaN
    owners = np.repeat(np.arange(len(made)), made)
    within = (owners[1:] == owners[:-1]) & counts[owners[1:]]
    gaps = np.diff(times)[within]
    gaps = gaps[~np.isnan(gaps)]
    return gaps if len(gaps) else []


def _gaps_of_runs(ends: np.ndarray, steps: Runs, cuts: np.ndarray, counts: np.ndarray) -> Samples:
    """Gaps between neighbouring steps, each as often as a run of some request's tokens goes over it, and
    those from one run of a request to its next. `cuts` are where the requests' tokens end."""
    owners = np.searchsorted(cuts, steps.starts, side="right")
    mine = counts[owners]
    firsts, lasts, owners = steps.firsts[mine], (steps.firsts + steps.counts - 1)[mine], owners[mine]
    over = np.bincount(firsts, minlength=len(ends)) - np.bincount(lasts, minlength=len(ends))
    again = np.flatnonzero(owners[1:] == owners[:-1])
    between = ends[firsts[again + 1]] - ends[lasts[again]]
    gaps = Weighted(
        np.concatenate([np.diff(ends), between]),
        np.concatenate([np.cumsum(over)[: len(ends) - 1], np.ones(len(between), np.int64)]),
    )
    return gaps if len(gaps) else []


LATENCIES: dict[str, Callable[[RunData], Samples]] = {
    "TTFT": ttft,
    "TPOT": tpot,
    "ITL": itl,
    "E2E": e2e,
    "wait": wait,
}
"""By the name a table shows: the samples of one run, in seconds."""


def latencies(report: Report) -> dict[str, Summary]:
    """A summary of each of `LATENCIES` over all runs."""
    if not report.runs:
        return {name: Summary(0) for name in LATENCIES}
    return {
        name: summary(_together([samples(run) for run in report.runs])) for name, samples in LATENCIES.items()
    }


def _together(parts: list[Samples]) -> Samples:
    if not any(isinstance(part, Weighted) for part in parts):
        return np.concatenate([np.asarray(part, np.float64) for part in parts])
    weighted = [
        part if isinstance(part, Weighted) else Weighted(np.asarray(part), np.ones(len(part), np.int64))
        for part in parts
    ]
    return Weighted(
        np.concatenate([part.values for part in weighted]), np.concatenate([part.counts for part in weighted])
    )


def span(requests: RequestColumns) -> float | None:
    """Seconds from the earliest arrival to the latest finish of any request; None when none finished."""
    finished = _known(np.array(requests.finish_seconds, np.float64))
    arrivals = np.asarray(requests.arrival_seconds, np.float64)
    return max(finished) - float(arrivals.min()) if finished else None


def run_throughput(run: RunData) -> Throughput:
    return _throughput([run])


def throughput(report: Report) -> Throughput:
    """Over all runs: sums over the sum of the spans."""
    return _throughput(report.runs)


def outcome(report: Report) -> Outcome:
    finish_reasons: Counter[str] = Counter()
    reasons: Counter[tuple[str, str]] = Counter()
    succeeded = in_count = generated = decode = preemptions = 0
    correct: Counter[bool | None] = Counter()
    for run in report.runs:
        requests = run.requests
        in_count += len(requests.counted)
        made = np.asarray(requests.generated_tokens, np.int64)
        correct.update(requests.correct)
        generated += int(made.sum())
        decode += int(made.sum()) - int(np.count_nonzero(made))
        preemptions += total_of(requests.preemptions)
        ends = Counter(zip(requests.finish_reason, requests.message, strict=True))
        for (reason, message), count in ends.items():
            name = "unfinished" if reason is None else reason.value
            finish_reasons[name] += count
            if reason is not None and reason.succeeded:
                succeeded += count
            else:
                reasons[name, message or ""] += count
    return Outcome(
        requests=sum(len(run.requests) for run in report.runs),
        succeeded=succeeded,
        counted=in_count,
        finish_reasons=dict(finish_reasons),
        reasons=dict(reasons.most_common()),
        expected=correct[True] + correct[False],
        right=correct[True],
        wrong=correct[False],
        generated_tokens=generated,
        decode_tokens=decode,
        preemptions=preemptions,
    )


def step_totals(report: Report) -> StepTotals:
    if not all(run.told_steps for run in report.runs):
        return StepTotals(None, None, None, None, None, None, {}, None, None)
    every = [run.steps for run in report.runs]
    programs: Counter[str] = Counter()
    for steps in every:
        programs.update({name: total_of(column) for name, column in steps.programs.items()})
    return StepTotals(
        steps=sum(len(steps) for steps in every),
        decode_tokens=_sum(every, "decode_tokens"),
        prefill_tokens=_sum(every, "prefill_tokens"),
        reused_tokens=sum(sum(run.requests.reused_tokens or ()) for run in report.runs),
        padded_tokens=_sum(every, "padded_tokens"),
        forwards=_sum(every, "forwards"),
        programs=dict(programs),
        device_seconds=_total(_sum_of(steps.device_seconds) for steps in every if len(steps)),
        host_seconds=_total(_sum_of(steps.host_seconds) for steps in every if len(steps)),
    )


def pool_totals(report: Report) -> PoolTotals | None:
    """None for a report without a run, and where an engine did not tell its pool."""
    each = [part for run in report.runs for part in parts(run)]
    pools = [run.pool for run in each if run.pool is not None]
    if not pools or len(pools) < len(each):
        return None
    growths = [pool.growths for pool in pools]
    peaks = [peak for growth in growths for peak in growth.peak_bytes]
    return PoolTotals(
        policy=pools[0].policy,
        capacity=pools[0].capacity,
        cell_bytes=pools[0].cell_bytes,
        rows=max(
            max([pool.start_rows, *pool.growths.rows, *(bounds_of(run.steps.rows) if len(run.steps) else ())])
            for pool, run in zip(pools, each, strict=True)
        ),
        bytes=max(pool.bytes for pool in pools),
        most_in_use=max(pool.most_in_use for pool in pools),
        growths=sum(len(pool.growths) - (pool.start_rows == 0 and len(pool.growths) > 0) for pool in pools),
        copied_bytes=sum(sum(growth.copied_bytes) for growth in growths),
        growth_seconds=sum(sum(growth.seconds) for growth in growths),
        peak_bytes=max(peaks, default=None),
        refusals=sum(pool.refusals for pool in pools),
        preemptions=sum(pool.preemptions for pool in pools),
        counters={
            name: sum(pool.counters.get(name, 0) for pool in pools)
            for name, count in pools[0].counters.items()
            if name not in POOL_COUNTERS and isinstance(count, int)
        },
    )


def energy_joules(report: Report) -> float | None:
    """Of all runs together; None unless every run has it."""
    return _total(run.energy_joules for run in report.runs)


def tokens_per_joule(report: Report) -> float | None:
    """Output tokens of the counted requests over the energy of all runs."""
    joules = energy_joules(report)
    return throughput(report).output_tokens / joules or None if joules else None


def _differences(
    requests: RequestColumns, ends: Sequence[float | None], starts: Sequence[float | None]
) -> list[float]:
    return _known(_counted(requests, ends) - _counted(requests, starts))


def _counted(requests: RequestColumns, column: Sequence[float | None]) -> np.ndarray:
    """Of the counted requests, float64; NaN where it is missing."""
    made: np.ndarray = np.array(column, np.float64)[requests.counted]  # None becomes NaN
    return made


def _counted_tokens(requests: RequestColumns, column: Sequence[int]) -> int:
    if isinstance(column, Column):
        return int(column.at(requests.counted).sum())
    return sum(column[row] for row in requests.counted.tolist())


def _known(values: np.ndarray) -> list[float]:
    made: list[float] = values[~np.isnan(values)].tolist()
    return made


def _throughput(runs: Sequence[RunData]) -> Throughput:
    rows = sum(len(run.requests.counted) for run in runs)
    prompt = sum(_counted_tokens(run.requests, run.requests.prompt_tokens) for run in runs)
    output = sum(_counted_tokens(run.requests, run.requests.generated_tokens) for run in runs)
    seconds = _total(span(run.requests) for run in runs)

    def rate(amount: int) -> float | None:
        made = amount / seconds if rows and seconds is not None and seconds > 0 else math.inf
        return made if math.isfinite(made) else None

    return Throughput(rows, prompt, output, seconds, rate(rows), rate(prompt), rate(output))


def _sum(every: Sequence[StepColumns], name: str) -> int:
    return sum(total_of(getattr(steps, name)) for steps in every)


def _sum_of(column: Sequence[float | None]) -> float | None:
    """In order, as `sum` adds."""
    return float(np.cumsum(column.array)[-1]) if isinstance(column, Column) else _total(column)


def _total(values: Iterable[float | None]) -> float | None:
    """The sum, None for nothing or where one is missing."""
    known = list(values)
    if not known or any(value is None for value in known):
        return None
    return float(sum(value for value in known if value is not None))
