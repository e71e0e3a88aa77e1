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
    TTFT = first token - arrival. TPOT = (last token - first token) / (tokens - 1), None for one token. ITL =
    the gaps between one token and the next, each token at the end of the step that made it, so that tokens of
    one step lie 0 apart. E2E = finish - arrival. Wait = first admission - arrival.
Percentiles
    Over the samples of all runs together, linear between the two nearest (numpy's default).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from musebench.report.schema import Report, RequestColumns, RunData, StepColumns

Samples = list[float] | np.ndarray
"""Seconds, one a sample; an array where there may be millions."""


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
    """Sums over the steps of all runs; the two times are None unless every step has one."""

    steps: int
    decode_tokens: int
    prefill_tokens: int
    padded_tokens: int
    forwards: int
    programs: dict[str, int]
    device_seconds: float | None
    host_seconds: float | None


@dataclass(frozen=True)
class PoolTotals:
    """The pool over all runs: most rows and cells of any run, sums of what growing cost."""

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


def summary(samples: Iterable[float]) -> Summary:
    values = samples if isinstance(samples, np.ndarray) else np.asarray(list(samples), np.float64)
    if not len(values):
        return Summary(0)
    p50, p90, p99 = (float(value) for value in np.percentile(values, (50, 90, 99)))
    return Summary(len(values), float(values.mean()), p50, p90, p99)


def counted(requests: RequestColumns) -> list[int]:
    """Rows of the requests that succeeded and made a token, in order."""
    return [
        row
        for row, (reason, made) in enumerate(
            zip(requests.finish_reason, requests.generated_tokens, strict=True)
        )
        if reason is not None and reason.succeeded and made > 0
    ]


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
    made = []
    for row in counted(requests):
        first, last = requests.first_token_seconds[row], requests.last_token_seconds[row]
        if requests.generated_tokens[row] > 1 and first is not None and last is not None:
            made.append((last - first) / (requests.generated_tokens[row] - 1))
    return made


def itl(run: RunData) -> Samples:
    """All gaps of all counted requests; empty where the steps of the tokens were not kept."""
    requests = run.requests
    if not requests.token_steps:
        return []
    times = np.asarray(run.steps.end, np.float64)[np.asarray(requests.token_steps, np.int64)]
    made = np.asarray(requests.generated_tokens, np.int64)
    counts = np.zeros(len(made), bool)
    counts[counted(requests)] = True
    owners = np.repeat(np.arange(len(made)), made)
    within = (owners[1:] == owners[:-1]) & counts[owners[1:]]
    gaps = np.diff(times)[within]
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
        name: summary(np.concatenate([np.asarray(samples(run), np.float64) for run in report.runs]))
        for name, samples in LATENCIES.items()
    }


def span(requests: RequestColumns) -> float | None:
    """Seconds from the earliest arrival to the latest finish of any request; None when none finished."""
    finished = [time for time in requests.finish_seconds if time is not None]
    return max(finished) - min(requests.arrival_seconds) if finished else None


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
        in_count += len(counted(requests))
        correct.update(requests.correct)
        generated += sum(requests.generated_tokens)
        decode += sum(made - 1 for made in requests.generated_tokens if made)
        preemptions += sum(requests.preemptions)
        for reason, message in zip(requests.finish_reason, requests.message, strict=True):
            name = "unfinished" if reason is None else reason.value
            finish_reasons[name] += 1
            if reason is not None and reason.succeeded:
                succeeded += 1
            else:
                reasons[name, message or ""] += 1
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
    every = [run.steps for run in report.runs]
    programs: Counter[str] = Counter()
    for steps in every:
        programs.update({name: sum(column) for name, column in steps.programs.items()})
    return StepTotals(
        steps=sum(len(steps) for steps in every),
        decode_tokens=_sum(every, "decode_tokens"),
        prefill_tokens=_sum(every, "prefill_tokens"),
        padded_tokens=_sum(every, "padded_tokens"),
        forwards=_sum(every, "forwards"),
        programs=dict(programs),
        device_seconds=_total(time for steps in every for time in steps.device_seconds),
        host_seconds=_total(time for steps in every for time in steps.host_seconds),
    )


def pool_totals(report: Report) -> PoolTotals | None:
    """None for a report without a run."""
    if not report.runs:
        return None
    pools = [run.pool for run in report.runs]
    growths = [pool.growths for pool in pools]
    peaks = [peak for growth in growths for peak in growth.peak_bytes]
    return PoolTotals(
        policy=pools[0].policy,
        capacity=pools[0].capacity,
        cell_bytes=pools[0].cell_bytes,
        rows=max(
            max([pool.start_rows, *pool.growths.rows, *run.steps.rows])
            for pool, run in zip(pools, report.runs, strict=True)
        ),
        bytes=max(pool.bytes for pool in pools),
        most_in_use=max(pool.most_in_use for pool in pools),
        growths=sum(len(pool.growths) - (pool.start_rows == 0 and len(pool.growths) > 0) for pool in pools),
        copied_bytes=sum(sum(growth.copied_bytes) for growth in growths),
        growth_seconds=sum(sum(growth.seconds) for growth in growths),
        peak_bytes=max(peaks, default=None),
        refusals=sum(pool.refusals for pool in pools),
        preemptions=sum(pool.preemptions for pool in pools),
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
    made = []
    for row in counted(requests):
        end, start = ends[row], starts[row]
        if end is not None and start is not None:
            made.append(end - start)
    return made


def _throughput(runs: Sequence[RunData]) -> Throughput:
    rows = [(run.requests, row) for run in runs for row in counted(run.requests)]
    prompt = sum(requests.prompt_tokens[row] for requests, row in rows)
    output = sum(requests.generated_tokens[row] for requests, row in rows)
    seconds = _total(span(run.requests) for run in runs)

    def rate(amount: int) -> float | None:
        made = amount / seconds if rows and seconds is not None and seconds > 0 else math.inf
        return made if math.isfinite(made) else None

    return Throughput(len(rows), prompt, output, seconds, rate(len(rows)), rate(prompt), rate(output))


def _sum(every: Sequence[StepColumns], name: str) -> int:
    return sum(sum(getattr(steps, name)) for steps in every)


def _total(values: Iterable[float | None]) -> float | None:
    """The sum, None for nothing or where one is missing."""
    known = list(values)
    if not known or any(value is None for value in known):
        return None
    return float(sum(value for value in known if value is not None))
