"""What pictures draw: curves, spans and points as pure functions of a report's data. Seconds and bytes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from musebench.report import latencies, metrics
from musebench.report.roofline import KINDS, run_floors
from musebench.report.schema import Report, RunData

WAITING, PREFILL, DECODE, PREEMPTED = "waiting", "prefill", "decode", "preempted"
PHASES = (WAITING, PREFILL, DECODE, PREEMPTED)
"""What a request can be doing."""


@dataclass(frozen=True)
class Span:
    """A request (its row) in one phase from `start` to `end`, in seconds on the run's clock."""

    row: int
    phase: str
    start: float
    end: float


@dataclass(frozen=True)
class Growth:
    """A change of the rows, at the start of its step. `first`: the first allocation, which copies nothing."""

    seconds: float
    rows: int
    bytes: int
    copied_bytes: int
    took_seconds: float
    first: bool


@dataclass(frozen=True)
class Point:
    """One report as a point: rates per second, latencies in seconds, bytes; None where not known.

    `offered_per_second` is the rate at which requests arrived: (requests - 1) over the time between the first
    and the last arrival, None when all arrived at once. `memory_bytes` is the device's peak, else weights and
    pool.
    """

    offered_per_second: float | None
    output_tokens_per_second: float | None
    requests_per_second: float | None
    ttft: latencies.Summary
    tpot: latencies.Summary
    itl: latencies.Summary
    memory_bytes: int | None


def spans(run: RunData) -> Iterator[Span]:
    """What every request was doing when, request after request, in the order of time.

    A request prefills from the start of the step that admitted it to its first token, and after a preemption
    from the start of the step that admitted it again to the next token it made. Where a report does not say
    when requests were preempted, nothing is preempted in it.
    """
    requests = run.requests
    ends = np.cumsum(requests.generated_tokens)
    made = requests.token_steps

    def began(seconds: float) -> float:
        """The start of the step in whose launch something happened."""
        return (
            run.steps.start[max(bisect_right(run.steps.start, seconds) - 1, 0)] if len(run.steps) else seconds
        )

    for row, arrival in enumerate(requests.arrival_seconds):
        finish = requests.finish_seconds[row]
        admitted, first = requests.scheduled_seconds[row], requests.first_token_seconds[row]
        over = finish if finish is not None else max([arrival, *run.steps.end[-1:]])
        times = [] if first is None else [first]
        if made:
            mine = made[int(ends[row]) - requests.generated_tokens[row] : int(ends[row])]
            times = [run.steps.end[step] for step in mine]
        pauses = requests.pauses[row] if requests.pauses else []
        starts = [] if admitted is None else [began(admitted), *(began(time) for time in pauses[1::2])]
        stops = [*pauses[0::2], over]
        waited = min(starts[0] if starts else over, over)
        if waited > arrival:
            yield Span(row, WAITING, arrival, waited)
        for index, start in enumerate(starts):
            stop = min(stops[index], over)
            token = next((time for time in times if time > start), stop)
            if min(token, stop) > start:
                yield Span(row, PREFILL, start, min(token, stop))
            if stop > token:
                yield Span(row, DECODE, token, stop)
            back = starts[index + 1] if index + 1 < len(starts) else over
            if min(back, over) > stop:
                yield Span(row, PREEMPTED, stop, min(back, over))


def growths(run: RunData) -> list[Growth]:
    """Every change of the rows; one before the first step falls on 0 s."""
    if run.pool is None:
        return []
    grown, made = run.pool.growths, []
    for index, step in enumerate(grown.step):
        made.append(
            Growth(
                seconds=run.steps.start[step] if 0 <= step < len(run.steps) else 0.0,
                rows=grown.rows[index],
                bytes=grown.bytes[index],
                copied_bytes=grown.copied_bytes[index],
                took_seconds=grown.seconds[index],
                first=index == 0 and run.pool.start_rows == 0,
            )
        )
    return made


def step_seconds(run: RunData) -> tuple[np.ndarray, str]:
    """Seconds of each step, float64 [steps], and what they are: time on the device where every step has it,
    else from its start, or the end of the step before where they overlap, to its end."""
    steps = run.steps
    if len(steps) and all(seconds is not None for seconds in steps.device_seconds):
        return np.asarray(steps.device_seconds, np.float64), "device time"
    end = np.asarray(steps.end, np.float64)
    before = np.concatenate([[0.0], end[:-1]]) if len(end) else end
    return end - np.maximum(np.asarray(steps.start, np.float64), before), "time from start to end"


def step_kinds(run: RunData) -> np.ndarray:
    """Of each step its place in `musebench.report.roofline.KINDS`, int8 [steps]."""
    decodes = np.asarray(run.steps.decode_tokens, np.int64) > 0
    prefills = np.asarray(run.steps.prefill_tokens, np.int64) > 0
    decode, prefill, mixed = (KINDS.index(kind) for kind in ("decode", "prefill", "mixed"))
    return np.where(decodes & prefills, mixed, np.where(prefills, prefill, decode)).astype(np.int8)


def floor_seconds(report: Report, run: RunData) -> np.ndarray | None:
    """The least seconds that each step could take, float64 [steps]; None where the report has no floor."""
    least = run_floors(report, run)
    return None if least is None else least.seconds


def samples(report: Report, name: str) -> np.ndarray:
    """All samples of one of `latencies.LATENCIES` over all runs, ascending, float64."""
    values = [value for run in report.runs for value in latencies.LATENCIES[name](run)]
    return np.sort(np.asarray(values, np.float64))


def point(report: Report) -> Point:
    rates, every = metrics.throughput(report), latencies.summaries(report)
    return Point(
        offered_per_second=_offered(report),
        output_tokens_per_second=rates.output_tokens_per_second,
        requests_per_second=rates.requests_per_second,
        ttft=every["TTFT"],
        tpot=every["TPOT"],
        itl=every["ITL"],
        memory_bytes=_memory_bytes(report),
    )


def _offered(report: Report) -> float | None:
    if not report.runs:
        return None
    arrivals = report.runs[0].requests.arrival_seconds
    seconds = max(arrivals, default=0.0) - min(arrivals, default=0.0)
    return (len(arrivals) - 1) / seconds if seconds > 0 else None


def _memory_bytes(report: Report) -> int | None:
    peak = report.memory.snapshots.get("peak")
    if peak is not None and peak.peak is not None:
        return peak.peak
    pool, weights = metrics.pool_totals(report), report.memory.computed.weights
    return None if pool is None or weights is None else weights + max(pool.bytes, pool.peak_bytes or 0)


def frontier(better: Sequence[tuple[float, float]]) -> list[int]:
    """Places of the points that no other one beats, by rising first value: a point is beaten by one whose
    first value is at least as large and whose second is at most as large, one of them strictly."""
    order = sorted(range(len(better)), key=lambda place: (-better[place][0], better[place][1]))
    kept: list[int] = []
    for place in order:
        if not kept or better[place][1] < better[kept[-1]][1] or better[place] == better[kept[-1]]:
            kept.append(place)
    return kept[::-1]


def thinned(count: int, most: int, keep: Sequence[int] = ()) -> np.ndarray:
    """Ascending places of about `most` of `count` rows, evenly spread, the first and the last and those in
    `keep` among them; all when there are no more than `most`."""
    if count <= most:
        return np.arange(count)
    even = np.linspace(0, count - 1, max(most, 2)).round().astype(np.int64)
    return np.union1d(even, np.asarray([place for place in keep if 0 <= place < count], np.int64))
