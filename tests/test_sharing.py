"""What the engine does with a pool that shares: tokens stay right, nothing is computed twice, and every way
out of a step gives back what was shared."""

from __future__ import annotations

import pytest
from fakes import (
    LIMITS,
    REGISTRY,
    SCHEDULERS,
    Careless,
    FakeBackend,
    FaultyExecutor,
    NarrowExecutor,
    assert_consistent,
    assert_empty,
    assert_right,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from musebench.core.engine import Engine
from musebench.core.options import NoOptions
from musebench.core.plan import Limits
from musebench.core.protocols import PoolBounds
from musebench.core.request import FinishReason, Request
from musebench.core.sharing import sharing_of
from musebench.pools.geometric import GeometricOptions, GeometricPool


class CommonPool(GeometricPool):
    """Shares what a sequence has in common with one that runs, to the token."""

    def __init__(self, options, bounds, storage) -> None:
        super().__init__(options, bounds, storage)
        self.running = {}
        self.forgotten = 0

    def forget(self) -> None:
        self.forgotten += 1

    def best(self, sequence, most):
        tokens = [*sequence.request.prompt, *sequence.generated_tokens()][:most]
        found, source = 0, 0
        for slot, other in self.running.items():
            theirs = [*other.request.prompt, *other.generated_tokens()][: int(self.cells.held[slot])]
            differ = (at for at, (one, two) in enumerate(zip(tokens, theirs, strict=False)) if one != two)
            common = next(differ, min(len(tokens), len(theirs)))
            if common > found and slot != sequence.slot:
                found, source = common, slot
        return found, source

    def held(self, sequence, most):
        return self.best(sequence, most)[0]

    def adopt(self, sequence, most):
        found, source = self.best(sequence, most)
        if found:
            self.fork(source, sequence.slot, found)
        return found

    def reserve(self, plan):
        cells = super().reserve(plan)
        self.running.update({sequence.slot: sequence for sequence in plan.sequences()})
        return cells

    def release(self, slot):
        super().release(slot)
        self.running.pop(slot, None)


def engine_with(
    scheduler="chunked", limits=LIMITS, capacity=None, overlap=False, executor=None, on_step=None
) -> Engine:
    bounds = PoolBounds(limits.most_sequences, 128, capacity)
    backend = FakeBackend(bounds)
    pool = CommonPool(GeometricOptions(4, 1.5), bounds, backend.storage())
    made = (executor or (lambda b, own: FaultyExecutor(NoOptions(), b, own)))(backend, limits)
    planner = REGISTRY.get("scheduler", scheduler).make({}) if isinstance(scheduler, str) else scheduler
    return Engine(
        planner, pool, made, backend.clock, limits, bounds.max_sessions, 128, overlap, on_step
    )  # fmt: skip


def test_only_pools_that_say_so_share():
    assert sharing_of(engine_with().pool) is not None
    bounds = PoolBounds(2, 16)
    assert sharing_of(GeometricPool(GeometricOptions(), bounds, FakeBackend(bounds).storage())) is None


tokens = st.lists(st.integers(0, 2), max_size=30)


@settings(max_examples=150)
@given(
    shared=st.lists(tokens, min_size=1, max_size=3),
    drawn=st.lists(
        st.tuples(st.integers(0, 2), st.lists(st.integers(0, 2), min_size=1, max_size=6), st.integers(0, 20),
                  st.sampled_from([0.0, 2.0, 5.5])),
        min_size=1, max_size=8,
    ),
    scheduler=st.sampled_from(SCHEDULERS),
    overlap=st.booleans(),
    sequences=st.integers(1, 5),
    fewest=st.sampled_from([1, 1, 3]),
    extra=st.integers(0, 20),
    tight=st.booleans(),
    failing=st.sets(st.integers(1, 25), max_size=3),
    late=st.booleans(),
    narrow=st.booleans(),
    cancels=st.dictionaries(st.integers(0, 30), st.integers(0, 7), max_size=2),
)  # fmt: skip
def test_runs_that_share_end_with_right_tokens_and_sums(
    shared, drawn, scheduler, overlap, sequences, fewest, extra, tight, failing, late, narrow, cancels
):
    limits = Limits(fewest, 2 * fewest - 1 + extra // 2, sequences, 2 * fewest - 1 + extra)
    made = [
        Request(f"r{i}", (*shared[group % len(shared)], *own), new, arrival_seconds=arrival)
        for i, (group, own, new, arrival) in enumerate(drawn)
    ]
    capacity = max(request.cells_needed for request in made) + 5 if tight else None

    def on_step(engine: Engine) -> None:
        assert_consistent(engine)
        for step, index in cancels.items():
            if len(engine.recorder.steps) == step and index < len(made):
                engine.cancel(f"r{index}")

    kind = NarrowExecutor if narrow else FaultyExecutor
    engine = engine_with(
        scheduler, limits, capacity, overlap, lambda b, own: kind(NoOptions(), b, own, failing, late), on_step
    )
    recorder = engine.run(made)
    assert engine.pool.forgotten == 1
    assert_right(engine)
    assert_empty(engine)
    assert all(sequence.reused >= 0 for sequence in recorder.sequences)
    if recorder.failed_steps or cancels:
        return
    assert all(sequence.finish_reason.succeeded for sequence in recorder.sequences)
    if recorder.preemptions == 0:
        for sequence in recorder.sequences:
            assert sequence.reused <= max(len(sequence.request.prompt) - fewest, 0)
        computed = sum(step.prefill_tokens for step in recorder.steps)
        reused = sum(sequence.reused for sequence in recorder.sequences)
        assert computed + reused == sum(len(r.prompt) for r in made if r.max_new_tokens)


def test_the_budget_of_a_step_goes_to_what_is_left_of_prompts():
    limits = Limits(1, 40, 4, 40)
    engine = engine_with(limits=limits)
    common = tuple(range(36))
    engine.run([
        Request("first", (*common, 1), 12),
        *(Request(name, (*common, 2, index), 4, arrival_seconds=1.5) for index, name in enumerate("abc")),
    ])  # fmt: skip
    assert_right(engine)
    assert [sequence.reused for sequence in engine.recorder.sequences] == [0, 36, 36, 36]
    starts = {sequence.scheduled_seconds for sequence in engine.recorder.sequences[1:]}
    assert len(starts) == 1  # three prompts of 38 tokens in one step of 40


@pytest.mark.parametrize("fewest", [1, 4])
def test_a_plan_that_knows_of_no_sharing_is_shortened(fewest):
    engine = engine_with(Careless(), Limits(fewest, 60, 4, 240))
    common = tuple(range(30))
    engine.run([
        Request("first", (*common, 1), 12),
        Request("second", (*common, 2), 5, arrival_seconds=1.5),
    ])  # fmt: skip
    assert_right(engine)
    assert [sequence.reused for sequence in engine.recorder.sequences] == [0, min(30, 31 - fewest)]
    assert engine.recorder.sequences[1].finish_reason is FinishReason.LENGTH
