"""Blocks of cells that nobody reads: a simulated run counts them, and names prefixes as its requests do."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from musebench.core.cells import Cells
from musebench.core.errors import UnsupportedError
from musebench.core.plan import StepPlan
from musebench.core.protocols import PoolBounds, Storage
from musebench_paged.names import GivenNames
from musebench_paged.options import PagedOptions

if TYPE_CHECKING:
    from musebench_paged.pool import PagedPool


class BlockCounts(Cells):
    """`Cells` that knows how many each slot holds, and not which."""

    def grow(self, rows: int) -> None:
        self.rows = rows

    def add(self, cells: int) -> None:
        """`cells` more (or fewer) that somebody owns."""
        self.in_use += cells
        self.most_in_use = max(self.most_in_use, self.in_use)


class CountsOnly:
    """Put before `PagedPool`: the same blocks to the same sequences, without a cell table. Only whole blocks
    are shared, so that a cell's owners are its block's holders, but for those who rewound to inside of it:
    how far they reach is kept by block."""

    cells: BlockCounts

    def __init__(self, options: PagedOptions, bounds: PoolBounds, storage: Storage) -> None:
        super().__init__(options, bounds, storage)  # type: ignore[call-arg]
        self.cells = BlockCounts(bounds.max_sessions)
        self.naming = GivenNames(options.block)
        self._none = np.zeros(1, np.int32)
        self._cuts: dict[int, list[int]] = {}  # cells left to each holder that has not the whole block

    def take(self, plan: StepPlan) -> np.ndarray:
        """Cell 0 for every token."""
        pool, held, slots = cast("PagedPool", self), self.cells.held, plan.decode_slots
        if len(slots):
            pool.open(slots, held[slots])
            held[slots] += 1
        for piece in plan.prefills:
            slot = piece.sequence.slot
            start = int(held[slot])
            pool.fill(slot, start, start + piece.count)
            held[slot] += piece.count
        self.cells.add(plan.tokens)
        pool.claimed(plan)
        if plan.tokens > len(self._none):
            self._none = np.zeros(2 * plan.tokens, np.int32)
        return self._none[: plan.tokens]

    def reserve_steps(self, plan: StepPlan, steps: int) -> None:
        """See `musebench.core.stretch.Lasting`."""
        pool, held, slots = cast("PagedPool", self), self.cells.held, plan.decode_slots
        starts, ends = held[slots], held[slots] + steps
        opening = -(-ends // pool.block) > -(-starts // pool.block)
        for slot, start in zip(slots[opening].tolist(), starts[opening].tolist(), strict=True):
            pool.fill(slot, start, start + steps)
        held[slots] = ends
        self.cells.add(len(slots) * steps)
        pool.claimed(plan)

    def share(self, slot: int, blocks: list[int], revived: int) -> None:
        pool = cast("PagedPool", self)
        self.cells.held[slot] = len(blocks) * pool.block
        again = revived * pool.block
        for block in self._cuts.keys() & set(blocks):
            cuts = self._cuts[block]
            if len(cuts) == pool.blocks.holders(block) - 1:  # before this slot nobody had all of it
                again += pool.block - max(cuts)
        self.cells.add(again)

    def leave(self, block: int, cells: int, keep: bool) -> int:
        pool = cast("PagedPool", self)
        if block not in self._cuts:
            return cells if pool.blocks.let_go(block, keep) else 0
        before, cuts = self._reach(block), self._cuts[block]
        if cells < pool.block:
            cuts.remove(cells)
        pool.blocks.let_go(block, keep)
        after = self._reach(block)
        if not cuts:
            del self._cuts[block]
        return before - after

    def cut(self, block: int, cells: int, left: int) -> int:
        pool = cast("PagedPool", self)
        if pool.blocks.holders(block) == 1:
            self._cuts.pop(block, None)
            return cells - left
        cuts = self._cuts.setdefault(block, [])
        before = self._reach(block)
        if cells < pool.block:
            cuts.remove(cells)
        cuts.append(left)
        self.cells.forked = True  # a step may open blocks in the middle of one
        return before - self._reach(block)

    def _reach(self, block: int) -> int:
        """Cells of a block in `_cuts` that somebody has."""
        pool, cuts = cast("PagedPool", self), self._cuts[block]
        return pool.block if len(cuts) < pool.blocks.holders(block) else max(cuts, default=0)

    def give_back(self, slot: int, to: int, freed: int) -> None:
        self.cells.held[slot] = to
        self.cells.add(-freed)

    def fork(self, source: int, target: int, upto: int) -> None:
        raise UnsupportedError("cells that are only counted cannot be shared in the middle of a block")
