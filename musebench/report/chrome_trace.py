"""Chrome trace events of a report, for Perfetto (ui.perfetto.dev) and chrome://tracing.

The format is the JSON object form of the Trace Event Format: complete slices ("X"), counters ("C"), instants
("i") and names ("M"); times in microseconds, on the run's own clock. Each run makes two processes: its host
and device with the pool's counters, and its requests.

Lanes
    host: of each step the seconds that the host spent on it, from the step's start. device: of each step the
    time on the device, ending when its tokens were known to the host (where it was not measured: from the
    step's start). Slices of these lanes never overlap: one that would is cut to begin where the last one
    ended, and its arguments keep the measured seconds. requests: each request a slice from its arrival to its
    end, its phases nested in it; requests that do not overlap in time share a lane.
"""

from __future__ import annotations

import gzip
import heapq
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from musebench.core.profiling import Activity
from musebench.core.whole import write_whole
from musebench.report import series
from musebench.report.columns import RunData
from musebench.report.entries import facts
from musebench.report.schema import Report

Event = dict[str, Any]

HOST, DEVICE, FIRST_ACTIVITY = 1, 2, 3
PROCESSES_OF_A_RUN = 2


def trace(report: Report, profiled: tuple[RunData, Sequence[Activity]] | None = None) -> dict[str, Any]:
    """The trace of all runs, and of one more that was profiled: its data, and what was recorded in it."""
    events: list[Event] = []
    for index, run in enumerate(report.runs):
        events += run_events(run, f"run {index + 1}", 1 + PROCESSES_OF_A_RUN * index)
    if profiled is not None:
        run, activities = profiled
        process = 1 + PROCESSES_OF_A_RUN * len(report.runs)
        events += run_events(run, "profiled run", process, activities)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"report": report.id, **facts(report)},
    }


def write(report: Report, path: Path, profiled: tuple[RunData, Sequence[Activity]] | None = None) -> Path:
    """Save the trace, gzipped where the name ends in ".gz" (Perfetto reads both).

    Raises:
        InputError: the place cannot be written.
    """
    data = json.dumps(trace(report, profiled), allow_nan=False, separators=(",", ":")).encode("ascii")
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    return write_whole(path, data, "the trace")


def run_events(run: RunData, name: str, process: int, activities: Sequence[Activity] = ()) -> Iterator[Event]:
    """All events of one run, in the processes `process` and `process` + 1."""
    lanes = {HOST: "host", DEVICE: "device"}
    numbers = {
        lane: FIRST_ACTIVITY + at for at, lane in enumerate(dict.fromkeys(one.lane for one in activities))
    }
    yield from _names(
        process, f"{name}: host, device, pool", lanes | {at: lane for lane, at in numbers.items()}
    )
    yield from _steps(run, process)
    yield from _pool(run, process)
    for one in activities:
        yield _slice(process, numbers[one.lane], one.name, one.start, one.seconds, dict(one.details))
    yield from _requests(run, process + 1, f"{name}: requests")


def _steps(run: RunData, process: int) -> Iterator[Event]:
    steps = run.steps
    free = {HOST: 0.0, DEVICE: 0.0}
    for row in range(len(steps)):
        start, end = steps.start[row], steps.end[row]
        host, device = steps.host_seconds[row], steps.device_seconds[row]
        kind = "step"
        arguments = {
            "step": row,
            "decode tokens": steps.decode_tokens[row],
            "prefill tokens": steps.prefill_tokens[row],
            "padded tokens": steps.padded_tokens[row],
            "sequences": steps.sequences[row],
            "programs": {name: column[row] for name, column in steps.programs.items() if column[row]},
            "host seconds": host,
            "device seconds": device,
        }
        if steps.prefill_tokens[row]:
            kind = "prefill and decode" if steps.decode_tokens[row] else "prefill"
        elif steps.decode_tokens[row]:
            kind = "decode"
        places = [(DEVICE, start if device is None else end - device, end)]
        if host is not None:
            places.append((HOST, start, start + host))
        for lane, begin, stop in places:
            begin = max(begin, free[lane])
            free[lane] = max(stop, begin)
            yield _slice(process, lane, kind, begin, free[lane] - begin, arguments)


def _pool(run: RunData, process: int) -> Iterator[Event]:
    steps = run.steps
    for row, start in enumerate(steps.start):
        yield _counter(process, "pool", start, {"rows": steps.rows[row], "cells in use": steps.in_use[row]})
        counts = {"running": steps.running[row], "waiting": steps.waiting[row]}
        yield _counter(process, "sequences", start, counts)
    for growth in series.growths(run):
        yield {
            "ph": "i",
            "s": "p",
            "name": "first allocation" if growth.first else "growth",
            "cat": "pool",
            "pid": process,
            "tid": HOST,
            "ts": _microseconds(growth.seconds),
            "args": {
                "rows": growth.rows,
                "bytes": growth.bytes,
                "copied bytes": growth.copied_bytes,
                "seconds": growth.took_seconds,
            },
        }


def _requests(run: RunData, process: int, name: str) -> Iterator[Event]:
    requests = run.requests
    spans: dict[int, list[series.Span]] = {}
    for span in series.spans(run):
        spans.setdefault(span.row, []).append(span)
    busy: list[tuple[float, int]] = []  # when a lane is free, the lane
    count = 0
    events: list[Event] = []
    for row in sorted(spans, key=lambda row: (spans[row][0].start, row)):
        start, end = spans[row][0].start, spans[row][-1].end
        if busy and busy[0][0] <= start:
            lane = heapq.heappop(busy)[1]
        else:
            count += 1
            lane = count
        heapq.heappush(busy, (end, lane))
        reason = requests.finish_reason[row]
        arguments = {
            "prompt tokens": requests.prompt_tokens[row],
            "generated tokens": requests.generated_tokens[row],
            "ended": "unfinished" if reason is None else reason.value,
            "message": requests.message[row],
            "preemptions": requests.preemptions[row],
        }
        events.append(_slice(process, lane, f"request {requests.id[row]}", start, end - start, arguments))
        events += [
            _slice(process, lane, span.phase, span.start, span.end - span.start, {}) for span in spans[row]
        ]
    yield from _names(process, name, {lane: f"requests {lane}" for lane in range(1, count + 1)})
    yield from events


def _names(process: int, name: str, lanes: dict[int, str]) -> Iterator[Event]:
    yield _meta(process, 0, "process_name", {"name": name})
    yield _meta(process, 0, "process_sort_index", {"sort_index": process})
    for lane, lane_name in lanes.items():
        yield _meta(process, lane, "thread_name", {"name": lane_name})
        yield _meta(process, lane, "thread_sort_index", {"sort_index": lane})


def _meta(process: int, lane: int, name: str, arguments: dict[str, Any]) -> Event:
    return {"ph": "M", "name": name, "pid": process, "tid": lane, "args": arguments}


def _counter(process: int, name: str, seconds: float, values: dict[str, int]) -> Event:
    return {"ph": "C", "name": name, "pid": process, "tid": 0, "ts": _microseconds(seconds), "args": values}


def _slice(
    process: int, lane: int, name: str, start: float, seconds: float, arguments: dict[str, Any]
) -> Event:
    # Both ends are rounded, not the length, so that what touched still touches.
    begin = _microseconds(start)
    return {
        "ph": "X",
        "name": name,
        "cat": "musebench",
        "pid": process,
        "tid": lane,
        "ts": begin,
        "dur": round(max(_microseconds(start + seconds) - begin, 0.0), 3),
        "args": arguments,
    }


def _microseconds(seconds: float) -> float:
    """To a nanosecond."""
    return round(seconds * 1e6, 3)
