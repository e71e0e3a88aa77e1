"""`geometric`: starts small, grows by a factor; a token claims the lowest free cell."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from musebench.core.counted import CellCounts
from musebench.core.errors import OutOfMemory, PoolFull
from musebench.core.options import option
from musebench.core.plan import StepPlan
from musebench.core.protocols import PoolBounds, Storage
from musebench.core.sequence import Sequence
from musebench.pools.cell_pool import CellPool


@dataclass(frozen=True)
class GeometricOptions:
    start: int = option(64, "rows of the first allocation", unit="cells", minimum=1)
    factor: float = option(2.0, "rows grow at least by this factor", above=1.0)
    capacity: int | None = option(None, "most rows; none: as many as memory holds", unit="cells", minimum=1)


class GeometricPool(CellPool):
    """rows = min(capacity, max(needed, rows x factor)), from `start`.

    Without a capacity of its own or of the run it takes what every session could ask for, as far as memory
    holds: growing needs old and new rows at once, so that counts a growth from half.
    """

    name: ClassVar[str] = "geometric"
    Options = GeometricOptions
    Counted: ClassVar[type[GeometricPool]]

    def __init__(self, options: GeometricOptions, bounds: PoolBounds, storage: Storage) -> None:
        super().__init__(bounds, storage)
        self.options = options
        given = [limit for limit in (options.capacity, bounds.capacity) if limit is not None]
        self._capacity = min(given) if given else self._affordable()
        # Whether the capacity is a guess about memory, which a growth can prove wrong.
        self._guessed = not given and storage.free_bytes() is not None

    def _affordable(self) -> int:
        wanted = self.bounds.max_sessions * self.bounds.max_context
        free = self.storage.free_bytes()
        if free is None:
            return wanted
        # The last growth copies: rows / factor old ones are still there beside the new ones.
        most = int(free / self.storage.cell_bytes / (1 + 1 / self.options.factor)) - 1
        return max(min(wanted, most), 0)

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def room(self) -> int:
        return self._capacity - self.cells.in_use

    def refusal(self, tokens: int) -> str | None:
        if tokens <= self._capacity:
            return None
        return (
            f"needs {tokens:,} cells; pool 'geometric' has a capacity of {self._capacity:,} "
            f"({self._capacity:,} x {self.storage.cell_bytes:,} bytes)"
        )

    def quote(self, sequence: Sequence) -> int:
        return sequence.remaining

    def most_rows(self, cells: int) -> int:
        return min(self._capacity, max(self.options.start, math.ceil(cells * self.options.factor)))

    def passing_rows(self, cells: int) -> int:
        """It grows when the rows do not suffice, so the old ones are fewer than the cells needed."""
        return min(cells, self._capacity)

    def _rows_for(self, needed: int) -> int:
        if not self.cells.rows:
            return min(self._capacity, max(needed, self.options.start))
        return min(self._capacity, max(needed, math.ceil(self.cells.rows * self.options.factor)))

    def _grow(self, needed: int) -> None:
        """Where old and new rows do not fit at once, the rows that there are become the capacity: the pool is
        full, and nobody who runs has to end for it."""
        try:
            super()._grow(needed)
        except OutOfMemory:
            if not self._guessed or not self.cells.rows:
                raise
            self._capacity = self.cells.rows
            self.refusals += 1
            free = self._capacity - self.cells.in_use
            raise PoolFull(needed - self.cells.in_use, free, self._capacity) from None

    def _place(self, slots: np.ndarray, positions: np.ndarray) -> np.ndarray:
        cells = self.cells.lowest(len(slots))
        if len(cells):
            self.cells.taken_below(int(cells[-1]) + 1)
        return cells


class CountedGeometricPool(GeometricPool):
    """The same policy over cells that are only counted: for storages whose cells nobody reads."""

    def __init__(self, options: GeometricOptions, bounds: PoolBounds, storage: Storage) -> None:
        super().__init__(options, bounds, storage)
        self.cells: CellCounts = CellCounts(bounds.max_sessions)
        self._none = np.zeros(1, np.int32)

    def _take(self, plan: StepPlan) -> np.ndarray:
        """Cell 0 for every token."""
        if plan.decodes:
            self.cells.count(plan.decodes, 1)
        for piece in plan.prefills:
            self.cells.count_one(piece.sequence.slot, piece.count)
        if plan.tokens > len(self._none):
            self._none = np.zeros(2 * plan.tokens, np.int32)
        return self._none[: plan.tokens]

    def reserve_steps(self, plan: StepPlan, steps: int) -> None:
        self.cells.count(plan.decodes, steps)


GeometricPool.Counted = CountedGeometricPool
