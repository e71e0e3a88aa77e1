"""A step between its launch and its commit."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from musebench.core.errors import NonFiniteLogits
from musebench.core.packing import Packed
from musebench.core.plan import StepPlan
from musebench.core.protocols import StepOutput
from musebench.core.sequence import Sequence
from musebench.core.steplog import StepCounts


class Flight:
    """A launched step: what rolling it back needs, and what committing it needs.

    It is made before the launch, and reads what its sequences' table holds then; `ending` are those whose
    last token it makes.
    """

    def __init__(self, plan: StepPlan, step: int, start: float, waiting: int, running: int) -> None:
        self.plan = plan
        self.step = step
        self.start = start
        self.launched = start
        self.waiting = waiting
        self.running = running
        table = (plan.decodes[0] if plan.decodes else plan.prefills[0].sequence).table
        self.before = table.before(plan)
        self.admitted: list[Sequence] = []
        self.ending: list[Sequence] = []
        self.rows = self.in_use = self.generation = 0
        self.attended_cells = table.attended(plan)
        self.attended_pairs = 0
        self.padded_tokens = 0
        self.logit_rows = 0
        self.programs: dict[str, int] = {}
        self.device_seconds: float | None = None
        self.margins: np.ndarray | None = None
        self.packed: list[Packed] = []
        self._outputs: list[StepOutput] = []
        self._dropped: set[int] = set()

    @cached_property
    def sequences(self) -> list[Sequence]:
        """Those of the plan, in its order."""
        return self.plan.sequences()

    def add(self, packed: Packed, output: StepOutput) -> None:
        self.packed.append(packed)
        self._outputs.append(output)
        batch = packed.batch
        self.programs[batch.program] = self.programs.get(batch.program, 0) + 1
        self.padded_tokens += batch.padded_tokens
        self.attended_pairs += batch.contexts_sum
        self.logit_rows += batch.rows

    @cached_property
    def slots(self) -> np.ndarray:
        """Whose tokens its logit rows make, int32 [R]; once all forwards are launched."""
        if len(self.packed) == 1:
            return self.packed[0].slots
        return np.concatenate([packed.slots for packed in self.packed])

    @cached_property
    def positions(self) -> np.ndarray:
        """Their positions, int32 [R]."""
        if len(self.packed) == 1:
            return self.packed[0].positions
        return np.concatenate([packed.positions for packed in self.packed])

    def wait(self) -> np.ndarray:
        """Sampled token ids int32 [R], when the device is done.

        Raises:
            NonFiniteLogits: of rows that count; names their requests.
        """
        if len(self._outputs) == 1:  # as nearly always
            (output,), (packed,) = self._outputs, self.packed
            tokens = self._tokens(packed, output)
            if len(tokens) != packed.batch.rows:
                raise RuntimeError(f"{len(tokens)} tokens came back for {packed.batch.rows} logit rows")
            self.device_seconds, self.margins = output.device_seconds, output.margins
            return tokens
        parts = [
            self._tokens(packed, output) for packed, output in zip(self.packed, self._outputs, strict=True)
        ]
        for packed, part in zip(self.packed, parts, strict=True):
            if len(part) != packed.batch.rows:
                raise RuntimeError(f"{len(part)} tokens came back for {packed.batch.rows} logit rows")
        seconds = [output.device_seconds for output in self._outputs]
        if all(value is not None for value in seconds):
            self.device_seconds = float(sum(value for value in seconds if value is not None))
        margins = [output.margins for output in self._outputs]
        if all(margin is not None for margin in margins):
            self.margins = np.concatenate([margin for margin in margins if margin is not None])
        return np.concatenate(parts)

    def _tokens(self, packed: Packed, output: StepOutput) -> np.ndarray:
        try:
            return output.wait()
        except NonFiniteLogits as error:
            slots = set(packed.slots[error.rows].tolist()) - self._dropped
            if not slots:  # of sequences that ended meanwhile: nobody reads them
                return np.asarray(error.tokens, np.int32)
            blamed = [sequence for sequence in self.sequences if sequence.slot in slots]
            raise error.blame(
                [sequence.session for sequence in blamed], [sequence.request.id for sequence in blamed]
            ) from None

    def drop(self, slot: int) -> None:
        """Ignore what this step made for a slot whose sequence ended before."""
        self._dropped.add(slot)

    def kept(self) -> np.ndarray | None:
        """Which rows count, bool [R]; None: all."""
        if not self._dropped:
            return None
        return ~np.isin(self.slots, list(self._dropped))

    def first_tokens(self) -> list[Sequence]:
        """Sequences whose prefill ended in this step."""
        if not self.plan.prefills:
            return []
        return [sequence for packed in self.packed for sequence in packed.first]

    def counts(self) -> StepCounts:
        """What is counted of it."""
        plan, decodes = self.plan, len(self.plan.decodes)
        return StepCounts(
            decodes, plan.tokens - decodes, self.padded_tokens, plan.slices, self.rows, self.in_use,
            self.generation, self.waiting, self.running, self.attended_cells, self.attended_pairs,
            self.logit_rows,
        )  # fmt: skip
