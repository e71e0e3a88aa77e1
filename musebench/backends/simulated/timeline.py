"""Virtual time of a host and one device: the host launches and waits, the device works it off."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from musebench.core.clock import VirtualClock


class Launched(NamedTuple):
    """One forward: when the device has finished it, and the seconds that it took there."""

    done: float
    device_seconds: float


class StretchTimes(NamedTuple):
    """Equal steps launched one after the other, a list each: the clock when a step began, and when the host
    had launched it; the seconds that it took on the device; and `returned`, the clock when the host had the
    tokens that it waited for after launching it. `done` is when the device has finished the last."""

    starts: list[float]
    launched: list[float]
    device_seconds: list[float]
    returned: list[float]
    done: float


class Timeline:
    """A forward starts on the device when the host begins to launch it and the device is done with the one
    before; it ends when its work is done, and not before all of it has been launched."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self._free = 0.0

    def launch(self, host_seconds: float, launch_seconds: float, device_seconds: float) -> Launched:
        """Work on the host, then launch; the clock stands where the host is then."""
        begin = self.clock.now() + host_seconds
        start = max(self._free, begin)
        launched = begin + launch_seconds
        done = max(start + device_seconds, launched)
        self._free = done
        self.clock.sleep_until(launched)
        return Launched(done, done - start)

    def stretch(
        self,
        host_seconds: float,
        launch_seconds: float,
        device_seconds: Iterable[float],
        arrival: float,
        origin: float,
        in_flight: bool,
        overlap: bool,
    ) -> StretchTimes:
        """`launch` and wait, once for each of `device_seconds`, with the same sums in the same order.

        With `overlap` the host waits for the step before the one that it has just launched; `in_flight`
        says that there is one before the first of these. No step but the first begins once the clock less
        `origin` has reached `arrival`.
        """
        starts: list[float] = []
        ends: list[float] = []
        spans: list[float] = []
        returned: list[float] = []
        now, free = self.clock.now(), self._free
        before = free if in_flight else None
        for seconds in device_seconds:
            if arrival <= now - origin and starts:
                break
            starts.append(now)
            begin = now + host_seconds
            start = free if free > begin else begin
            now = begin + launch_seconds
            free = start + seconds
            if now > free:
                free = now
            ends.append(now)
            spans.append(free - start)
            if not overlap:
                before = free
            if before is not None and before > now:
                now = before
            returned.append(now)
            before = free
        self._free = free
        self.clock.sleep_until(now)
        return StretchTimes(starts, ends, spans, returned, free)

    def settle(self) -> None:
        """Wait until the device has nothing left to do."""
        self.clock.sleep_until(self._free)

    def occupy(self, seconds: float) -> None:
        """Work of host and device together (a capture, a copy of rows), nothing else in flight."""
        self.settle()
        self.clock.advance(seconds)
        self._free = self.clock.now()
