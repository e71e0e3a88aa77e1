"""A line in order of a number that a sequence keeps for as long as it waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from musebench.core.sequence import Sequence
from musebench_sched.admission import waits

Entry = tuple[float, int, Sequence]


class RankedLine:
    """Lowest `rank` first, of equal ones who was submitted first; a heap, read without being taken apart."""

    contested = False

    def __init__(self, rank: Callable[[Sequence], float]) -> None:
        self._rank = rank
        self._heap: list[Entry] = []
        self._members: set[Sequence] = set()

    def refresh(self) -> None:
        while self._heap and not waits(self._heap[0][2]):
            self._members.remove(heappop(self._heap)[2])

    def add(self, sequence: Sequence) -> None:
        heappush(self._heap, (self._rank(sequence), sequence.session, sequence))
        self._members.add(sequence)

    def __contains__(self, sequence: object) -> bool:
        return sequence in self._members

    def in_order(self) -> Iterator[Sequence]:
        heap = self._heap
        ahead: list[tuple[Entry, int]] = [(heap[0], 0)] if heap else []
        while ahead:
            entry, place = heappop(ahead)
            if waits(entry[2]):
                yield entry[2]
            for below in (2 * place + 1, 2 * place + 2):
                if below < len(heap):
                    heappush(ahead, (heap[below], below))
