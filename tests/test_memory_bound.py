"""The memory stated before a run: its sum, its parts, and that no pool comes to more rows than it said."""

from __future__ import annotations

from fakes import LIMITS, assert_empty, engine_of
from hypothesis import given, settings
from hypothesis import strategies as st

from musebench.core.facts import ModelFacts
from musebench.core.plan import Limits
from musebench.core.protocols import PoolBounds
from musebench.core.request import Request
from musebench.report.bound import activation_bytes, bound_table, memory_bound, most_cells

FACTS = ModelFacts(
    name="tiny", family="llama", layers=2, hidden=8, heads=4, kv_heads=2, head_dim=2, intermediate=16,
    vocab=32, max_context=64, dtype="bfloat16", parameters=1000, active_parameters=1000,
)  # fmt: skip


@settings(max_examples=40)
@given(
    requests=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 40)), min_size=1, max_size=10),
    factor=st.sampled_from([1.1, 1.5, 2.0, 3.0]),
    start=st.integers(1, 40),
    capacity=st.one_of(st.none(), st.integers(100, 300)),
    pool=st.sampled_from(["geometric", "fixed"]),
)
def test_no_pool_comes_to_more_rows_than_it_said(requests, factor, start, capacity, pool):
    options = {"factor": factor, "start": start} if pool == "geometric" else {}
    limit = capacity if pool == "geometric" else None
    engine = engine_of(pool=pool, pool_options=options, capacity=limit)
    made = [Request(str(index), range(prompt), new) for index, (prompt, new) in enumerate(requests)]
    cells = most_cells((one.cells_needed for one in made), LIMITS.most_sequences)
    cells = min(cells, engine.pool.capacity)
    most, passing = engine.pool.most_rows(cells), engine.pool.passing_rows(cells)
    engine.run(made)
    assert_empty(engine)
    assert engine.pool.most_in_use <= cells
    assert engine.pool.rows <= most
    before = 0
    for rows, _, _ in engine.pool.resizes:
        assert before <= passing + 1  # both with scratch
        assert rows <= most + 1
        before = rows


def test_activations_are_the_sum_that_is_written_down():
    # 10 tokens x (3 x 8 + 2 x (4 + 2 x 2) x 2 + 3 x 16) x 2 bytes, and 3 rows x 32 ids x (2 + 4) bytes
    assert activation_bytes(FACTS, 10, 3) == 10 * (24 + 32 + 48) * 2 + 3 * 32 * 6


def test_the_bound_is_the_sum_of_its_parts_and_says_how_each_came_about():
    pool = engine_of(pool_options={"start": 8}, capacity=100).pool
    bounds = PoolBounds(4, 128, 100)
    bound = memory_bound(FACTS, Limits(), bounds, pool, 32, [20, 10, 5, 5, 1], 512, 0)
    assert bound.weights == 2000
    assert bound.rows == (80 + 1) * 32  # 40 cells in the four largest sessions, times the factor
    assert bound.growth == (40 + 1) * 32
    assert bound.graphs == 0
    parts = (bound.weights, bound.rows, bound.growth, bound.workspace, bound.graphs, bound.activations)
    assert bound.total == sum(parts)
    table = bound_table(bound)
    assert table.rows[-1].values == (bound.total,)
    assert "rows: (80 rows under 'geometric' + scratch) x 32 bytes" in table.notes[1]
    assert memory_bound(FACTS, Limits(), bounds, pool, 32, [20], 512, 5).graphs > 0


def test_a_pool_that_does_not_say_is_taken_at_its_capacity():
    class Silent:
        name = "silent"
        capacity = 77

    bound = memory_bound(FACTS, Limits(), PoolBounds(4, 128), Silent(), 32, [20], 512, 0)
    assert (bound.rows, bound.growth) == (78 * 32, 78 * 32)
