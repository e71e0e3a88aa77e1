"""Random histories: every sequence reads its own tokens, in one run, whatever moves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from musebench_private.pool import PrivateOptions, PrivatePool

from musebench.core.errors import PoolFull, UnsupportedError
from musebench.core.plan import Slice, StepPlan
from musebench.core.protocols import PoolBounds, Resize
from musebench.core.request import Request
from musebench.core.sequence import Sequence, SequenceTable
from musebench.plugin.registry import Registry
from musebench.run import RunOptions, run

SLOTS = 4


class Rows:
    """A storage of anything."""

    cell_bytes = 8

    def __init__(self) -> None:
        self.content: list = []

    rows = property(lambda self: len(self.content))
    bytes = property(lambda self: 8 * len(self.content))

    def resize(self, rows: int, live: int) -> Resize:
        self.content = self.content[:live] + [None] * (rows - live)
        return Resize(True, live * 8, (rows + live) * 8)

    def move(self, runs) -> int:
        for source, target, count in runs:
            assert min(source, target) >= 1
            assert max(source, target) + count <= self.rows
            self.content[target : target + count] = self.content[source : source + count]
        return 8 * sum(count for _, _, count in runs)

    def free_bytes(self):
        return None


VERBS = st.one_of(
    st.tuples(st.just("take"), st.dictionaries(st.integers(1, SLOTS), st.integers(1, 9), min_size=1)),
    st.tuples(st.just("fork"), st.tuples(st.integers(1, SLOTS), st.integers(1, SLOTS), st.integers(0, 9))),
    st.tuples(st.just("rewind"), st.tuples(st.integers(1, SLOTS), st.integers(0, 20))),
    st.tuples(st.just("release"), st.integers(1, SLOTS)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(VERBS, max_size=40), st.integers(8, 60), st.integers(1, 8))
# A run that was rewound to nothing, before and behind others, when all runs move together.
@example([("take", {1: 1, 2: 4}), ("rewind", (1, 0)), ("take", {1: 1, 2: 1})], 8, 1)
@example([("take", {1: 9, 3: 1, 2: 1}), ("rewind", (2, 0)), ("take", {1: 1, 2: 1, 3: 1})], 18, 1)
# Rewound to nothing, then forked: the run that it had is not where its first cell is.
@example([("take", {1: 3, 2: 1}), ("rewind", (2, 0)), ("fork", (1, 2, 1)), ("take", {1: 1})], 8, 3)
def test_every_sequence_reads_its_own_tokens(verbs, capacity, run_length):
    rows = Rows()
    pool = PrivatePool(PrivateOptions(4, 2.0, capacity, run_length), PoolBounds(SLOTS, 60), rows)
    table = SequenceTable(SLOTS)
    sequences = {
        slot: Sequence(slot, Request(str(slot), range(60), 1), table) for slot in range(1, SLOTS + 1)
    }
    for slot, sequence in sequences.items():
        sequence.enter(slot)
    tokens: dict[int, list] = {slot: [] for slot in sequences}
    device = np.zeros((SLOTS + 1, 100), np.int32)  # the table as edits and steps make it
    written = 0
    for verb, given_values in verbs:
        if verb == "take":
            plan = StepPlan(prefills=tuple(Slice(sequences[s], n) for s, n in given_values.items()))
            in_use = pool.in_use
            try:
                cells = iter(pool.reserve(plan).tolist())
            except PoolFull:
                assert in_use + plan.tokens > capacity
                continue
            for slot, first, changed in pool.take_edits():
                device[slot, first : first + len(changed)] = changed
            for slot, count in given_values.items():
                for _ in range(count):
                    written += 1
                    cell = next(cells)
                    assert device[slot, : len(tokens[slot])].tolist().count(cell) == 0
                    rows.content[cell] = written
                    device[slot, len(tokens[slot])] = cell
                    tokens[slot].append(written)
        elif verb == "fork":
            source, target, upto = given_values
            if tokens[target] or source == target:
                continue
            upto = min(upto, len(tokens[source]))
            pool.fork(source, target, upto)
            tokens[target] = tokens[source][:upto]
        elif verb == "rewind":
            slot, to = given_values
            to = min(to, len(tokens[slot]))
            pool.rewind(slot, to)
            del tokens[slot][to:]
        else:
            pool.release(given_values)
            tokens[given_values] = []
        for slot, first, changed in pool.take_edits():
            device[slot, first : first + len(changed)] = changed
        for slot, held in tokens.items():
            assert [rows.content[cell] for cell in device[slot, : len(held)]] == held
        assert pool.in_use == len({token for held in tokens.values() for token in held})
        assert pool.rows <= capacity
        if not pool.cells.forked:
            for slot, held in tokens.items():
                if held:
                    assert np.diff(device[slot, : len(held)]).tolist() == [1] * (len(held) - 1)
    for slot in tokens:
        pool.release(slot)
    assert pool.in_use == 0


@pytest.mark.parametrize("options", [{}, {"run": 1, "start": 1, "factor": 1.1}])
def test_tokens_are_those_of_geometric_through_moves_and_preemption(options):
    work = {"requests": 8, "prompt_tokens": 20, "output_tokens": 60}

    def mixed(pool: str, chosen: dict):
        given_settings = {"pool": chosen, "workload": work, "backend": {"poison": True}}
        made = RunOptions(
            workload="mixed", pool=pool, max_sessions=8, max_context=128, settings=given_settings
        )
        return run(made, Registry.installed()).runs[0]

    plain, ours = mixed("geometric", {}), mixed("private", {**options, "capacity": 250})
    assert ours.pool.counters["moved cells"] > 0
    assert ours.pool.counters["moved bytes"] == ours.pool.counters["moved cells"] * ours.pool.cell_bytes
    assert ours.pool.preemptions > 0
    assert list(ours.requests.token_ids) == list(plain.requests.token_ids)
    assert ours.left_in_use == 0


def test_a_virtual_clock_pays_for_moves():
    def seconds(**chosen):
        made = RunOptions(
            pool="private", model="llama-3.2-1b", device="sim:h200", executor="graph", workload="mixed",
            settings={"workload": {"requests": 16}, "pool": chosen},
        )  # fmt: skip
        data = run(made, Registry.installed()).runs[0]
        return data.pool.counters["moved cells"], data.steps.end[-1]

    moving, slow = seconds(run=1)
    still, fast = seconds(run=2048)
    assert moving > still == 0
    assert slow > fast


def test_a_storage_that_cannot_move_rows_is_refused():
    class Still:
        pass

    with pytest.raises(UnsupportedError, match="Still cannot; use --pool geometric"):
        PrivatePool(PrivateOptions(), PoolBounds(2, 8), Still())
