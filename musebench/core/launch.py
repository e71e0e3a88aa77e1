"""From a plan to a step in flight, and back where something fails."""

from __future__ import annotations

import operator
from collections.abc import Callable
from collections.abc import Sequence as Ordered
from dataclasses import replace

import numpy as np

from musebench.core.admission import Admission
from musebench.core.errors import PoolFull, StepFailed
from musebench.core.flight import Flight
from musebench.core.packing import Packed
from musebench.core.plan import StepPlan
from musebench.core.protocols import Executor, Pool
from musebench.core.recorder import GrowthRecord, Recorder
from musebench.core.sequence import Sequence, SequenceTable

Packer = Callable[..., Packed]
"""`musebench.core.packing.pack`, or a function of the same arguments that leaves contents out."""

NAMED = 4
"""Most requests that a failure names one by one."""


class Launcher:
    """Reserves a plan's cells, launches it, and undoes launches that failed: after each `StepFailed` counts,
    lengths, cells and line-up are as before.

    `steps` counts those in flight or committed: the row that the next one takes in the record.
    """

    def __init__(
        self,
        pool: Pool,
        executor: Executor,
        packer: Packer,
        table: SequenceTable,
        admission: Admission,
        recorder: Recorder,
    ) -> None:
        self.steps = 0
        self._pool = pool
        self._executor = executor
        self._packer = packer
        self._table = table
        self._admission = admission
        self._recorder = recorder
        self._resizes_seen = len(pool.resizes)
        self._edits: tuple[tuple[int, int, np.ndarray], ...] = ()  # of the cell table, not yet sent

    def reserve(self, plan: StepPlan, admitted: list[Sequence]) -> np.ndarray:
        """A cell for every token of a plan, int32 [plan.tokens]; without it `admitted` are dismissed.

        Raises:
            PoolFull: there are too few.
            StepFailed: growing failed.
        """
        try:
            return self._pool.reserve(plan)
        except PoolFull:
            self._admission.dismiss(admitted)
            raise
        except Exception as error:
            self._admission.dismiss(admitted)
            self._recorder.failed_steps += 1
            raise self._failure(self.steps, plan, error, reserving=True) from error

    def launch(self, flight: Flight, cells: np.ndarray, now: float) -> None:
        """Pack and execute a step that has its `cells`, `now` (seconds of the run), and line its sequences
        up.

        Raises:
            StepFailed: something raised; the launch is undone.
        """
        pool = self._pool
        try:
            flight.rows, flight.in_use = operator.index(pool.rows) + 1, operator.index(pool.in_use)
            flight.generation = operator.index(pool.generation)
            self._note_growths()
            self._execute(flight, cells)
            self._admission.line_up(flight, now)
        except Exception as error:
            raise self.undo([flight], error) from error
        self.steps += 1

    def _execute(self, flight: Flight, cells: np.ndarray) -> None:
        table, at = self._table, 0
        # Those of a launch that failed may not have reached the device; sent twice, they say the same.
        edits = self._edits = (*self._edits, *self._pool.take_edits())
        for forward in self._executor.cut(flight.plan):
            count = forward.plan.tokens
            packed = self._packer(forward, table, cells[at : at + count], flight.generation, edits)
            edits = ()
            at += count
            flight.add(packed, self._executor.execute(packed.batch))
            self._edits = ()
            table.launched(forward.plan, packed)
        if at != len(cells):
            raise RuntimeError(
                f"executor {self._executor.name!r} cut {len(cells)} tokens into forwards of {at}"
            )

    def undo(self, flights: Ordered[Flight], error: Exception) -> StepFailed:
        """Roll back the first of `flights`, which raised `error`, and those behind it; its failure."""
        for flight in reversed(flights):
            self._rollback(flight)
        first = flights[0]
        self._take_back_row(first.step)
        return self._failure(first.step, first.plan, error)

    def _rollback(self, flight: Flight) -> None:
        self._recorder.failed_steps += 1
        self._table.undo(flight)
        for sequence in flight.sequences:
            if sequence.slot:
                self._pool.rewind(sequence.slot, sequence.computed)
        self._admission.take_back(flight)

    def _note_growths(self) -> None:
        for rows, held, resize in self._pool.resizes[self._resizes_seen :]:
            self._recorder.growths.append(GrowthRecord(self.steps, rows, held, resize))
        self._resizes_seen = len(self._pool.resizes)

    def _take_back_row(self, step: int) -> None:
        """Steps from `step` on were not committed: the next one takes that row, and with it the growths that
        they caused, which stay."""
        self.steps = step
        growths = self._recorder.growths
        for index, growth in enumerate(growths):
            if growth.step > step:
                growths[index] = replace(growth, step=step)

    def _failure(self, step: int, plan: StepPlan, error: Exception, reserving: bool = False) -> StepFailed:
        """The failure of a step: of all that was in it, or of those whom the error blames."""
        prefill = plan.tokens - len(plan.decodes)
        everybody = plan.sequences()
        names = ", ".join(repr(sequence.request.id) for sequence in everybody[:NAMED])
        more = f" and {len(everybody) - NAMED:,} more" if len(everybody) > NAMED else ""
        return StepFailed(
            step,
            getattr(error, "sessions", None) or [sequence.session for sequence in everybody],
            error,
            f"executor {self._executor.name!r}, {len(plan.decodes):,} decodes and {prefill:,} prefill "
            f"tokens, of requests {names}{more}",
            prefill,
            plan.slices,
            reserving,
        )
