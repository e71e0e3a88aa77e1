"""The line-up of running sequences."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from musebench.core.plan import slots_of_all
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
