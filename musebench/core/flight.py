"""A step between its launch and its commit, and the line-up of running sequences."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from musebench.core.errors import NonFiniteLogits
from musebench.core.packing import Packed
from musebench.core.plan import StepPlan
from musebench.core.protocols import StepOutput
from musebench.core.sequence import Phase, Sequence


class Lineup:
    """The running sequences, each list oldest admission first (`musebench.core.protocols.Running`).

    `draining` have all their tokens launched and wait for the last to come back; no plan sees them.
    """

    def __init__(self) -> None:
        self.decoding: tuple[Sequence, ...] = ()
        self.prefilling: tuple[Sequence, ...] = ()
        self.draining: tuple[Sequence, ...] = ()
        self._slots_of: tuple[Sequence, ...] = ()
        self._slots = np.empty(0, np.int32)

    def decode_slots(self) -> np.ndarray:
        """Slots of `decoding`, int32; a running sequence keeps its slot."""
        if self._slots_of is not self.decoding:
            self._slots_of = self.decoding
            self._slots = np.array([sequence.slot for sequence in self.decoding], np.int32)
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

    def drain(self, sequence: Sequence) -> None:
        self.remove(sequence)
        self.draining = (*self.draining, sequence)

    def remove(self, sequence: Sequence) -> None:
        self.decoding = _without(self.decoding, sequence)
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

    `sequences`, `computed` and `lengths` are the state before the launch, in plan order; `slots` and
    `positions` int32 [R] say where the tokens of its logit rows go.
    """

    def __init__(self, plan: StepPlan, step: int, start: float, waiting: int, running: int) -> None:
        self.plan = plan
        self.step = step
        self.start = start
        self.launched = start
        self.waiting = waiting
        self.running = running
        slots = plan.decode_slots
        if plan.prefills:
            more = np.array([piece.sequence.slot for piece in plan.prefills], np.int32)
            slots = np.concatenate([slots, more])
        self._entered = slots
        table = (plan.decodes[0] if plan.decodes else plan.prefills[0].sequence).table
        self.computed = table.computed[slots]
        self.lengths = table.length[slots]
        self.admitted: list[Sequence] = []
        self.ending = False  # whether it makes anybody's last token
        self.rows = self.in_use = self.generation = 0
        self.attended_cells = int(self.computed.sum(dtype=np.int64)) + plan.tokens
        self.attended_pairs = 0
        self.padded_tokens = 0
        self.programs: dict[str, int] = {}
        self.slots = self.positions = np.empty(0, np.int32)
        self.device_seconds: float | None = None
        self.margins: np.ndarray | None = None
        self._packed: list[Packed] = []
        self._outputs: list[StepOutput] = []
        self._dropped: set[int] = set()

    @cached_property
    def sequences(self) -> list[Sequence]:
        """Those of the plan, in its order."""
        return self.plan.sequences()

    def add(self, packed: Packed, output: StepOutput) -> None:
        self._packed.append(packed)
        self._outputs.append(output)
        program = packed.batch.program
        self.programs[program] = self.programs.get(program, 0) + 1
        self.padded_tokens += packed.batch.padded_tokens
        self.attended_pairs += packed.batch.contexts_sum

    def close(self) -> None:
        """All forwards are launched: know where their tokens go."""
        if len(self._packed) == 1:
            self.slots, self.positions = self._packed[0].slots, self._packed[0].positions
        else:
            self.slots = np.concatenate([packed.slots for packed in self._packed])
            self.positions = np.concatenate([packed.positions for packed in self._packed])

    def wait(self) -> np.ndarray:
        """Sampled token ids int32 [R], when the device is done.

        Raises:
            NonFiniteLogits: of rows that count; names their requests.
        """
        if len(self._outputs) == 1:  # as nearly always
            (output,), (packed,) = self._outputs, self._packed
            tokens = self._tokens(packed, output)
            if len(tokens) != packed.batch.rows:
                raise RuntimeError(f"{len(tokens)} tokens came back for {packed.batch.rows} logit rows")
            self.device_seconds, self.margins = output.device_seconds, output.margins
            return tokens
        parts = [
            self._tokens(packed, output) for packed, output in zip(self._packed, self._outputs, strict=True)
        ]
        for packed, part in zip(self._packed, parts, strict=True):
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
            blamed = [
                sequence
                for slot, sequence in zip(self._entered.tolist(), self.sequences, strict=True)
                if slot in slots
            ]
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
        wanting = set(self.slots[len(self.plan.decodes) :].tolist())
        return [piece.sequence for piece in self.plan.prefills if piece.sequence.slot in wanting]
