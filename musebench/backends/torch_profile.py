"""What torch's profiler records, on the clock of a run."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from musebench.core.profiling import Activity

MARK = "musebench.mark"
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
ON_HOST = ("cpu_op",)
KEPT_DETAILS = ("grid", "block", "registers per thread", "shared memory", "bytes")


class TorchProfiler:
    """See `musebench.core.profiling.Profiler`: kernels and copies of a CUDA device, by stream; on a CPU the
    operations, by thread.

    The profiler's clock is tied to the run's by marks: annotations within which the run's clock is read, so
    that each says between which two values the offset lies. What all of them allow is narrow, however long
    some were held up; its middle is taken. torch gives its events in microseconds.
    """

    def __init__(self, device: torch.device) -> None:
        activity = torch.profiler.ProfilerActivity
        cuda = device.type == "cuda"
        self._kinds = ON_DEVICE if cuda else ON_HOST
        self._profile = torch.profiler.profile(activities=[activity.CPU, *([activity.CUDA] if cuda else [])])
        self._marks: list[float] = []
        self._running = False
        self._made: list[Activity] | None = None

    def start(self) -> None:
        self._profile.start()
        self._running = True

    def mark(self, now: Callable[[], float]) -> None:
        if self._running:
            with torch.profiler.record_function(MARK):
                self._marks.append(now())

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
        marks = sorted(
            (event["ts"], event["ts"] + event.get("dur", 0.0)) for event in events if _is_mark(event)
        )
        if not marks:
            return
        ties = list(zip(marks, self._marks, strict=True))
        least = max(begun / 1e6 - read for (begun, _), read in ties)
        most = min(ended / 1e6 - read for (_, ended), read in ties)
        offset = (least + most) / 2
        lanes: dict[Any, str] = {}
        for event in events:
            if event.get("ph") != "X" or event.get("cat") not in self._kinds:
                continue
            place = event["tid"]
            word = "stream" if self._kinds is ON_DEVICE else "thread"
            number = place if self._kinds is ON_DEVICE else len(lanes) + 1
            lane = lanes.setdefault(place, f"{word} {number}")
            arguments = event.get("args", {})
            yield Activity(
                name=str(event["name"]),
                lane=lane,
                start=event["ts"] / 1e6 - offset,
                seconds=event.get("dur", 0.0) / 1e6,
                details={name: arguments[name] for name in KEPT_DETAILS if name in arguments},
            )


def _is_mark(event: dict[str, Any]) -> bool:
    return event.get("name") == MARK and event.get("ph") == "X" and event.get("cat") == "user_annotation"
