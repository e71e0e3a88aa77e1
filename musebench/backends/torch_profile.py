"""What torch's profiler records, on the clock of a run."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from musebench.core.profiling import Activity

MARK = "musebench.mark"
AT_ONCE = 5
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
ON_HOST = ("cpu_op",)
KEPT_DETAILS = ("grid", "block", "registers per thread", "shared memory", "bytes")


class TorchProfiler:
    """See `musebench.core.profiling.Profiler`: kernels and copies of a CUDA device, by stream; on a CPU the
    operations, by thread.

    The profiler's clock is tied to the run's by marks: annotations within which the run's clock is read, so
    that each says between which two values the offset lies. They come several at a time: what all of those
    allow is narrow, even where some were held up, and its middle is taken. Between such places the offset is
    interpolated, as the profiler reckons in the system's time of day, which may be set right meanwhile. torch
    gives its events in microseconds.
    """

    def __init__(self, device: torch.device) -> None:
        activity = torch.profiler.ProfilerActivity
        cuda = device.type == "cuda"
        self._kinds = ON_DEVICE if cuda else ON_HOST
        self._profile = torch.profiler.profile(activities=[activity.CPU, *([activity.CUDA] if cuda else [])])
        self._marks: list[list[float]] = []
        self._running = False
        self._made: list[Activity] | None = None

    def start(self) -> None:
        self._profile.start()
        self._running = True

    def mark(self, now: Callable[[], float]) -> None:
        if self._running:
            self._marks.append([])
            for _ in range(AT_ONCE):
                with torch.profiler.record_function(MARK):
                    self._marks[-1].append(now())

    def stop(self) -> None:
        if self._running:
            self._running = False
            self._profile.stop()

    def activities(self) -> list[Activity]:
        if self._made is None:
            self._made = sorted(self._read(), key=lambda one: (one.start, -one.seconds))
        return self._made

    def _read(self) -> Iterator[Activity]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "profile.json"
            self._profile.export_chrome_trace(str(path))
            events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
        spans = sorted(
            (event["ts"] / 1e6, event.get("dur", 0.0) / 1e6) for event in events if _is_mark(event)
        )
        if not self._marks:
            return
        places, offsets = tied(spans, self._marks)
        lanes: dict[Any, str] = {}
        for event in events:
            if event.get("ph") != "X" or event.get("cat") not in self._kinds:
                continue
            place, start = event["tid"], event["ts"] / 1e6
            word = "stream" if self._kinds is ON_DEVICE else "thread"
            number = place if self._kinds is ON_DEVICE else len(lanes) + 1
            lane = lanes.setdefault(place, f"{word} {number}")
            arguments = event.get("args", {})
            yield Activity(
                name=str(event["name"]),
                lane=lane,
                start=start - float(np.interp(start, places, offsets)),
                seconds=event.get("dur", 0.0) / 1e6,
                details={name: arguments[name] for name in KEPT_DETAILS if name in arguments},
            )


def tied(spans: list[tuple[float, float]], marks: list[list[float]]) -> tuple[list[float], list[float]]:
    """Places on the profiler's clock, and how far it is ahead of the run's there; all in seconds.

    `spans` are the marks' starts and durations as the profiler has them, in order, and `marks` what the run's
    clock said within each, by the places where they were made.

    Raises:
        ValueError: the profiler has not kept every mark.
    """
    if len(spans) != sum(map(len, marks)):
        raise ValueError(f"the profiler kept {len(spans)} of {sum(map(len, marks))} marks")
    left = iter(spans)
    places, offsets = [], []
    for readings in marks:
        here = [(*next(left), read) for read in readings]
        least = max(start - read for start, _, read in here)
        most = min(start + seconds - read for start, seconds, read in here)
        places.append(here[0][0])
        offsets.append((least + most) / 2)
    return places, offsets


def _is_mark(event: dict[str, Any]) -> bool:
    return event.get("name") == MARK and event.get("ph") == "X" and event.get("cat") == "user_annotation"
