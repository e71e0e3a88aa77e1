"""What pools promise: bounds, refusals that change nothing, shared cells that stay."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fakes import FakeStorage, plan_of, running
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from musebench.core.errors import OutOfMemory, PoolFull, UsageError
from musebench.core.plan import Slice, StepPlan
from musebench.core.protocols import PoolBounds
from musebench.core.request import Request
from musebench.core.sequence import Sequence, SequenceTable
from musebench.pools.fixed import FixedOptions, FixedPool
from musebench.pools.geometric import GeometricOptions, GeometricPool

SLOTS, CONTEXT = 4, 12


class PoolAgainstAModel(RuleBasedStateMachine):
    """The model: what each slot's tokens are. Every token is written once, into the cell it was given; each
    slot reads back its own through growth, forks, rewinds and refusals."""

    @initialize(
        fixed=st.booleans(),
        start=st.integers(1, 8),
        factor=st.sampled_from([1.1, 1.5, 2.0, 3.0]),
        capacity=st.integers(6, 50),
        failing=st.sets(st.integers(1, 8), max_size=4),
    )
    def open(self, fixed, start, factor, capacity, failing):
        self.storage = FakeStorage(failing=tuple(failing))
        if fixed:
            self.pool = FixedPool(FixedOptions(), PoolBounds(SLOTS, CONTEXT), self.storage)
        else:
            bounds = PoolBounds(SLOTS, CONTEXT, capacity)
            self.pool = GeometricPool(GeometricOptions(start, factor), bounds, self.storage)
        self.fixed, self.start, self.factor = fixed, start, factor
        self.tokens: dict[int, list[tuple[int, int]]] = {slot: [] for slot in range(1, SLOTS + 1)}
        self.written = 0
        self.needed = 0
        table = SequenceTable(SLOTS)
        self.sequences = {}
        for slot in self.tokens:
            self.sequences[slot] = Sequence(slot, Request(str(slot), range(CONTEXT), 1), table)
            self.sequences[slot].slot = slot

    def state(self):
        cells, pool = self.pool.cells, self.pool
        held = [cells.table[slot, : cells.held[slot]].tolist() for slot in self.tokens]
        return (
            held, cells.owners.tolist(), pool.rows, pool.in_use, pool.generation, pool.resizes[:], pool.room,
            self.storage.rows,
        )  # fmt: skip

    def row(self, slot):
        return self.pool.cells.table[slot, : self.pool.cells.held[slot]]

    @rule(
        decodes=st.sets(st.integers(1, SLOTS)),
        prefills=st.dictionaries(st.integers(1, SLOTS), st.integers(1, 7)),
    )
    def reserve(self, decodes, prefills):
        slots = [(slot, 1) for slot in sorted(decodes - set(prefills))]
        plan = StepPlan(
            tuple(self.sequences[slot] for slot, _ in slots),
            tuple(Slice(self.sequences[slot], count) for slot, count in prefills.items()),
        )
        before, needed = self.state(), self.pool.in_use + plan.tokens
        try:
            given_cells = self.pool.reserve(plan).tolist()
        except (PoolFull, OutOfMemory) as refused:
            assert self.state() == before
            if not self.fixed and isinstance(refused, PoolFull):
                assert needed > self.pool.capacity
            return
        assert self.fixed or needed <= self.pool.capacity
        assert len(given_cells) == len(set(given_cells)) == plan.tokens
        assert not set(given_cells) & {cell for cells in before[0] for cell in cells}
        if not self.fixed:
            free = [c for c in range(1, self.pool.rows + 1) if c >= len(before[1]) or not before[1][c]]
            assert given_cells == free[: plan.tokens]
            self.needed = max(self.needed, needed)
        cells = iter(given_cells)
        for slot, count in [*slots, *prefills.items()]:
            for _ in range(count):
                self.written += 1
                token = (self.written, len(self.tokens[slot]))
                self.storage.content[next(cells)] = token
                self.tokens[slot].append(token)

    @rule(source=st.integers(1, SLOTS), into=st.integers(1, SLOTS), data=st.data())
    def fork(self, source, into, data):
        if self.tokens[into]:
            return
        upto = data.draw(st.integers(0, len(self.tokens[source])))
        self.pool.fork(source, into, upto)
        self.tokens[into] = self.tokens[source][:upto]
        for slot, first, cells in self.pool.take_edits():
            assert (slot, first, cells.tolist()) == (into, 0, self.row(source)[:upto].tolist())

    @rule(slot=st.integers(1, SLOTS), data=st.data())
    def rewind(self, slot, data):
        to = data.draw(st.integers(0, len(self.tokens[slot])))
        self.pool.rewind(slot, to)
        del self.tokens[slot][to:]

    @rule(slot=st.integers(1, SLOTS))
    def release(self, slot):
        self.pool.release(slot)
        self.tokens[slot] = []

    @invariant()
    def every_slot_reads_its_own_tokens(self):
        for slot, tokens in self.tokens.items():
            assert [self.storage.content[cell] for cell in self.row(slot)] == tokens
        assert self.pool.in_use == len({token for tokens in self.tokens.values() for token in tokens})

    @invariant()
    def rows_keep_their_bound(self):
        if self.fixed:
            assert self.pool.rows in (0, SLOTS * CONTEXT)
        else:
            most = max(self.start, math.ceil(self.factor * self.needed))
            assert self.pool.most_in_use <= self.pool.rows <= min(self.pool.capacity, most)
        assert self.storage.rows == (self.pool.rows + 1 if self.pool.rows else 0)
        assert self.pool.generation == len(self.pool.resizes)

    def teardown(self):
        for slot in getattr(self, "tokens", ()):
            self.pool.release(slot)
        if hasattr(self, "pool"):
            assert self.pool.in_use == 0
            assert self.pool.room == self.pool.capacity
            assert not self.pool.cells.owners[1:].any()


TestPoolAgainstAModel = PoolAgainstAModel.TestCase
TestPoolAgainstAModel.settings = settings(max_examples=120, stateful_step_count=30)


def geometric(storage=None, **options) -> GeometricPool:
    return GeometricPool(GeometricOptions(**options), PoolBounds(4, 100), storage or FakeStorage())


def test_nothing_is_allocated_before_the_first_reservation():
    for pool in (geometric(), FixedPool(FixedOptions(), PoolBounds(4, 100), FakeStorage())):
        assert pool.rows == 0
        assert pool.storage.rows == 0


@pytest.mark.parametrize("factor", [1.1, 1.5, 2.0, 4.0])
def test_geometric_rows_stay_within_the_factor_of_what_was_needed(factor):
    pool, table = geometric(start=3, factor=factor), SequenceTable(4)
    sequence = running(table, 1)
    for _ in range(90):
        pool.reserve(plan_of((sequence, 1)))
        most = max(3, -(-pool.most_in_use * factor // 1))
        assert pool.most_in_use <= pool.rows <= most
        assert pool.storage.rows == pool.rows + 1
    assert pool.generation == len(pool.resizes) > 1


def test_a_capacity_is_used_to_its_last_cell_and_not_beyond():
    pool, table = geometric(capacity=10), SequenceTable(4)
    first, second = running(table, 1), running(table, 2)
    pool.reserve(plan_of((first, 6), (second, 4)))
    assert (pool.in_use, pool.room, pool.rows) == (10, 0, 10)
    with pytest.raises(PoolFull, match="1 cells needed, 0 of 10 available"):
        pool.reserve(plan_of((first, 1)))
    assert pool.in_use == 10
    pool.release(2)
    assert sorted(pool.reserve(plan_of((first, 4))).tolist()) == [7, 8, 9, 10]
    assert pool.refusal(10) is None
    assert "11 cells" in pool.refusal(11)


def test_a_growth_that_fails_leaves_the_pool_as_it_was():
    pool, table = geometric(FakeStorage(failing=(2, 3)), start=4), SequenceTable(4)
    sequence = running(table, 1)
    pool.reserve(plan_of((sequence, 4)))
    before = (pool.rows, pool.in_use, pool.generation, len(pool.resizes), pool.cells.held.tolist())
    with pytest.raises(OutOfMemory):
        pool.reserve(plan_of((sequence, 2)))
    assert before == (pool.rows, pool.in_use, pool.generation, len(pool.resizes), pool.cells.held.tolist())
    assert pool.reserve(plan_of((sequence, 2))).tolist() == [5, 6]


def test_where_the_factor_does_not_fit_into_memory_the_need_is_enough():
    pool, table = geometric(FakeStorage(most=11), start=8), SequenceTable(4)
    sequence = running(table, 1)
    pool.reserve(plan_of((sequence, 8)))
    pool.reserve(plan_of((sequence, 2)))
    assert pool.rows == 10


def test_fixed_reserves_a_contiguous_run_for_every_session():
    pool, table = FixedPool(FixedOptions(), PoolBounds(3, 10), FakeStorage()), SequenceTable(3)
    first, second = running(table, 1), running(table, 2)
    assert pool.quote(first) == 10
    cells = pool.reserve(plan_of((first, 2), (second, 3)))
    assert cells.tolist() == [1, 2, 11, 12, 13]
    assert pool.reserve(plan_of((first, 1))).tolist() == [3]
    assert (pool.rows, pool.room, pool.quote(first)) == (30, 10, 0)


def test_a_run_of_fixed_is_not_given_out_while_a_fork_shares_it():
    pool, table = FixedPool(FixedOptions(), PoolBounds(3, 10), FakeStorage()), SequenceTable(3)
    pool.reserve(plan_of((running(table, 1), 4)))
    pool.fork(1, 2, 3)
    pool.release(1)
    assert pool.in_use == 3
    assert pool.reserve(plan_of((running(table, 3), 1))).tolist() == [11]
    assert pool.room == 10
    pool.release(2)
    assert pool.room == 20


@pytest.mark.parametrize(
    "make", [geometric, lambda: FixedPool(FixedOptions(), PoolBounds(4, 100), FakeStorage())]
)
def test_a_shared_prefix_outlives_the_sequence_it_came_from(make):
    pool, table = make(), SequenceTable(4)
    cells = pool.reserve(plan_of((running(table, 1), 4)))
    pool.fork(1, 2, 3)
    ((slot, first, shared),) = pool.take_edits()
    assert (slot, first, shared.tolist()) == (2, 0, cells[:3].tolist())
    pool.release(1)
    assert pool.cells.table[2, :3].tolist() == cells[:3].tolist()
    assert not set(pool.reserve(plan_of((running(table, 3), 4))).tolist()) & set(cells[:3].tolist())


def test_fixed_says_the_sum_when_it_cannot_fit():
    class Small(FakeStorage):
        def free_bytes(self):
            return 100 * 8

    with pytest.raises(UsageError, match=r"128 rows? .*|needs 400 rows \(4 sessions x 100 tokens\)"):
        FixedPool(FixedOptions(), PoolBounds(4, 100), Small())


def test_fixed_says_the_sum_when_the_capacity_is_too_small():
    with pytest.raises(UsageError, match=r"needs 40 rows \(4 sessions x 10 tokens\); the capacity is 39"):
        FixedPool(FixedOptions(), PoolBounds(4, 10, 39), FakeStorage())


def test_a_decode_past_its_run_is_refused_and_the_neighbour_keeps_its_cells():
    pool, table = FixedPool(FixedOptions(), PoolBounds(2, 10), FakeStorage()), SequenceTable(2)
    first, second = running(table, 1, prompt=10), running(table, 2)
    pool.reserve(plan_of((first, 10), (second, 3)))
    with pytest.raises(PoolFull, match="11 cells needed, 10 of 20"):
        pool.reserve(StepPlan(decodes=(first,)))
    assert (pool.in_use, pool.refusals) == (13, 1)
    assert pool.reserve(plan_of((second, 1))).tolist() == [14]


def test_a_cell_that_a_fork_holds_is_not_written_again():
    pool, table = FixedPool(FixedOptions(), PoolBounds(3, 10), FakeStorage()), SequenceTable(3)
    source = running(table, 1)
    pool.reserve(plan_of((source, 4)))
    pool.fork(1, 2, 4)
    pool.rewind(1, 2)
    with pytest.raises(PoolFull):
        pool.reserve(plan_of((source, 1)))
    assert pool.cells.owners[1:5].tolist() == [2, 2, 1, 1]
    pool.release(2)
    assert pool.reserve(plan_of((source, 1))).tolist() == [3]


def test_a_claim_wider_than_the_table_keeps_what_was_there():
    pool, table = GeometricPool(GeometricOptions(), PoolBounds(1, 500), FakeStorage()), SequenceTable(1)
    sequence = running(table, 1, prompt=400)
    cells = np.concatenate([pool.reserve(plan_of((sequence, count))) for count in (60, 10, 200)])
    assert pool.cells.table[1, :270].tolist() == cells.tolist() == list(range(1, 271))
