"""Energy of a device over a window of time, from NVML's own counter."""

from __future__ import annotations

from typing import NamedTuple

from musebench.measure.nvml import Nvml


class Energy(NamedTuple):
    """`joules` of the whole device over the window, or None and the `reason`."""

    joules: float | None
    reason: str | None = None


class EnergyMeter:
    """Reads the counter at both ends of a window: `start`, then `stop`; again for the next window.

    The counter is the device's own and counts everything that runs on it. It moves every few tens of
    milliseconds, so a window that it did not move in has no answer.
    """

    def __init__(self, nvml: Nvml | None) -> None:
        self._nvml = nvml
        self._start: float | None = None

    def start(self) -> None:
        self._start = None if self._nvml is None else self._nvml.energy_joules()

    def stop(self) -> Energy:
        """Joules since `start`."""
        if self._nvml is None:
            return Energy(None, "this device has no energy counter")
        end = self._nvml.energy_joules()
        if self._start is None or end is None:
            reasons = self._nvml.reasons
            return Energy(
                None, reasons.get("energy") or reasons.get("NVML") or "the counter was not read at the start"
            )
        joules, self._start = end - self._start, None
        if joules < 0:
            return Energy(None, "the counter fell: the driver was loaded anew")
        if joules == 0:
            return Energy(None, "the counter did not move: the window is too short")
        return Energy(joules)
