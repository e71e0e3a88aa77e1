"""Rows without a device: what a pool grows, and what tells who wrote a cell last."""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from typing import Any

from musebench.core.errors import OutOfMemory
from musebench.core.protocols import Resize
from musebench.core.spans import Granules, SpanSource, check_reservation

CELL_BYTES = 8


class FakeStorage:
    """Rows of anything, see `musebench.core.protocols.Storage`.

    `most` rows fit into memory at a time, old and new ones together while rows move (with `at_once` False:
    the new ones alone count), and the resizes named in `failing` (from 1) raise. `moves` says of one resize
    after the other, again and again, whether addresses move; where they do, `content` is another list and the
    old one stays as whoever kept it last saw it. With `tells` it knows what is free.

    It is a `musebench.core.spans.GrowsInPlace` too: after `reserve` rows stay where they are, in one buffer
    of the granules that the source's `costs` name. And it moves rows.
    """

    def __init__(
        self,
        most: int | None = None,
        failing: tuple[int, ...] = (),
        moves: tuple[bool, ...] = (True,),
        at_once: bool = False,
        tells: bool = False,
    ) -> None:
        self.content: list[Any] = []
        self.most = most
        self.failing = failing
        self.moves = moves
        self.at_once = at_once
        self.tells = tells
        self.calls = 0
        self._granules: Granules | None = None

    @property
    def rows(self) -> int:
        return len(self.content)

    @property
    def bytes(self) -> int:
        return self.bytes_for(len(self.content))

    @property
    def cell_bytes(self) -> int:
        return CELL_BYTES

    def reserve(self, rows: int, source: SpanSource) -> None:
        check_reservation(rows, self._granules is not None or self.rows > 0, (CELL_BYTES,))
        self._granules = Granules(source.costs().granule_bytes, (CELL_BYTES,), rows)

    def bytes_for(self, rows: int) -> int:
        return rows * CELL_BYTES if self._granules is None else self._granules.bytes_for(rows)

    def rows_within(self, rows: int) -> int:
        return rows if self._granules is None else self._granules.rows_within(rows)

    @property
    def slack_bytes(self) -> int:
        return 0 if self._granules is None else self._granules.slack_bytes

    def resize(self, rows: int, live: int) -> Resize:
        if self._granules is not None and rows > self._granules.most_rows:
            raise ValueError(f"{rows} rows of {self._granules.most_rows} reserved ones")
        moved = self._granules is None and self.moves[self.calls % len(self.moves)]
        self.calls += 1
        passing = self.bytes_for(rows) + (self.bytes if moved and self.at_once else 0)
        if self.calls in self.failing or (self.most is not None and passing > self.most * CELL_BYTES):
            raise OutOfMemory(rows * CELL_BYTES, self.free_bytes(), "rows")
        kept = self.content[:live]
        made = kept + [None] * (rows - len(kept))
        if moved:
            self.content = made
            return Resize(True, live * CELL_BYTES, (rows + live) * CELL_BYTES)
        self.content[:] = made
        return Resize(False, 0, self.bytes)

    def move(self, runs: Ordered[tuple[int, int, int]]) -> int:
        """Copy runs (source, target, count) one after the other; returns the bytes.

        Raises:
            ValueError: a run that leaves the rows, or touches scratch; nothing was copied.
        """
        for source, target, count in runs:
            if min(source, target) < 1 or count < 0 or max(source, target) + count > self.rows:
                raise ValueError(f"{count} rows from {source} to {target} of {self.rows} cannot be copied")
        for source, target, count in runs:
            self.content[target : target + count] = self.content[source : source + count]
        return sum(count for _, _, count in runs) * CELL_BYTES

    def free_bytes(self) -> int | None:
        if not self.tells or self.most is None:
            return None
        return max(self.most * CELL_BYTES - self.bytes, 0)

    def close(self) -> None:
        self.content = []
