"""What the pool promises by itself: who holds which block, what is found again, and what is never shared."""

from __future__ import annotations

import numpy as np
import pytest
from musebench_paged.blocks import Blocks
from musebench_paged.names import GivenNames, chained
from musebench_paged.options import PagedOptions
from musebench_paged.pool import PagedPool

from musebench.core.errors import OutOfMemory, PoolFull
from musebench.core.plan import Slice, StepPlan
from musebench.core.protocols import PoolBounds, Resize
from musebench.core.request import Prefix, Request
from musebench.core.sequence import Sequence
from musebench.core.table import SequenceTable


class Rows:
    """A storage of rows that nobody reads; `most` of them fit."""

    cell_bytes = 8

    def __init__(self, most: int = 10**6) -> None:
        self.rows, self.most = 0, most

    bytes = property(lambda self: 8 * self.rows)

    def resize(self, rows: int, live: int) -> Resize:
        if rows > self.most:
            raise OutOfMemory(8 * rows, 0, "rows")
        self.rows = rows
        return Resize(True)

    def free_bytes(self):
        return None


def pool_of(capacity=64, storage=None, **options) -> PagedPool:
    return PagedPool(
        PagedOptions(**{"block": 4, "start": 4, **options}), PoolBounds(6, 64, capacity), storage or Rows()
    )


class Sequences:
    """Sequences in slots 1, 2, ... of one table, and plans of their next tokens."""

    def __init__(self, pool: PagedPool) -> None:
        self.pool, self.table, self.count = pool, SequenceTable(6), 0

    def enter(self, *tokens: int, most: int | None = None, compute: bool = True) -> tuple[Sequence, int]:
        """Adopt and prefill all of a prompt; the sequence, and how many tokens it was given."""
        self.count += 1
        sequence = Sequence(self.count, Request(str(self.count), tokens, 20), self.table)
        sequence.enter(self.count)
        given = self.pool.adopt(sequence, len(tokens) - 1 if most is None else most)
        self.table.adopt(sequence.slot, given)
        if compute:
            self.pool.reserve(StepPlan((), (Slice(sequence, len(tokens) - given),)))
        return sequence, given

    def cells(self, sequence: Sequence) -> list[int]:
        slot = sequence.slot
        return self.pool.cells.table[slot, : self.pool.cells.held[slot]].tolist()


def test_whole_blocks_are_given_and_the_last_token_is_always_computed():
    pool = pool_of()
    they = Sequences(pool)
    first, given = they.enter(*range(10))
    assert given == 0
    second, given = they.enter(*range(8), 50, 51)
    assert given == 8
    assert they.cells(first)[:8] == they.cells(second)[:8]
    assert not set(they.cells(first)[8:]) & set(they.cells(second)[8:])
    # All of it is there, and a block's end is the prompt's: its last block is computed again.
    third, given = they.enter(*range(8))
    assert given == 4
    assert they.cells(third)[:4] == they.cells(first)[:4]
    assert not set(they.cells(third)[4:]) & set(they.cells(first))
    assert pool.in_use == 10 + 2 + 4
    ((slot, at, cells), (other, _, shorter)) = pool.take_edits()
    assert (slot, at, cells.tolist()) == (2, 0, they.cells(first)[:8])
    assert (other, shorter.tolist()) == (3, they.cells(first)[:4])


def test_a_block_is_found_only_behind_the_same_tokens():
    they = Sequences(pool_of())
    they.enter(1, 2, 3, 4, 5, 6, 7, 8, 9)
    assert they.enter(0, 2, 3, 4, 5, 6, 7, 8, 9)[1] == 0
    assert they.enter(1, 2, 3, 4, 0, 6, 7, 8, 9)[1] == 4


def test_names_of_other_tokens_or_other_places_differ():
    ids = np.arange(64, dtype=np.int32)
    whole = list(chained(b"", ids, 4))
    assert len(set(whole)) == 16
    assert all(len(name) == 32 for name in whole)
    assert list(chained(whole[3], ids[16:], 4)) == whole[4:]
    # Equal blocks behind other ones, and one id of another width, are other names.
    twice = list(chained(b"", np.tile(ids[:4], 2), 4))
    assert twice[0] != twice[1]
    assert list(chained(b"", np.array([256, 0, 0, 0], np.int32), 4)) != list(
        chained(b"", np.array([0, 1, 0, 0], np.int32), 4)
    )


@pytest.mark.parametrize("block", [3, 4, 5, 8])
def test_given_names_are_equal_exactly_where_the_prefix_covers_a_block(block):
    def names(session, prefix, length):
        made = []
        request = Request(str(session), range(length), 1, prefix=prefix)
        GivenNames(block).extend(made, Sequence(session, request, SequenceTable(1)), length // block)
        return made

    one = names(1, Prefix((7, 8, 9), 6), 40)
    two = names(2, Prefix((7, 8, 5), 6), 40)
    same = [a == b for a, b in zip(one, two, strict=True)]
    assert same == [(place + 1) * block <= 12 for place in range(40 // block)]
    assert len({*one, *two}) == 2 * len(one) - sum(same)


def test_a_finished_prefix_is_found_until_its_blocks_are_needed_the_oldest_last_block_first():
    pool = pool_of(capacity=16)
    they = Sequences(pool)
    for start in (0, 20):
        they.enter(*range(start, start + 8))
    pool.release(1)
    pool.release(2)
    assert (pool.in_use, pool.room, pool.blocks.idle) == (0, 16, 4)
    they.enter(*range(40, 44))  # takes the second block of the first
    assert pool.blocks.evicted == 1
    assert they.enter(*range(20, 28), 1, compute=False)[1] == 8
    pool.release(4)
    assert they.enter(*range(8), 1, compute=False)[1] == 4


def test_rows_grow_for_finished_prefixes_only_as_far_as_retain_says():
    for retain, rows, found in ((0, 8, 0), (8, 16, 8)):
        pool = pool_of(capacity=64, start=8, factor=1.01, retain=retain)
        they = Sequences(pool)
        they.enter(*range(8))
        pool.release(1)
        they.enter(*range(20, 28))
        pool.release(2)
        assert pool.rows == rows
        assert they.enter(*range(8), 1, compute=False)[1] == found


def test_a_step_that_failed_leaves_nothing_to_be_found():
    pool = pool_of()
    they = Sequences(pool)
    sequence, _ = they.enter(*range(6))
    pool.reserve(StepPlan((), (Slice(sequence, 6),)))  # as if it had more tokens
    pool.rewind(1, 0)
    assert pool.blocks.free == pool.blocks.count
    assert they.enter(*range(6), compute=False)[1] == 0


def test_a_fork_shares_to_any_position_and_who_writes_there_has_a_block_of_his_own():
    pool = pool_of()
    they = Sequences(pool)
    source, _ = they.enter(*range(6))
    target, _ = they.enter(0, compute=False)
    pool.fork(1, 2, 5)
    before = they.cells(source)
    assert they.cells(target) == before[:5]
    assert pool.in_use == 6
    for sequence in (source, target):
        pool.reserve(StepPlan((), (Slice(sequence, 1),)))
    assert they.cells(source) == [*before, before[-1] + 1]  # goes on in its own block
    assert they.cells(target)[5] not in they.cells(source)
    pool.rewind(1, 4)  # gives back what the other still reads
    pool.reserve(StepPlan((), (Slice(source, 1),)))
    assert they.cells(source)[4] not in they.cells(target)
    pool.release(1)
    assert they.cells(target)[:5] == before[:5]
    pool.release(2)
    assert (pool.in_use, pool.room) == (0, pool.capacity)


def test_a_capacity_is_used_to_its_last_block_and_a_refusal_changes_nothing():
    pool = pool_of(capacity=19)
    they = Sequences(pool)
    assert pool.capacity == 16
    assert pool.refusal(16) is None
    assert "17 cells, 5 blocks of 4" in pool.refusal(17)
    first, _ = they.enter(*range(13))
    state = (pool.in_use, pool.blocks.held, pool.rows, they.cells(first))
    with pytest.raises(PoolFull, match="4 cells needed, 0 of 16"):
        pool.reserve(StepPlan((), (Slice(first, 4),)))
    assert state == (pool.in_use, pool.blocks.held, pool.rows, they.cells(first))
    pool.reserve(StepPlan((), (Slice(first, 3),)))
    assert (pool.in_use, pool.room) == (16, 0)


def test_where_memory_ends_idle_blocks_are_taken():
    pool = pool_of(capacity=64, start=8, retain=64, storage=Rows(most=9))
    they = Sequences(pool)
    they.enter(*range(8))
    pool.release(1)
    they.enter(*range(20, 28))
    assert (pool.rows, pool.blocks.evicted) == (8, 2)


def test_a_name_is_given_once_and_goes_with_its_block():
    blocks = Blocks()
    blocks.grow(2)
    first, second = blocks.take(), blocks.take()
    blocks.name(first, b"x")
    blocks.name(second, b"x")
    assert blocks.find([b"x", b"y"]) == [first]
    assert blocks.let_go(second, keep=True)
    assert (blocks.free, blocks.idle) == (1, 0)
    assert blocks.let_go(first, keep=True)
    assert (blocks.free, blocks.idle) == (1, 1)
    blocks.forget()
    assert blocks.find([b"x"]) == []
    assert blocks.free == 2


@pytest.mark.parametrize("cut_first", [True, False])
def test_counted_cells_of_a_block_that_one_reader_rewound_into_come_back_once(cut_first):
    pool = PagedPool.Counted(PagedOptions(block=4, start=4), PoolBounds(6, 64, 64), Rows())
    they = Sequences(pool)
    first, _ = they.enter(*range(9))
    second, given = they.enter(*range(9))
    assert (given, pool.in_use) == (8, 10)
    pool.rewind(first.slot, 6)  # the other one still reads all of the block
    assert pool.in_use == 9
    slots = [first.slot, second.slot]
    pool.release(slots[not cut_first])
    assert pool.in_use == (9 if cut_first else 6)
    pool.release(slots[cut_first])
    assert pool.in_use == 0
