"""A step between its launch and its commit, and the line-up of running sequences."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from musebench.core.errors import NonFiniteLogits
from musebench.core.packing import Packed
from musebench.core.plan import StepPlan, slots_of_all
from musebench.core.protocols import StepOutput
from musebench.core.sequence import Phase, Sequence, SequenceTable


class Lineup:
    """The running sequences, each list oldest admission first (`musebench.core.protocols.Running`).

    `draining` have all their tokens launched and wait for the last to come back; no plan sees them.
    """

    def __init__(self, table: SequenceTable) -> None:
        self._table = table
        self.decoding: tuple[Sequence, ...] = ()
        self.prefilling: tuple[Sequence, ...] = ()
        self.draining: tuple[Sequence, ...] = ()
        self._slots_of: tuple[Sequence, ...] = ()
        self._slots = np.empty(0, np.int32)

    def slots_of(self, decoding: tuple[Sequence, ...]) -> np.ndarray:
        """Slots of `decoding`, int32, which are known while it is the same; a running sequence keeps its
        slot."""
        if self._slots_of is not decoding:
            self._slots_of, self._slots = decoding, slots_of_all(decoding)
        return self._slots

    def __len__(self) -> int:
        """All that hold a slot, draining ones too."""
        return len(self.decoding) + len(self.prefilling) + len(self.draining)

    def __bool__(self) -> bool:
        """Whether anything is left to plan."""
        return bool(self.decoding or self.prefilling)

    def all(self) -> Iterator[Sequence]:
        yield from self.decoding
        yield from self.prefilling
        yield from self.draining

    def newest(self) -> Sequence | None:
        """The sequence admitted last."""
        return max((*self.decoding, *self.prefilling), key=_age, default=None)

    def add(self, sequence: Sequence) -> None:
        self.prefilling = _with(self.prefilling, sequence)

    def to_decode(self, sequence: Sequence) -> None:
        self.prefilling = _without(self.prefilling, sequence)
        self.decoding = _with(self.decoding, sequence)
        self._table.join(sequence.slot)

    def drain(self, sequence: Sequence) -> None:
        self.remove(sequence)
        self.draining = (*self.draining, sequence)

    def remove(self, sequence: Sequence) -> None:
        decoding = _without(self.decoding, sequence)
        if decoding is not self.decoding:
            self.decoding = decoding
            self._table.part(sequence.slot)
        self.prefilling = _without(self.prefilling, sequence)
        self.draining = _without(self.draining, sequence)

    def restore(self, sequence: Sequence) -> None:
        """Put a sequence whose step was rolled back where its counts say."""
        self.remove(sequence)
        self.add(sequence)
        sequence.phase = Phase.PREFILL
        if sequence.remaining == 1 and sequence.generated > 0:
            sequence.phase = Phase.DECODE
            self.to_decode(sequence)


def _age(sequence: Sequence) -> int:
    return sequence.admitted


def _with(line: tuple[Sequence, ...], sequence: Sequence) -> tuple[Sequence, ...]:
    if not line or line[-1].admitted < sequence.admitted:  # mostly
        return (*line, sequence)
    return tuple(sorted((*line, sequence), key=_age))


def _without(line: tuple[Sequence, ...], sequence: Sequence) -> tuple[Sequence, ...]:
    if sequence not in line:
        return line
    place = line.index(sequence)
    return line[:place] + line[place + 1 :]


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
