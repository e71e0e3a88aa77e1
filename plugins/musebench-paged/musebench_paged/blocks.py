"""Blocks: which are free, who holds the others, and in which of them a prefix can be found again."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable

Name = bytes | tuple[int, int] | int
"""Stands for the tokens of a block and for all before them (musebench_paged.names)."""


class Blocks:
    """Numbers 0 to `count` - 1. A block is free, held by some slots, or idle: held by none, but with a name
    under which its content can be found. `held` counts the held ones, `evicted` idle ones that were taken.

    Idle blocks are taken when none is free, the one that was let go first before the others. A sequence lets
    its last block go first, and whoever holds a block holds all before it, so that a prefix loses its end
    before its beginning.
    """

    def __init__(self) -> None:
        self.count = 0
        self.held = 0
        self.evicted = 0
        self._holders: list[int] = []
        self._returned: list[int] = []  # a heap
        self._untouched = 0  # blocks from here on were never taken
        self._block_of: dict[Name, int] = {}
        self._name_of: dict[int, Name] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def idle(self) -> int:
        return len(self._idle)

    @property
    def free(self) -> int:
        return self.count - self.held - len(self._idle)

    def grow(self, count: int) -> None:
        self._holders += [0] * (count - self.count)
        self.count = count

    def holders(self, block: int) -> int:
        return self._holders[block]

    def take(self) -> int:
        """The lowest free block, else the idle one that was let go first; it is held from here on."""
        if self._returned:
            block = heapq.heappop(self._returned)
        elif self._untouched < self.count:
            block = self._untouched
            self._untouched += 1
        else:
            block, _ = self._idle.popitem(last=False)
            self.unname(block)
            self.evicted += 1
        self._holders[block] = 1
        self.held += 1
        return block

    def hold(self, block: int) -> bool:
        """One slot more holds a block that is held or idle; whether it was idle."""
        self._holders[block] += 1
        if self._holders[block] > 1:
            return False
        del self._idle[block]
        self.held += 1
        return True

    def let_go(self, block: int, keep: bool) -> bool:
        """One slot less; the last one leaves it idle (`keep`, and it has a name) or free. Whether it was the
        last."""
        self._holders[block] -= 1
        if self._holders[block]:
            return False
        self.held -= 1
        if keep and block in self._name_of:
            self._idle[block] = None
        else:
            self.unname(block)
            heapq.heappush(self._returned, block)
        return True

    def name(self, block: int, name: Name) -> None:
        """Let a held block be found; nothing where its content can be found in another."""
        if name not in self._block_of and block not in self._name_of:
            self._block_of[name] = block
            self._name_of[block] = name

    def unname(self, block: int) -> None:
        name = self._name_of.pop(block, None)
        if name is not None:
            del self._block_of[name]

    def find(self, names: Iterable[Name]) -> list[int]:
        """The blocks of the first names, up to one that is not there."""
        found = []
        for name in names:
            block = self._block_of.get(name)
            if block is None:
                break
            found.append(block)
        return found

    def idle_among(self, blocks: list[int]) -> int:
        return sum(not self._holders[block] for block in blocks)

    def forget(self) -> None:
        """Every idle block is free."""
        while self._idle:
            block, _ = self._idle.popitem()
            self.unname(block)
            heapq.heappush(self._returned, block)
        self.evicted = 0
