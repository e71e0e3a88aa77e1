"""Rows that are only counted: bytes, a capacity, and the time that growing takes."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Ordered

from musebench.backends.simulated.shape import Costs
from musebench.backends.simulated.timeline import Timeline
from musebench.core.errors import OutOfMemory
from musebench.core.protocols import Resize
from musebench.core.spans import Granules, SpanCosts, SpanSource, check_reservation


class SimulatedStorage:
    """See `musebench.core.protocols.Storage`, and `musebench.core.spans.GrowsInPlace`. `capacity_bytes()` is
    what the device has for rows, `buffers` how many a real storage would have.

    Growing holds old and new rows at once, as a real storage does, waits for the device and copies the live
    ones; after `reserve` it maps what is missing, beside the device's work, and copies nothing.
    """

    def __init__(
        self,
        cell_bytes: int,
        capacity_bytes: Callable[[], int],
        costs: Costs,
        timeline: Timeline,
        buffers: int = 1,
    ) -> None:
        self.cell_bytes = cell_bytes
        self._row_bytes = _shares(cell_bytes, buffers)
        self._granules: Granules | None = None
        self._span_costs = SpanCosts(1, 0.0)
        self.rows = 0
        self.peak_bytes = 0
        self._capacity_bytes = capacity_bytes
        self._costs = costs
        self._timeline = timeline

    @property
    def bytes(self) -> int:
        return self.bytes_for(self.rows)

    def reserve(self, rows: int, source: SpanSource) -> None:
        """See `musebench.core.spans.GrowsInPlace`."""
        check_reservation(rows, self._granules is not None or self.rows > 0, self._row_bytes)
        self._span_costs = source.costs()
        self._granules = Granules(self._span_costs.granule_bytes, self._row_bytes, rows)

    def bytes_for(self, rows: int) -> int:
        return rows * self.cell_bytes if self._granules is None else self._granules.bytes_for(rows)

    def rows_within(self, rows: int) -> int:
        return rows if self._granules is None else self._granules.rows_within(rows)

    @property
    def slack_bytes(self) -> int:
        return 0 if self._granules is None else self._granules.slack_bytes

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
        if self._granules is not None:
            return self._in_place(rows)
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

    def _in_place(self, rows: int) -> Resize:
        added = self.bytes_for(rows) - self.bytes
        if added > self.free_bytes():
            raise OutOfMemory(added, self.free_bytes(), f"{rows:,} rows")
        seconds = abs(added) * self._span_costs.seconds_per_byte
        if rows < self.rows:
            self._timeline.settle()  # who was launched may still use what is given back
        self._timeline.clock.advance(seconds)
        self.rows = rows
        self.peak_bytes = max(self.peak_bytes, self.bytes)
        return Resize(False, 0, self.bytes, seconds)

    def move(self, runs: Ordered[tuple[int, int, int]]) -> int:
        """See `musebench.backends.torch_storage.TorchStorage.move`: the device reads and writes the rows, and
        each run is a launch a buffer."""
        copied = sum(count for _, _, count in runs) * self.cell_bytes
        if runs:
            moving = self._costs.move_seconds(copied, len(runs))
            self._timeline.launch(0.0, moving.launching, moving.copying)
        return copied

    def close(self) -> None:
        self.rows, self._granules = 0, None


def _shares(cell_bytes: int, buffers: int) -> tuple[int, ...]:
    """A cell's bytes over buffers, as even as they go."""
    return tuple(
        (cell_bytes * (index + 1)) // buffers - cell_bytes * index // buffers for index in range(buffers)
    )
