"""Cells against a model of ten lines, and what pools promise."""

from __future__ import annotations

import numpy as np
import pytest
from fakes import FakeStorage
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from musebench.core.cells import Cells
from musebench.core.errors import OutOfMemory, PoolFull, UsageError
from musebench.core.plan import Slice, StepPlan
from musebench.core.protocols import PoolBounds
from musebench.core.request import Request
from musebench.core.sequence import Sequence, SequenceTable
from musebench.pools.fixed import FixedOptions, FixedPool
from musebench.pools.geometric import GeometricOptions, GeometricPool

SLOTS = 5


class CellsAgainstAModel(RuleBasedStateMachine):
    """The model: a list of cells a slot. Everything else follows from it."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = Cells(SLOTS)
        self.model: dict[int, list[int]] = {slot: [] for slot in range(1, SLOTS + 1)}

    def owned(self) -> set[int]:
        return {cell for cells in self.model.values() for cell in cells}

    @rule(rows=st.integers(1, 20))
    def grow(self, rows):
        self.cells.grow(self.cells.rows + rows)

    @rule(slot=st.integers(1, SLOTS), count=st.integers(1, 9))
    def claim(self, slot, count):
        free = sorted(set(range(1, self.cells.rows + 1)) - self.owned())
        if count > len(free):
            with pytest.raises(ValueError, match="are free"):
                self.cells.lowest(count)
            return
        cells = self.cells.lowest(count)
        assert cells.tolist() == free[:count]
        held = len(self.model[slot])
        positions = np.arange(held, held + count, dtype=np.int32)
        self.cells.claim(np.full(count, slot, np.int32), positions, cells)
        self.cells.taken_below(int(cells[-1]) + 1)
        self.model[slot] += cells.tolist()

    @rule(source=st.integers(1, SLOTS), into=st.integers(1, SLOTS), data=st.data())
    def fork(self, source, into, data):
        upto = data.draw(st.integers(0, len(self.model[source])))
        if self.model[into]:
            with pytest.raises(ValueError, match="only an empty slot"):
                self.cells.fork(source, into, upto)
            return
        self.cells.fork(source, into, upto)
        self.model[into] = self.model[source][:upto]

    @precondition(lambda self: any(self.model.values()))
    @rule(slot=st.integers(1, SLOTS), data=st.data())
    def rewind(self, slot, data):
        to = data.draw(st.integers(0, len(self.model[slot])))
        self.cells.rewind(slot, to)
        del self.model[slot][to:]

    @invariant()
    def agrees(self):
        assert self.cells.in_use == len(self.owned())
        assert self.cells.owners[0] == 1
        for cell in range(1, self.cells.rows + 1):
            assert self.cells.owners[cell] == sum(cell in cells for cells in self.model.values())
        for slot, cells in self.model.items():
            assert self.cells.table[slot, : self.cells.held[slot]].tolist() == cells


TestCellsAgainstAModel = CellsAgainstAModel.TestCase
TestCellsAgainstAModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def running(table: SequenceTable, slot: int, prompt: int = 4, new: int = 100) -> Sequence:
    sequence = Sequence(slot, Request(str(slot), range(prompt), new), table)
    sequence.enter(slot)
    return sequence


def plan_of(*counts: tuple[Sequence, int]) -> StepPlan:
    return StepPlan(prefills=tuple(Slice(sequence, count) for sequence, count in counts))


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
