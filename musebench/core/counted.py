"""What is kept of tokens and cells when nobody reads them: how many there are, and which steps made them."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Ordered
from typing import TYPE_CHECKING

import numpy as np

from musebench.core.cells import Cells
from musebench.core.errors import UnsupportedError
from musebench.core.sequence import Sequence
from musebench.core.table import NOWHERE, Contexts, SequenceTable

if TYPE_CHECKING:
    from musebench.core.flight import Flight
    from musebench.core.packing import Packed
    from musebench.core.plan import StepPlan
    from musebench.core.request import Request

NEVER = 2**62
"""Tokens that no sequence has."""


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
    """A `SequenceTable` without tokens and without columns: counts of each slot, and of the line.

    The line are the slots that decode (`join`, `part`). A step in which all of it decodes moves one counter
    and no slot's number: of a slot in the line, `_offset` is its length less the decodes that the line had
    made, and when it will be full is known when it joins. Which steps made its tokens follows from the line's
    decodes that it took part in.

    Nobody reads a token: a sequence ends at its limit, or where `stop_after` says with how many tokens of its
    own a request stops. As with a token that is read, that is not seen before the step that makes it is back.
    """

    def __init__(self, slots: int, stop_after: Callable[[Request], int] | None = None) -> None:
        self.slots = slots
        self.stops = stop_after is not None
        self._stop_after = stop_after
        rows = slots + 1
        self._sequences: list[Sequence | None] = [None] * rows
        self._length = [0] * rows  # of slots outside the line
        self._computed = [0] * rows
        self._limit = [0] * rows
        self._stop = [NEVER] * rows  # how many tokens a sequence that stops has
        self._known = [0] * rows  # tokens that came back, those of the line's decodes left out
        self._runs: list[list[tuple[int, int]]] = [[] for _ in range(rows)]  # rows of their steps
        self._shared: list[list[tuple[int, int]]] = [[] for _ in range(rows)]  # the line's decodes it was in
        # The line.
        self._joined = [-1] * rows  # its decodes when the slot joined; -1: the slot is not in it
        self._offset = [0] * rows
        self._members = 0
        self._offsets = 0  # their sum
        # Heaps of the line's decodes at which a slot is full or makes the token that it stops at: decodes,
        # slot, offset.
        self._full: list[tuple[int, int, int]] = []
        self._stopped: list[tuple[int, int, int]] = []
        self._stopping: list[Sequence] = []  # that token is launched, and has not come back
        self._decodes = 0  # launched
        self._landed = 0  # of these
        # Runs of decodes that landed in neighbouring rows: their first decodes, and these decodes' rows.
        self._run_decodes = [0]
        self._run_rows = [0]

    # -- one slot -------------------------------------------------------------------------------------

    def enter(self, slot: int, sequence: Sequence) -> None:
        rest, steps = sequence.rest, sequence.rest_steps
        self._sequences[slot] = sequence
        self._length[slot] = sequence.length
        self._computed[slot] = 0
        self._limit[slot] = sequence.limit
        if self._stop_after is not None:
            self._stop[slot] = sequence.prompt_tokens + self._stop_after(sequence.request)
        self._known[slot] = 0 if rest is None else len(rest)
        self._runs[slot] = list(steps.runs) if isinstance(steps, StepRuns) else []
        self._shared[slot] = []

    def leave(self, slot: int, prompt_tokens: int) -> tuple[range, StepRuns]:
        self.part(slot)
        taken = self.take(slot, prompt_tokens)
        if self._stopping:
            self._stopping = [one for one in self._stopping if one is not self._sequences[slot]]
        self._sequences[slot] = None
        return taken

    def take(self, slot: int, prompt_tokens: int) -> tuple[range, StepRuns]:
        known, runs, shared = self._known[slot], self._runs[slot], self._shared[slot]
        if (joined := self._joined[slot]) >= 0:
            shared = [*shared, (joined, self._decodes)]
        for first, end in shared:
            if (end := min(end, self._landed)) > first:
                known += end - first
                runs = [*runs, *self._rows_of(first, end)]
        return range(known), StepRuns(_joined(runs))

    def drop_pending(self, slot: int, prompt_tokens: int) -> None:
        """`take` gives only what came back."""

    def length_of(self, slot: int) -> int:
        return self._length[slot] if self._joined[slot] < 0 else self._offset[slot] + self._decodes

    def computed_of(self, slot: int) -> int:
        return self._computed[slot] if self._joined[slot] < 0 else self._offset[slot] + self._decodes - 1

    def adopt(self, slot: int, tokens: int) -> None:
        self._computed[slot] = tokens

    # -- the line -------------------------------------------------------------------------------------

    def join(self, slot: int) -> None:
        if self._joined[slot] >= 0:
            return
        self._joined[slot] = self._decodes
        self._offset[slot] = offset = self._length[slot] - self._decodes
        self._members += 1
        self._offsets += offset
        heapq.heappush(self._full, (self._limit[slot] - offset, slot, offset))
        if self._stop[slot] < self._limit[slot]:
            heapq.heappush(self._stopped, (self._stop[slot] - offset, slot, offset))

    def part(self, slot: int) -> None:
        joined, decodes = self._joined[slot], self._decodes
        if joined < 0:
            return
        self._length[slot] = length = self._offset[slot] + decodes
        self._computed[slot] = length - 1
        if decodes > joined:
            self._shared[slot].append((joined, decodes))
        self._joined[slot] = -1
        self._members -= 1
        self._offsets -= self._offset[slot]

    def _alone(self, slot: int, tokens: int) -> None:
        """A slot of the line makes tokens (or takes them back) without the rest of it."""
        self.part(slot)
        self._length[slot] += tokens
        self._computed[slot] += tokens
        self.join(slot)

    def _is_line(self, plan: StepPlan) -> bool:
        """Whether a plan's decodes, which are all in the line, are all of it."""
        return 0 < len(plan.decodes) == self._members

    def _stays(self, entry: tuple[int, int, int], lengths: list[int]) -> bool:
        """Whether an entry's slot is in the line as it was when it joined, for the length in `lengths`."""
        at, slot, offset = entry
        return self._joined[slot] >= 0 and self._offset[slot] == offset and lengths[slot] == at + offset

    def _next(self, heap: list[tuple[int, int, int]], lengths: list[int]) -> int:
        """The line's decodes at which the next slot of it has the length that it has in `lengths`; NEVER when
        none will. `heap` holds them."""
        while heap and not self._stays(heap[0], lengths):
            heapq.heappop(heap)
        return heap[0][0] if heap else NEVER

    def _reached(self, heap: list[tuple[int, int, int]], lengths: list[int]) -> list[Sequence]:
        """The sequences of the line that have come to that length, each once; `heap` holds the others."""
        reached: list[Sequence] = []
        while heap and heap[0][0] <= self._decodes:
            entry = heapq.heappop(heap)
            sequence = self._sequences[entry[1]]
            if self._stays(entry, lengths) and sequence is not None and sequence not in reached:
                reached.append(sequence)
        return reached

    def _rows_of(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """The rows of the line's decodes from `first` to before `end`, as runs."""
        starts, rows = self._run_decodes, self._run_rows
        place = bisect_right(starts, first) - 1
        while first < end:
            upto = min(end, starts[place + 1]) if place + 1 < len(starts) else end
            row = rows[place] + first - starts[place]
            yield row, row + upto - first
            first, place = upto, place + 1

    def _land_line(self, steps: int, row: int) -> None:
        if row != self._run_rows[-1] + self._landed - self._run_decodes[-1]:
            self._run_decodes.append(self._landed)
            self._run_rows.append(row)
        self._landed += steps

    def _land_alone(self, slot: int, steps: int, row: int) -> None:
        self._known[slot] += steps
        self._runs[slot].append((row, row + steps))

    # -- a plan ---------------------------------------------------------------------------------------

    def attended(self, plan: StepPlan) -> int:
        cells = self._total(plan)
        for piece in plan.prefills:
            cells += self._computed[piece.sequence.slot] + piece.count
        return cells

    def contexts(self, plan: StepPlan) -> Contexts:
        offset, decodes = self._offset, self._decodes
        return Contexts(
            len(plan.decodes),
            self._total(plan),
            lambda: np.array([offset[one.slot] + decodes for one in plan.decodes], np.int64),
        )

    def _total(self, plan: StepPlan) -> int:
        """Tokens that a plan's decodes attend to."""
        count = len(plan.decodes)
        if count == self._members:
            return self._offsets + count * self._decodes
        return sum(self._offset[sequence.slot] for sequence in plan.decodes) + count * self._decodes

    def places(self, plan: StepPlan, first: Ordered[Sequence]) -> tuple[np.ndarray, np.ndarray]:
        """A token that nobody reads has none."""
        return NOWHERE, NOWHERE

    def least_left(self, plan: StepPlan) -> int:
        if self._stopping:
            return 0
        left = self._next(self._stopped, self._stop) - self._decodes
        if self._is_line(plan) and (full := self._next(self._full, self._limit)) < NEVER:
            return min(left, full - self._decodes)
        return min(left, *(self._limit[one.slot] - self.length_of(one.slot) for one in plan.decodes))

    def before(self, plan: StepPlan) -> None:
        """What a forward launched says enough."""

    def undo(self, flight: Flight) -> None:
        for packed in flight.packed:
            for piece in packed.plan.prefills:
                self.part(piece.sequence.slot)
        for packed in flight.packed:
            for piece in packed.plan.prefills:
                self._computed[piece.sequence.slot] -= piece.count
            for sequence in packed.first:
                self._length[sequence.slot] -= 1
            self._decodes -= packed.together
            for sequence in packed.plan.decodes:
                if not (slot := sequence.slot):
                    continue
                if self._joined[slot] < 0:  # it drained
                    self._length[slot] -= 1
                    self._computed[slot] -= 1
                elif not packed.together:
                    self._alone(slot, -1)
                if packed.together:
                    self._joined[slot] = min(self._joined[slot], self._decodes)
                    self._shared[slot] = [
                        (first, min(end, self._decodes)) for first, end in self._shared[slot]
                    ]
        self._stopping = [one for one in self._stopping if one.length >= self._stop[one.slot]]

    def launched(self, plan: StepPlan, packed: Packed) -> None:
        packed.together = self._is_line(plan)
        if packed.together:
            self._decodes += 1
        else:
            for sequence in plan.decodes:
                self._alone(sequence.slot, 1)
        for piece in plan.prefills:
            self._computed[piece.sequence.slot] += piece.count
        for sequence in packed.first:
            self._length[sequence.slot] += 1

    def ending(self, flight: Flight) -> list[Sequence]:
        for one in self._reached(self._stopped, self._stop):
            if one not in self._stopping:
                self._stopping.append(one)
        return _in_order(self._reached(self._full, self._limit), flight)

    def land(self, flight: Flight, tokens: np.ndarray, row: int) -> list[tuple[Sequence, bool]]:
        for packed in flight.packed:
            if packed.together:
                self._land_line(1, row)
            else:
                for sequence in packed.plan.decodes:
                    if sequence.slot:  # or it has stopped meanwhile
                        self._land_alone(sequence.slot, 1, row)
            for sequence in packed.first:
                self._land_alone(sequence.slot, 1, row)
        if not (flight.ending or self._stopping):
            return []
        stopped = [one for one in self._stopping if self._is_back(one)]
        ended = [*stopped, *(one for one in flight.ending if one.slot and one not in stopped)]
        return [
            (one, one in stopped or self._stop[one.slot] == self._limit[one.slot])
            for one in _in_order(ended, flight)
        ]

    def _is_back(self, sequence: Sequence) -> bool:
        """Whether the token has come back that a sequence stops at."""
        known = len(self.take(sequence.slot, sequence.prompt_tokens)[0])
        return sequence.prompt_tokens + known >= self._stop[sequence.slot]

    def decoded(self, plan: StepPlan, steps: int, token: int, row: int) -> None:
        if self._is_line(plan):
            self._decodes += steps
            self._land_line(steps, row)
            return
        for sequence in plan.decodes:
            self._alone(sequence.slot, steps)
            self._land_alone(sequence.slot, steps, row)


def _in_order(sequences: list[Sequence], flight: Flight) -> list[Sequence]:
    """In that of a step that they are in."""
    return sequences if len(sequences) < 2 else [one for one in flight.sequences if one in sequences]


def _joined(runs: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Runs in order, those that follow each other made one."""
    runs = sorted(runs)
    if not runs:
        return
    start, end = runs[0]
    for first, after in runs[1:]:
        if first != end:
            yield start, end
            start = first
        end = after
    yield start, end


class CellCounts(Cells):
    """`Cells` that knows how many each slot holds, and not which. They cannot be shared.

    Who decodes together, step after step, holds one cell more each time: these are counted once for all.
    """

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self._held = [0] * (slots + 1)  # without what is ahead
        self._together: tuple[Sequence, ...] = ()
        self._slots: list[int] = []  # theirs
        self._ahead = 0  # cells that each of them holds more

    def grow(self, rows: int) -> None:
        self.rows = rows

    @property
    def held(self) -> np.ndarray:
        """Cells of each slot, int32; a copy."""
        self._settle()
        return np.array(self._held, np.int32)

    @held.setter
    def held(self, held: np.ndarray) -> None:
        self._held = held.tolist()

    def _settle(self) -> None:
        if self._ahead:
            for slot in self._slots:
                self._held[slot] += self._ahead
        self._together, self._slots, self._ahead = (), [], 0

    def count(self, decodes: tuple[Sequence, ...], each: int) -> None:
        """`each` more cells for all of `decodes`."""
        if decodes is not self._together:
            self._settle()
            self._together, self._slots = decodes, [sequence.slot for sequence in decodes]
        self._ahead += each
        self._add(len(decodes) * each)

    def count_one(self, slot: int, more: int) -> None:
        """`more` cells for one slot."""
        self._held[slot] += more
        self._add(more)

    def _add(self, cells: int) -> None:
        self.in_use += cells
        if self.in_use > self.most_in_use:
            self.most_in_use = self.in_use

    def fork(self, source: int, target: int, upto: int) -> None:
        raise UnsupportedError("cells that are only counted cannot be shared")

    def rewind(self, slot: int, to: int) -> None:
        if slot in self._slots:  # seldom: who ends has left the others before
            self._settle()
        held = self._held[slot]
        if not 0 <= to <= held:
            raise ValueError(f"slot {slot} holds {held} cells; it cannot be rewound to {to}")
        self.in_use -= held - to
        self._held[slot] = to
