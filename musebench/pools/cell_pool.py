"""What all built-in pool policies share: cells, one storage, and the order of a reservation."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from musebench.core.cells import Cells
from musebench.core.errors import OutOfMemory, PoolFull
from musebench.core.plan import StepPlan
from musebench.core.protocols import PoolBounds, Resize, Storage


class CellPool:
    """A pool over one storage, to derive a policy from: it says what rows a need grows to (`rows_for`) and
    which cells the tokens of a reservation get (`place`), and may say more (`need`, `take`, `grow`).

    A reservation first makes sure of the rows, then claims; both raise before anything has changed. The
    storage holds one row more than `rows`: row 0, scratch.
    """

    name: ClassVar[str]
    decode_cells = 1

    def __init__(self, bounds: PoolBounds, storage: Storage) -> None:
        self.bounds = bounds
        self.storage = storage
        self.cells = Cells(bounds.max_sessions)
        self.generation = 0
        self.refusals = 0
        self.resizes: list[tuple[int, int, Resize]] = []

    # -- counts ---------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        return self.cells.rows

    @property
    def in_use(self) -> int:
        return self.cells.in_use

    @property
    def most_in_use(self) -> int:
        return self.cells.most_in_use

    def counters(self) -> dict[str, int | float]:
        return {"refusals": self.refusals, "resizes": len(self.resizes), "generation": self.generation}

    # -- policy ---------------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        raise NotImplementedError

    def most_rows(self, cells: int) -> int:
        """Most rows that this policy may come to while at most `cells` cells are in use."""
        return self.capacity

    def passing_rows(self, cells: int) -> int:
        """Most old rows that may exist beside new ones while it grows."""
        return 0

    def rows_for(self, needed: int) -> int:
        """Rows to have when `needed` cells must fit; at least `needed`."""
        raise NotImplementedError

    def place(self, slots: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """The free cells for tokens (slot, position), int32; the rows are there."""
        raise NotImplementedError

    def need(self, plan: StepPlan) -> int:
        """Cells that must exist for this plan."""
        return self.cells.in_use + plan.tokens

    # -- verbs ----------------------------------------------------------------------------------------

    def reserve(self, plan: StepPlan) -> np.ndarray:
        """See `musebench.core.protocols.Pool`."""
        needed = self.need(plan)
        if needed > self.capacity:
            self.refusals += 1
            raise PoolFull(plan.tokens, self.capacity - self.cells.in_use, self.capacity)
        if needed > self.cells.rows:
            self.grow(needed)
        return self.take(plan)

    def take(self, plan: StepPlan) -> np.ndarray:
        """Claim the cells of a plan; the rows are there."""
        slots, positions = self.tokens_of(plan)
        cells = self.place(slots, positions)
        self.cells.claim(slots, positions, cells)
        return cells

    def lasting(self, plan: StepPlan) -> int:
        """See `musebench.core.stretch.Lasting`."""
        return (self.cells.rows - self.cells.in_use) // len(plan.decodes)

    def reserve_steps(self, plan: StepPlan, steps: int) -> None:
        """See `musebench.core.stretch.Lasting`."""
        slots = np.tile(plan.decode_slots, steps)
        count = len(plan.decodes)
        positions = np.tile(self.cells.held[plan.decode_slots], steps)
        positions += np.repeat(np.arange(steps, dtype=np.int32), count)
        self.cells.claim(slots, positions, self.place(slots, positions))

    def grow(self, needed: int) -> None:
        """Have at least `needed` rows: as many as the policy wishes, fewer where memory is short."""
        wished = self.rows_for(needed)
        try:
            self.resize(wished)
        except OutOfMemory:
            if wished == needed:
                raise
            self.resize(needed)

    def resize(self, rows: int) -> None:
        done = self.storage.resize(rows + 1, self.cells.rows + 1 if self.cells.rows else 0)
        self.cells.grow(rows)
        self.generation += done.moved
        self.resizes.append((rows + 1, self.storage.bytes, done))

    def tokens_of(self, plan: StepPlan) -> tuple[np.ndarray, np.ndarray]:
        """Slot and position of every token of a plan, int32 [plan.tokens]."""
        held = self.cells.held
        slots = plan.decode_slots
        positions = held[slots]
        if plan.prefills:
            parts = [(piece.sequence.slot, piece.count) for piece in plan.prefills]
            slots = np.concatenate([slots, *(np.full(count, slot, np.int32) for slot, count in parts)])
            runs = (np.arange(held[slot], held[slot] + count, dtype=np.int32) for slot, count in parts)
            positions = np.concatenate([positions, *runs])
        return slots, positions

    def fork(self, source: int, target: int, upto: int) -> None:
        self.cells.fork(source, target, upto)

    def rewind(self, slot: int, to: int) -> None:
        self.cells.rewind(slot, to)

    def release(self, slot: int) -> None:
        self.cells.rewind(slot, 0)

    def take_edits(self) -> tuple[tuple[int, int, np.ndarray], ...]:
        return self.cells.take_edits()
