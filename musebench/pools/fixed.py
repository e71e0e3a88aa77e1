"""`fixed`: every session's whole context is reserved, in one contiguous run, when it is admitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from musebench.core.errors import PoolFull, UsageError
from musebench.core.options import option
from musebench.core.plan import StepPlan
from musebench.core.protocols import PoolBounds, Storage
from musebench.core.sequence import Sequence
from musebench.pools.cell_pool import CellPool


@dataclass(frozen=True)
class FixedOptions:
    sessions: int | None = option(None, "sessions reserved; none: the run's --max-sessions", minimum=1)
    context: int | None = option(
        None, "tokens reserved a session; none: the run's --max-context", unit="tokens", minimum=1
    )


class FixedPool(CellPool):
    """rows = sessions x context, allocated before the first step and never changed.

    A session's position p lies in cell 1 + run x context + p. A run whose cells another session still shares
    (after a fork) is given out again when the last of them lets go.
    """

    name: ClassVar[str] = "fixed"
    Options = FixedOptions
    decode_cells = 0

    def __init__(self, options: FixedOptions, bounds: PoolBounds, storage: Storage) -> None:
        super().__init__(bounds, storage)
        self.sessions = min(options.sessions or bounds.max_sessions, bounds.max_sessions)
        self.context = options.context or bounds.max_context
        rows = self.sessions * self.context
        if bounds.capacity is not None and rows > bounds.capacity:
            raise UsageError(
                f"pool 'fixed' needs {rows:,} rows ({self.sessions:,} sessions x {self.context:,} tokens); "
                f"the capacity is {bounds.capacity:,}; lower --max-sessions or --max-context"
            )
        needed, free = (rows + 1) * storage.cell_bytes, storage.free_bytes()
        if free is not None and needed > free:
            raise UsageError(
                f"pool 'fixed' needs {rows:,} rows ({self.sessions:,} sessions x {self.context:,} tokens) = "
                f"{needed / 2**30:.1f} GiB; {free / 2**30:.1f} GiB is free; lower --max-sessions or "
                "--max-context"
            )
        self._run_of: dict[int, int] = {}
        # Cell of a slot's position 0; 0 where it has no run.
        self._first = np.zeros(bounds.max_sessions + 1, np.int32)

    @property
    def capacity(self) -> int:
        return self.sessions * self.context

    @property
    def room(self) -> int:
        return len(self._free_runs()) * self.context

    def refusal(self, tokens: int) -> str | None:
        if tokens <= self.context:
            return None
        return (
            f"needs {tokens:,} cells; pool 'fixed' reserves {self.context:,} a session; raise --max-context"
        )

    def quote(self, sequence: Sequence) -> int:
        return 0 if sequence.slot in self._run_of else self.context

    def _free_runs(self) -> list[int]:
        taken = set(self._run_of.values())
        return [run for run in range(self.sessions) if run not in taken and not self._shared(run)]

    def _shared(self, run: int) -> bool:
        first = 1 + run * self.context
        return bool(self.cells.rows) and bool(self.cells.owners[first : first + self.context].any())

    def need(self, plan: StepPlan) -> int:
        return self.capacity

    def rows_for(self, needed: int) -> int:
        return self.capacity

    def reserve(self, plan: StepPlan) -> np.ndarray:
        slots, counts = plan.decode_slots, np.ones(len(plan.decodes), np.int32)
        if plan.prefills:
            pieces = np.array([(piece.sequence.slot, piece.count) for piece in plan.prefills], np.int32)
            slots, counts = np.concatenate([slots, pieces[:, 0]]), np.concatenate([counts, pieces[:, 1]])
        longest = int((self.cells.held[slots] + counts).max(initial=0))
        if longest > self.context:
            self.refusals += 1
            raise PoolFull(longest, self.context, self.capacity)
        opening = slots[self._first[slots] == 0].tolist()
        runs = self._free_runs() if opening else []
        if len(opening) > len(runs):
            self.refusals += 1
            raise PoolFull(len(opening) * self.context, len(runs) * self.context, self.capacity)
        for slot, run in zip(opening, runs, strict=False):
            self._run_of[slot] = run
            self._first[slot] = 1 + run * self.context
        try:
            return super().reserve(plan)
        except BaseException:
            for slot in opening:
                self._close(slot)
            raise

    def lasting(self, plan: StepPlan) -> int:
        """See `musebench.core.stretch.Lasting`: to the end of the fullest session's run."""
        if self.cells.forked:  # a cell that a fork still holds would be refused
            return 0
        return int(self.context - self.cells.held[plan.decode_slots].max())

    def place(self, slots: np.ndarray, positions: np.ndarray) -> np.ndarray:
        cells = self._first[slots] + positions
        # After a rewind, the cell of a position may still be a fork's; a token has no other place here.
        shared = int(np.count_nonzero(self.cells.owners[cells]))
        if shared:
            self.refusals += 1
            raise PoolFull(len(cells), len(cells) - shared, self.capacity)
        return cells

    def release(self, slot: int) -> None:
        super().release(slot)
        self._close(slot)

    def _close(self, slot: int) -> None:
        self._run_of.pop(slot, None)
        self._first[slot] = 0
