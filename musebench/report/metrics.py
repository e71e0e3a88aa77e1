"""Totals of a report: pure functions of its raw data, numpy only. Seconds, bytes, joules; None for missing.

What counts
    A request *succeeded* when it ended with "stop" or "length". Only requests that succeeded and made at
    least one token are *counted*: for throughput and for every percentile (`latencies`). A request that
    succeeded without a token (it asked for 0) is finished and nothing else.
Span
    From the earliest arrival to the latest finish of one run, over all its requests, failed ones too: time
    that was spent on them was spent. Idle time before the first arrival is not in it. Rates are sums of the
    counted requests over that span; with several runs, sums over the sum of the spans. A span of 0 (a clock
    that read the same twice) gives no rate.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from musebench.report.column import Column, bounds_of, total_of
from musebench.report.replicas import parts
from musebench.report.schema import Report, RequestColumns, RunData, StepColumns


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


def counted(requests: RequestColumns) -> list[int]:
    """Rows of the requests that succeeded and made a token, in order."""
    rows: list[int] = requests.counted.tolist()
    return rows


def span(requests: RequestColumns) -> float | None:
    """Seconds from the earliest arrival to the latest finish of any request; None when none finished."""
    finished = np.array(requests.finish_seconds, np.float64)  # None becomes NaN
    finished = finished[~np.isnan(finished)]
    arrivals = np.asarray(requests.arrival_seconds, np.float64)
    return float(finished.max() - arrivals.min()) if len(finished) else None


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


def _counted_tokens(requests: RequestColumns, column: Sequence[int]) -> int:
    if isinstance(column, Column):
        return int(column.at(requests.counted).sum())
    return sum(column[row] for row in requests.counted.tolist())


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
