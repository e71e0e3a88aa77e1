"""Rows that are only counted: bytes, a capacity, and the time that growing takes."""

from __future__ import annotations

from collections.abc import Callable

from musebench.backends.simulated.shape import Costs
from musebench.backends.simulated.timeline import Timeline
from musebench.core.errors import OutOfMemory
from musebench.core.protocols import Resize


class SimulatedStorage:
    """See `musebench.core.protocols.Storage`. `capacity_bytes()` is what the device has for rows.

    Growing holds old and new rows at once, as a real storage does, waits for the device and copies the live
    ones.
    """

    def __init__(
        self, cell_bytes: int, capacity_bytes: Callable[[], int], costs: Costs, timeline: Timeline
    ) -> None:
        self.cell_bytes = cell_bytes
        self.rows = 0
        self.peak_bytes = 0
        self._capacity_bytes = capacity_bytes
        self._costs = costs
        self._timeline = timeline

    @property
    def bytes(self) -> int:
        return self.rows * self.cell_bytes

    def free_bytes(self) -> int:
        return max(self._capacity_bytes() - self.bytes, 0)

    def resize(self, rows: int, live: int) -> Resize:
        """Have `rows` rows, keeping the first `live`; the same `rows` moves nothing.

        Raises:
            OutOfMemory: the new rows do not fit beside the old ones; nothing has changed.
            ValueError: `live` exceeds the old or the new rows.
        """
        if not 0 <= live <= min(rows, self.rows):
            raise ValueError(f"{live} live rows of {self.rows} cannot be kept in {rows}")
        if rows == self.rows:
            return Resize(moved=False)
        needed = rows * self.cell_bytes
        if needed > self.free_bytes():
            raise OutOfMemory(needed, self.free_bytes(), f"{rows:,} rows")
        copied = live * self.cell_bytes
        seconds = self._costs.copy_seconds(copied)
        self._timeline.occupy(seconds)
        peak = needed + self.bytes
        self.peak_bytes = max(self.peak_bytes, peak)
        self.rows = rows
        return Resize(True, copied, peak, seconds)

    def close(self) -> None:
        self.rows = 0
