"""`paged`: cells in blocks of a fixed number, and prefixes that are in the pool once."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import ClassVar

import numpy as np

from musebench.core.errors import OutOfMemory, PoolFull
from musebench.core.plan import StepPlan
from musebench.core.protocols import PoolBounds, RowRule, Storage
from musebench.core.sequence import Sequence
from musebench.pools.cell_pool import CellPool
from musebench_paged.blocks import Blocks, Name
from musebench_paged.counted import CountsOnly
from musebench_paged.names import Naming, TokenNames
from musebench_paged.options import PagedOptions


class PagedPool(CellPool):
    """Block b is cells 1 + b x n to (b + 1) x n; a token at position p lies at p % n in its block.

    A sequence takes a block when it needs one, so that at most n - 1 cells of it are tied up for nothing. A
    block that is full, and whose tokens are known, gets a name; a sequence whose tokens have the same names
    is given these blocks (musebench.core.sharing). Only whole blocks are given, and a sequence only appends,
    so nobody writes into one that is shared. A fork shares cells up to any position: who goes on inside of a
    block that another reads takes a block of its own (copy on write, and nothing is copied: the cell table
    names each token's cell, wherever it lies).

    Where a prompt is in the pool to its last token, its last block is not given but computed again: n tokens
    in a forward that has to run for one of them anyway. Giving all but the last token's cell would save at
    most n - 1 tokens and tie up one block more.

    rows = min(capacity, max(needed, rows x factor)), whole blocks. They grow for what sequences hold, and for
    `retain` cells of finished prefixes; others stay only while nobody needs their blocks.
    """

    name: ClassVar[str] = "paged"
    Options = PagedOptions
    Counted: ClassVar[type[PagedPool]]

    def __init__(self, options: PagedOptions, bounds: PoolBounds, storage: Storage) -> None:
        super().__init__(bounds, storage)
        self.options = options
        self.block = block = options.block
        self.decode_cells = block  # the worst that one decode ties up
        self.blocks = Blocks()
        given = [limit for limit in (options.capacity, bounds.capacity) if limit is not None]
        # Whether the capacity is a guess about memory, which a growth can prove wrong.
        self._guessed = not given and storage.free_bytes() is not None
        self._capacity = (min(given) if given else self._affordable()) // block  # in blocks
        self._retained = options.retain // block
        slots = bounds.max_sessions + 1
        # (first position, block) in order of position; a fork can begin inside of a block.
        self._spans: list[list[tuple[int, int]]] = [[] for _ in range(slots)]
        self._tail = np.full(slots, -1, np.int64)  # where the next token goes; -1: into a new block
        self._names: list[list[Name]] = [[] for _ in range(slots)]
        self._named = np.zeros(slots, np.int64)  # blocks of each that were looked at for a name
        self._asked: dict[int, list[Name]] = {}  # names of waiting sequences, by session
        self._lookups: dict[int, tuple[int, int]] = {}  # by slot, of launches that are not reserved yet
        self._looked = self._found = 0
        self.naming: Naming = TokenNames(block)

    def _affordable(self) -> int:
        wanted = self.bounds.max_sessions * self._whole(self.bounds.max_context) * self.block
        free = self.storage.free_bytes()
        if free is None:
            return wanted
        # The last growth copies: rows / factor old ones are still there beside the new ones.
        most = int(free / self.storage.cell_bytes / (1 + 1 / self.options.factor)) - 1
        return max(min(wanted, most), 0)

    def _whole(self, cells: int) -> int:
        """Blocks that hold so many cells."""
        return -(-cells // self.block)

    # -- counts ---------------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        return self._capacity * self.block

    @property
    def room(self) -> int:
        return (self._capacity - self.blocks.held) * self.block

    def refusal(self, tokens: int) -> str | None:
        if self._whole(tokens) <= self._capacity:
            return None
        return (
            f"needs {tokens:,} cells, {self._whole(tokens):,} blocks of {self.block:,}; pool 'paged' has a "
            f"capacity of {self._capacity:,} ({self.capacity:,} x {self.storage.cell_bytes:,} bytes)"
        )

    def quote(self, sequence: Sequence) -> int:
        whole = self._whole(sequence.length)
        if slot := sequence.slot:
            held = int(self.cells.held[slot])
            more = whole - self._whole(held) + (held % self.block > 0 and self._tail[slot] < 0)
            return max(int(more), 0) * self.block
        found = self._lookup(sequence, sequence.length - 1)
        return (whole - len(found) + self.blocks.idle_among(found)) * self.block

    @property
    def row_rule(self) -> RowRule:
        """What is tied up times the factor, and less than a block each for rounding both up."""
        factor, size = self.options.factor, self.block
        start = self._whole(self.options.start) * size
        return RowRule(factor, start, math.ceil(factor * (self._beside + size - 1)) + size - 1)

    @property
    def _beside(self) -> int:
        """Cells that may be tied up and hold nothing of a sequence: every session's last block may hold one
        cell."""
        return self.bounds.max_sessions * (self.block - 1) + self.options.retain

    def most_rows(self, cells: int) -> int:
        grown = math.ceil(self.options.factor * self._whole(cells + self._beside)) * self.block
        return min(self.capacity, max(self._whole(self.options.start) * self.block, grown))

    def passing_rows(self, cells: int) -> int:
        """It grows when the rows do not suffice, so the old ones are fewer than what is tied up."""
        return min(self.capacity, self._whole(cells + self._beside) * self.block)

    def counters(self) -> dict[str, int | float]:
        """`blocks looked up` are those of admitted sequences, last ones that are not full too, `blocks found`
        those that were there; of this run."""
        rate = self._found / self._looked if self._looked else 0.0
        return {
            **super().counters(),
            "blocks looked up": self._looked,
            "blocks found": self._found,
            "blocks evicted": self.blocks.evicted,
            "block hit rate": rate,
        }

    # -- sharing: see musebench.core.sharing.Sharing --------------------------------------------------

    def forget(self) -> None:
        self.blocks.forget()
        self._asked.clear()
        self._looked = self._found = 0

    def held(self, sequence: Sequence, most: int) -> int:
        return len(self._lookup(sequence, most)) * self.block

    def adopt(self, sequence: Sequence, most: int) -> int:
        slot, found = sequence.slot, self._lookup(sequence, most)
        self._names[slot] = self._asked.pop(sequence.session, [])
        self._named[slot] = len(found)
        self._spans[slot] = [(place * self.block, block) for place, block in enumerate(found)]
        self.share(slot, found, sum([self.blocks.hold(block) for block in found]))
        self._lookups[slot] = (self._whole(sequence.length), len(found))
        return len(found) * self.block

    def share(self, slot: int, blocks: list[int], revived: int) -> None:
        """Let a slot own the cells of held blocks, `revived` of which nobody owned."""
        if blocks:
            firsts = np.array(blocks, np.int32)[:, None] * self.block + 1
            self.cells.share(slot, (firsts + np.arange(self.block, dtype=np.int32)).ravel())

    def _lookup(self, sequence: Sequence, most: int) -> list[int]:
        count = most // self.block
        names = self._asked.get(sequence.session)
        if names is None:
            if len(self._asked) > self.bounds.max_sessions:
                self._asked.clear()  # a cache: of those who were cancelled while they waited, too
            names = self._asked[sequence.session] = []
        if len(names) < count:
            self.naming.extend(names, sequence, count)
        return self.blocks.find(names[:count])

    # -- verbs ----------------------------------------------------------------------------------------

    def reserve(self, plan: StepPlan) -> np.ndarray:
        slots = plan.decode_slots
        needed = int(np.count_nonzero(self._tail[slots] < 0))
        for piece in plan.prefills:
            slot = piece.sequence.slot
            held = int(self.cells.held[slot])
            first = held // self.block if self._tail[slot] < 0 else self._whole(held)
            needed += max(self._whole(held + piece.count) - first, 0)
        self._make_room(needed)
        return self.take(plan)

    def _make_room(self, needed: int) -> None:
        """Have `needed` blocks that can be taken, free or idle; raises, with nothing changed, where there are
        none."""
        blocks = self.blocks
        if blocks.held + needed > self._capacity:
            self.refusals += 1
            raise PoolFull(needed * self.block, self.room, self.capacity)
        more = needed - blocks.free - max(blocks.idle - self._retained, 0)
        if more <= 0 or blocks.count >= self._capacity:
            return
        wished = min(blocks.count + more, self._capacity)
        try:
            self.grow(wished * self.block)
        except OutOfMemory:
            if needed > blocks.free + blocks.idle:
                if not self._guessed or not blocks.count:
                    raise
                self._capacity = blocks.count
                self.refusals += 1
                raise PoolFull(needed * self.block, self.room, self.capacity) from None
            if self._guessed:
                self._capacity = blocks.count

    def rows_for(self, needed: int) -> int:
        wished = math.ceil(self.blocks.count * self.options.factor) or self._whole(self.options.start)
        return min(self._capacity, max(needed // self.block, wished)) * self.block

    def resize(self, rows: int) -> None:
        super().resize(rows)
        self.blocks.grow(rows // self.block)

    def take(self, plan: StepPlan) -> np.ndarray:
        slots, size = plan.decode_slots, self.block
        positions = self.cells.held[slots]
        self.open(slots, positions)
        cells = 1 + self._tail[slots] * size + positions % size
        every = [(slots, positions, cells)]
        for piece in plan.prefills:
            slot = piece.sequence.slot
            start = int(self.cells.held[slot])
            blocks = np.array(self.fill(slot, start, start + piece.count))
            places = np.arange(start, start + piece.count, dtype=np.int32)
            own = 1 + blocks[places // size - start // size] * size + places % size
            every.append((np.full(piece.count, slot, np.int32), places, own))
        slots, positions, cells = (
            np.concatenate(column).astype(np.int32) for column in zip(*every, strict=True)
        )
        self.cells.claim(slots, positions, cells)
        self.claimed(plan)
        return cells

    def open(self, slots: np.ndarray, positions: np.ndarray) -> None:
        """A new block for every slot that has none for its next token."""
        opening = self._tail[slots] < 0
        if opening.any():
            for slot, position in zip(slots[opening].tolist(), positions[opening].tolist(), strict=True):
                self._tail[slot] = block = self.blocks.take()
                self._spans[slot].append((position, block))

    def fill(self, slot: int, start: int, end: int) -> list[int]:
        """The blocks of positions `start` to before `end`, new ones where there are none."""
        blocks, tail = [], int(self._tail[slot])
        for place in range(start // self.block, self._whole(end)):
            if tail < 0:
                tail = self.blocks.take()
                self._spans[slot].append((max(start, place * self.block), tail))
            blocks.append(tail)
            self._tail[slot], tail = tail, -1
        return blocks

    def claimed(self, plan: StepPlan) -> None:
        """After a plan's cells were claimed: full blocks are named and closed."""
        held = self.cells.held
        if len(slots := plan.decode_slots):
            ends = held[slots]
            self._tail[slots[ends % self.block == 0]] = -1
            for at in np.flatnonzero(ends // self.block > self._named[slots]).tolist():
                self._name(plan.decodes[at], int(ends[at]))
        for piece in plan.prefills:
            slot = piece.sequence.slot
            end = int(held[slot])
            if end % self.block == 0:
                self._tail[slot] = -1
            self._name(piece.sequence, end)
            if slot in self._lookups:
                looked, found = self._lookups.pop(slot)
                self._looked, self._found = self._looked + looked, self._found + found

    def _name(self, sequence: Sequence, held: int) -> None:
        """Name the full blocks of a sequence whose tokens are known."""
        slot = sequence.slot
        names, full = self._names[slot], held // self.block
        if len(names) < full:
            self.naming.extend(names, sequence, full)
        known = min(len(names), full)
        for place in range(int(self._named[slot]), known):
            block = self._block_at(slot, place)
            if block is not None:
                self.blocks.name(block, names[place])
        self._named[slot] = known

    def _block_at(self, slot: int, place: int) -> int | None:
        """The block that holds all of a slot's tokens from place x n on; None where they lie in several."""
        spans, first = self._spans[slot], place * self.block
        at = place if place < len(spans) and spans[place][0] == first else bisect_left(spans, (first, -1))
        if at == len(spans) or spans[at][0] != first:
            return None
        return None if at + 1 < len(spans) and spans[at + 1][0] < first + self.block else spans[at][1]

    def lasting(self, plan: StepPlan) -> int:
        """See `musebench.core.stretch.Lasting`."""
        blocks, size = self.blocks, self.block
        if self.cells.forked:
            return 0
        kept = 0 if blocks.count >= self._capacity else self._retained
        there = blocks.free + max(blocks.idle - kept, 0)
        left = (-self.cells.held[plan.decode_slots]).astype(np.int64) % size
        low, high = 0, size * (there // len(left) + 2)
        while low < high:
            steps = (low + high + 1) // 2
            if int(-(-np.maximum(steps - left, 0) // size).sum()) <= there:
                low = steps
            else:
                high = steps - 1
        return low

    def reserve_steps(self, plan: StepPlan, steps: int) -> None:
        """See `musebench.core.stretch.Lasting`."""
        for _ in range(steps):
            self.take(plan)

    def fork(self, source: int, target: int, upto: int) -> None:
        self.cells.fork(source, target, upto)
        self._spans[target] = [span for span in self._spans[source] if span[0] < upto]
        for _, block in self._spans[target]:
            self.blocks.hold(block)
        self._tail[target] = -1
        self._names[target] = self._names[source][: upto // self.block]
        self._named[target] = len(self._names[target])

    def rewind(self, slot: int, to: int) -> None:
        held = int(self.cells.held[slot])
        if not 0 <= to <= held:
            raise ValueError(f"slot {slot} holds {held} cells; it cannot be rewound to {to}")
        if to < held:
            self._drop(slot, held, to, keep=False)

    def release(self, slot: int) -> None:
        self._drop(slot, int(self.cells.held[slot]), 0, keep=True)
        self._lookups.pop(slot, None)

    def _drop(self, slot: int, held: int, to: int, keep: bool) -> None:
        """Give back the cells from position `to` on. What a step was to write, and may not have written, is
        not kept (`keep`); what a sequence leaves behind is."""
        spans, end, freed = self._spans[slot], held, 0
        while spans and spans[-1][0] >= to:
            first, block = spans.pop()
            freed += self.leave(block, end - first, keep)
            end = first
        self._tail[slot] = -1
        if to % self.block:
            first, last = spans[-1]
            freed += self.cut(last, end - first, to - first)
            if self.blocks.holders(last) == 1:
                self.blocks.unname(last)
                self._tail[slot] = last
        del self._names[slot][to // self.block :]
        self._named[slot] = min(int(self._named[slot]), to // self.block)
        self.give_back(slot, to, freed)

    def leave(self, block: int, cells: int, keep: bool) -> int:
        """A slot lets go of a block of which it had `cells`; how many of them are nobody's then."""
        return cells if self.blocks.let_go(block, keep) else 0

    def cut(self, block: int, cells: int, left: int) -> int:
        """A slot that had `cells` of a block has `left` of them; how many of them are nobody's then."""
        return cells - left if self.blocks.holders(block) == 1 else 0

    def give_back(self, slot: int, to: int, freed: int) -> None:
        """A slot's cells from position `to` on are its own no more, `freed` of them nobody's."""
        self.cells.rewind(slot, to)


class CountedPagedPool(CountsOnly, PagedPool):  # type: ignore[misc]
    """The same policy over cells that are only counted."""


PagedPool.Counted = CountedPagedPool
