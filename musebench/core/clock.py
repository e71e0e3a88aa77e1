"""Time: the host's monotonic clock, or a virtual one that only moves when it is told to."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from musebench.core.protocols import Clock

LONGEST_SLEEP = 3600.0
"""Seconds: longer ones are slept in parts, for the system's sleep has an upper limit."""


class HostClock:
    """Seconds since it was made, from the host's monotonic clock."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def now(self) -> float:
        return time.perf_counter() - self._start

    def sleep_until(self, seconds: float) -> None:
        while (left := seconds - self.now()) > 0:
            time.sleep(min(left, LONGEST_SLEEP))


class VirtualClock:
    """Seconds that pass only by `advance` and `sleep_until`; no host clock leaks into it."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        if not seconds >= 0.0:
            raise ValueError(f"time cannot move by {seconds} s")
        self._now += seconds

    def sleep_until(self, seconds: float) -> None:
        if seconds > self._now:
            self._now = seconds


def sleep_to(clock: Clock, origin: float, seconds: float) -> None:
    """Return once `seconds` have passed since `origin`. (origin + seconds) - origin can round below it,
    where a virtual clock would stand for ever."""
    until = origin + seconds
    clock.sleep_until(until)
    while clock.now() - origin < seconds:
        until = math.nextafter(until, math.inf)
        clock.sleep_until(until)
