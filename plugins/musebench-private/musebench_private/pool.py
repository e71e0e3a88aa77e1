"""`private`: every sequence's cells lie in one run of its own, which doubles when it is full."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from musebench.core.errors import OutOfMemory, PoolFull, UnsupportedError
from musebench.core.options import option
from musebench.core.plan import StepPlan
from musebench.core.protocols import PoolBounds, RowRule, Storage
from musebench.pools.geometric import GeometricOptions
from musebench.pools.growing import GrowingPool
from musebench_private.runs import Run, first_fit, neighbours


@dataclass(frozen=True)
class PrivateOptions(GeometricOptions):
    run: int = option(64, "cells of a sequence's first run", unit="cells", minimum=1)


class PrivatePool(GrowingPool):
    """A sequence's position p lies in cell first + p - base of its run. A full run is extended where cells
    behind it are free; else its cells move to a free run of twice the length; where none is free, rows grow
    by the factor; and where they cannot, or where rows suffice for every run beside the one that it leaves,
    all runs move together. So a plan is refused only when the cells that are free, wherever they lie, do not
    suffice, and rows are at most factor x (3 x the cells needed + sessions x run).

    After a fork the shared cells stay where they are (base is how many), and the run holds what follows.
    """

    name: ClassVar[str] = "private"
    Options = PrivateOptions

    def __init__(self, options: PrivateOptions, bounds: PoolBounds, storage: Storage) -> None:
        if not hasattr(storage, "move"):
            raise UnsupportedError(
                f"pool 'private' moves rows, and {type(storage).__name__} cannot; use --pool geometric"
            )
        self.options = options
        self._mover: Any = storage
        super().__init__(bounds, storage, options.capacity)
        self._runs: dict[int, Run] = {}
        self._first = np.zeros(bounds.max_sessions + 1, np.int32)  # cell of position 0, were it in the run
        self._counts = {"relocations": 0, "extensions": 0, "compactions": 0, "moved cells": 0}
        self._moved_bytes = 0
        self._most_reserved = 0

    def affordable(self, free_bytes: int) -> int:
        return int(free_bytes / self.storage.cell_bytes / (1 + 1 / self.options.factor)) - 1

    def rows_for(self, needed: int) -> int:
        wished = max(needed, self.options.start, int(self.cells.rows * self.options.factor))
        return min(self._capacity, wished)

    @property
    def row_rule(self) -> RowRule:
        """See `_enough`, times the factor."""
        factor = self.options.factor
        return RowRule(3 * factor, self.options.start, math.ceil(factor * self._enough(0)))

    def _enough(self, needed: int) -> int:
        """Rows that hold `needed` cells in runs without growing: a run that is left is full, the one that it
        is left for has at most twice its length, or is a first one."""
        return 3 * needed + self.bounds.max_sessions * self.options.run

    def most_rows(self, cells: int) -> int:
        return min(self._capacity, self.row_rule.most(cells))

    def passing_rows(self, cells: int) -> int:
        return min(self._capacity, self._enough(cells))

    def counters(self) -> dict[str, int | float]:
        own = {"moved bytes": self._moved_bytes, "most cells in runs": self._most_reserved}
        return {**super().counters(), **self._counts, **own}

    # -- reservations ---------------------------------------------------------------------------------

    def reserve(self, plan: StepPlan) -> np.ndarray:
        """See `musebench.core.protocols.Pool`."""
        needed = self.need(plan)
        if needed > self.capacity:
            self.refusals += 1
            raise PoolFull(plan.tokens, self.capacity - self.cells.in_use, self.capacity)
        wants = {int(slot): 1 for slot in plan.decode_slots}
        for piece in plan.prefills:
            slot = piece.sequence.slot
            wants[slot] = wants.get(slot, 0) + piece.count
        short = {slot: count for slot, count in wants.items() if not self._holds(slot, count)}
        if short:
            self._make_runs(short, wants, needed)
        return self.take(plan)

    def place(self, slots: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return self._first[slots] + positions

    def lasting(self, plan: StepPlan) -> int:
        """See `musebench.core.stretch.Lasting`: to the end of the fullest run."""
        if self.cells.forked:
            return 0
        held = self.cells.held
        return min(
            (self._runs[slot].end - int(self._first[slot] + held[slot]) if slot in self._runs else 0)
            for slot in plan.decode_slots.tolist()
        )

    def rewind(self, slot: int, to: int) -> None:
        super().rewind(slot, to)
        if not self.cells.held[
            slot
        ]:  # its next cells may be another's, shared: a run has to begin behind them
            self._runs.pop(slot, None)

    def release(self, slot: int) -> None:
        super().release(slot)
        self._runs.pop(slot, None)

    # -- runs -----------------------------------------------------------------------------------------

    def _holds(self, slot: int, count: int) -> bool:
        """Whether the next `count` tokens of a slot have free cells in its run."""
        run, held = self._runs.get(slot), int(self.cells.held[slot])
        if run is None or held < run.base:
            return False
        first = run.first + held - run.base
        return first + count <= run.end and not self.cells.owners[first : first + count].any()

    def _make_runs(self, short: dict[int, int], wants: dict[int, int], needed: int) -> None:
        made = self._fitted(short)
        enough = min(self._capacity, self._enough(needed))
        if made is None and self.cells.rows < enough:
            more = sum(self._length(slot, count) for slot, count in short.items())
            try:
                self.grow(max(min(self.cells.rows + more, enough), needed))
            except (OutOfMemory, PoolFull):
                if needed > self.cells.rows:
                    raise
            made = self._fitted(short)
        if made is None:
            self._compact(wants)
        else:
            for slot, run in made.items():
                self._give(slot, run)
        reserved = sum(run.length for run in self._runs.values())
        self._most_reserved = max(self._most_reserved, reserved)

    def _length(self, slot: int, count: int) -> int:
        """A run's length for what a slot has of its own and `count` more: a power of two times the first."""
        length, cells = self.options.run, int(self.cells.held[slot]) - self._shared(slot) + count
        while length < cells:
            length *= 2
        return min(length, self._capacity)

    def _shared(self, slot: int) -> int:
        """How many of a slot's first cells others own too; they are always its first."""
        cells = self.cells.table[slot, : self.cells.held[slot]]
        return int(np.count_nonzero(self.cells.owners[cells] > 1))

    def _fitted(self, short: dict[int, int]) -> dict[int, Run] | None:
        """Runs for the slots that need one, within the rows; None where they do not all fit."""
        busy = self.cells.owners > 0
        for run in self._runs.values():
            busy[run.first : run.end] = True
        made: dict[int, Run] = {}
        for slot, count in short.items():
            length = self._length(slot, count)
            run = self._extended(slot, count, length, busy)
            if run is None:
                first = first_fit(busy, length)
                if first is None:
                    return None
                run = Run(first, length, self._shared(slot))
            busy[run.first : run.end] = True
            made[slot] = run
        return made

    def _extended(self, slot: int, count: int, length: int, busy: np.ndarray) -> Run | None:
        """A slot's run with the cells behind it, as many as are wanted."""
        run, held = self._runs.get(slot), int(self.cells.held[slot])
        if run is None or held < run.base or self.cells.owners[run.first + held - run.base : run.end].any():
            return None
        end = run.first + max(length, held - run.base + count)
        if end > len(busy) or busy[run.end : end].any():
            return None
        return Run(run.first, end - run.first, run.base)

    def _give(self, slot: int, run: Run) -> None:
        """Let a slot have a run; what it alone owns moves there, if it is not there."""
        before = self._runs.get(slot)
        if before is not None and (before.first, before.base) == (run.first, run.base):
            self._counts["extensions"] += 1
        else:
            sources = self.cells.table[slot, run.base : self.cells.held[slot]].copy()
            if len(sources):
                self._counts["relocations"] += 1
                targets = run.first + np.arange(len(sources), dtype=np.int32)
                self._move(neighbours(sources, targets), sources, targets)
        self._runs[slot] = run
        self._first[slot] = run.first - run.base

    def _move(self, copies: list[tuple[int, int, int]], sources: np.ndarray, targets: np.ndarray) -> None:
        self._moved_bytes += self._mover.move(copies)
        self._counts["moved cells"] += sum(count for _, _, count in copies)
        self.cells.move(sources, targets)

    def _compact(self, wants: dict[int, int]) -> None:
        """Move everything together, each run with room for what this plan adds to it and no more."""
        self._counts["compactions"] += 1
        owned = np.flatnonzero(self.cells.owners[1:]).astype(np.int32) + 1
        starts, fresh = {}, []
        for slot in {**self._runs, **wants}:
            run, held = self._runs.get(slot), int(self.cells.held[slot])
            # Without a cell of its own there is no end to keep room behind: a run like a new one.
            kept = run is not None and held > run.base
            if run is not None and kept:
                kept = not self.cells.owners[run.first + held - run.base : run.end].any()
            if run is not None and kept:
                starts[run.first + held - run.base] = slot
            else:
                self._runs.pop(slot, None)
                fresh += [slot] if slot in wants else []
        packed = np.arange(1, len(owned) + 1, dtype=np.int32)
        # Room is left behind the last cell of each run: before the first owned cell at or after its end.
        room = np.zeros(len(owned) + 1, np.int64)
        for end, slot in starts.items():
            room[int(np.searchsorted(owned, end))] += wants.get(slot, 0)
        final = (packed + np.cumsum(room)[:-1]).astype(np.int32)
        left = neighbours(owned, packed)
        right = neighbours(packed, final)[::-1]
        number = {int(old): int(new) for old, new in zip(owned, final, strict=True)}
        runs: dict[int, Run] = {}
        for slot in starts.values():
            run, held = self._runs[slot], int(self.cells.held[slot])
            runs[slot] = Run(number[run.first], held - run.base + wants.get(slot, 0), run.base)
        self._move(left + right, owned, final)
        # Runs without a cell of their own come behind everything.
        at = 1 + len(owned) + sum(wants[slot] for slot in wants if slot in runs)
        for slot in fresh:
            runs[slot] = Run(at, wants[slot], int(self.cells.held[slot]))
            at += wants[slot]
        self._runs = runs
        for slot, run in runs.items():
            self._first[slot] = run.first - run.base
