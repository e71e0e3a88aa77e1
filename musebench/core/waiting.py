"""Those who wait, and the part of them that a scheduler is offered, whose length costs a step nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from collections.abc import Sequence as Ordered
from itertools import islice
from typing import Any

from musebench.core.sequence import Sequence


class WaitingLine(deque[Sequence]):
    """Sequences in the order in which they are offered; cheap at its front. A slice is a list."""

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return list(islice(self, *place.indices(len(self))))
        return super().__getitem__(place)


class Offered(Ordered[Sequence]):
    """The first `count` of a line, to be read while nothing changes in it."""

    def __init__(self, line: WaitingLine, count: int) -> None:
        self._line = line
        self._count = min(count, len(line))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Sequence]:
        return islice(self._line, self._count)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return tuple(islice(self._line, *place.indices(self._count)))
        if not -self._count <= place < self._count:
            raise IndexError(f"place {place} of {self._count} who wait")
        return self._line[place % self._count]
