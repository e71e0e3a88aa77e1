"""What pools that start small share: a capacity that may be a guess, and a token's cell is the lowest free
one."""

from __future__ import annotations

import numpy as np

from musebench.core.counted import CellCounts
from musebench.core.errors import OutOfMemory, PoolFull
from musebench.core.plan import StepPlan
from musebench.core.protocols import PoolBounds, Storage
from musebench.core.sequence import Sequence
from musebench.pools.cell_pool import CellPool


class GrowingPool(CellPool):
    """Rows up to a capacity: what it was given, or what every session could ask for, as far as memory holds.

    A policy says what a need grows to (`rows_for`) and how many rows memory holds (`affordable`).
    """

    def __init__(self, bounds: PoolBounds, storage: Storage, capacity: int | None = None) -> None:
        super().__init__(bounds, storage)
        given = [limit for limit in (capacity, bounds.capacity) if limit is not None]
        self._capacity = min(given) if given else self._guess()
        # Whether the capacity is a guess about memory, which a growth can prove wrong.
        self._guessed = not given and storage.free_bytes() is not None

    def affordable(self, free_bytes: int) -> int:
        """Most rows, scratch left out, that can come to be where `free_bytes` are free."""
        return free_bytes // self.storage.cell_bytes - 1

    def _guess(self) -> int:
        wanted = self.bounds.max_sessions * self.bounds.max_context
        free = self.storage.free_bytes()
        return wanted if free is None else max(min(wanted, self.affordable(free)), 0)

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
            f"needs {tokens:,} cells; pool {self.name!r} has a capacity of {self._capacity:,} "
            f"({self._capacity:,} x {self.storage.cell_bytes:,} bytes)"
        )

    def quote(self, sequence: Sequence) -> int:
        return sequence.remaining

    def grow(self, needed: int) -> None:
        """Where memory ends before the capacity, the rows that there are become the capacity: the pool is
        full, and nobody who runs has to end for it."""
        try:
            super().grow(needed)
        except OutOfMemory:
            if not self._guessed or not self.cells.rows:
                raise
            self._capacity = self.cells.rows
            self.refusals += 1
            free = self._capacity - self.cells.in_use
            raise PoolFull(needed - self.cells.in_use, free, self._capacity) from None

    def place(self, slots: np.ndarray, positions: np.ndarray) -> np.ndarray:
        cells = self.cells.lowest(len(slots))
        if len(cells):
            self.cells.taken_below(int(cells[-1]) + 1)
        return cells


class CountedCells(CellPool):
    """Put before a policy, makes it count cells only: for storages whose cells nobody reads."""

    def __init__(self, options: object, bounds: PoolBounds, storage: Storage) -> None:
        super().__init__(options, bounds, storage)  # type: ignore[call-arg, arg-type]  # a policy's own
        self.cells: CellCounts = CellCounts(bounds.max_sessions)
        self._none = np.zeros(1, np.int32)

    def take(self, plan: StepPlan) -> np.ndarray:
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
