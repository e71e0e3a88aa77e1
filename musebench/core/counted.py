"""What is kept of tokens and cells when nobody reads them: how many there are, and which steps made them."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Ordered

import numpy as np

from musebench.core.cells import Cells
from musebench.core.errors import UnsupportedError
from musebench.core.sequence import SequenceTable, Tokens


class StepRuns:
    """Rows of steps, ascending, as runs of neighbours: (first, end) each."""

    __slots__ = ("runs",)

    def __init__(self, runs: Iterable[tuple[int, int]] = ()) -> None:
        self.runs = tuple(runs)

    def __len__(self) -> int:
        return sum(end - first for first, end in self.runs)

    def __getitem__(self, place: int) -> int:
        """The last row; no other place is asked for."""
        if place != -1 or not self.runs:
            raise IndexError(place)
        return self.runs[-1][1] - 1


def expand(all_runs: Ordered[StepRuns]) -> np.ndarray:
    """The rows of many, one after the other, int64."""
    flat = [run for one in all_runs for run in one.runs]
    bounds = np.array(flat, np.int64).reshape(len(flat), 2)
    counts = bounds[:, 1] - bounds[:, 0]
    before = np.cumsum(counts) - counts
    return np.repeat(bounds[:, 0] - before, counts) + np.arange(int(counts.sum()))


class CountedTable(SequenceTable):
    """A `SequenceTable` without token ids: `tokens` and `token_step` have no columns.

    Of each slot it knows how many generated tokens came back, and which steps made them.
    """

    width = 0

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self.tokens = self.token_step = np.empty((slots + 1, 0), np.int32)
        self._known = np.zeros(slots + 1, np.int64)
        # The run that a slot's last token lies in: its first row, and the row after its last.
        self._first = np.zeros(slots + 1, np.int64)
        self._next = np.zeros(slots + 1, np.int64)
        self._closed: list[list[tuple[int, int]]] = [[] for _ in range(slots + 1)]

    def _widen_tokens(self, width: int) -> None:
        """There are none."""

    def put(self, slot: int, prompt: Ordered[int], rest: Tokens | None, steps: Tokens | None) -> None:
        self._closed[slot] = list(steps.runs) if isinstance(steps, StepRuns) else []
        self._known[slot] = 0 if rest is None else len(rest)
        self._first[slot] = self._next[slot] = -1

    def expect(self, slots: np.ndarray, positions: np.ndarray) -> None:
        """What is in flight is what `length` counts and nobody has landed."""

    def land(self, slots: np.ndarray, positions: np.ndarray, tokens: np.ndarray, row: int) -> None:
        self.land_steps(slots, positions, 1, 0, row)

    def land_steps(self, slots: np.ndarray, first: np.ndarray, steps: int, token: int, row: int) -> None:
        self._known[slots] += steps
        follows = self._next[slots]
        if np.count_nonzero(follows == row) < len(slots):
            for slot, end in zip(slots.tolist(), follows.tolist(), strict=True):
                if end != row:
                    if end > (start := int(self._first[slot])):
                        self._closed[slot].append((start, end))
                    self._first[slot] = row
        self._next[slots] = row + steps

    def known(self, slot: int, prompt_tokens: int) -> int:
        return int(self._known[slot])

    def take(self, slot: int, prompt_tokens: int) -> tuple[range, StepRuns]:
        runs = self._closed[slot]
        if (end := int(self._next[slot])) > (start := int(self._first[slot])):
            runs.append((start, end))
        return range(int(self._known[slot])), StepRuns(runs)


class CellCounts(Cells):
    """`Cells` that knows how many each slot holds, and not which. They cannot be shared."""

    def grow(self, rows: int) -> None:
        self.rows = rows

    def count(self, slots: np.ndarray, each: int) -> None:
        """`each` more cells for all of `slots`."""
        self.held[slots] += each
        self.in_use += len(slots) * each
        self.most_in_use = max(self.most_in_use, self.in_use)

    def count_one(self, slot: int, more: int) -> None:
        """`more` cells for one slot."""
        self.held[slot] += more
        self.in_use += more
        self.most_in_use = max(self.most_in_use, self.in_use)

    def fork(self, source: int, target: int, upto: int) -> None:
        raise UnsupportedError("cells that are only counted cannot be shared")

    def rewind(self, slot: int, to: int) -> None:
        held = int(self.held[slot])
        if not 0 <= to <= held:
            raise ValueError(f"slot {slot} holds {held} cells; it cannot be rewound to {to}")
        self.in_use -= held - to
        self.held[slot] = to
