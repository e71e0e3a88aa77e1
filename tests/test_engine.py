"""The engine over fakes: every run ends, every token is right, every cell comes back."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from fakes import (
    POOLS,
    SCHEDULERS,
    Careless,
    FakeStorage,
    FaultyExecutor,
    NarrowExecutor,
    assert_consistent,
    assert_empty,
    assert_right,
    engine_of,
    reference,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from musebench.core.engine import Engine
from musebench.core.errors import StepFailed
from musebench.core.options import NoOptions
from musebench.core.plan import Limits, Slice, StepPlan
from musebench.core.request import FinishReason, Request, Sampling
from musebench.core.sequence import Phase, Sequence
from musebench.executors.graph import GraphExecutor, GraphOptions

requests = st.lists(
    st.builds(
        lambda prompt, new, stops, arrival: (prompt, new, stops, arrival),
        st.lists(st.integers(0, 49), min_size=1, max_size=60),
        st.integers(0, 25),
        st.lists(st.integers(0, 49), max_size=4),
        st.sampled_from([0.0, 0.0, 0.0, 3.0, 7.5]),
    ),
    min_size=1,
    max_size=9,
)


@settings(max_examples=200)
@given(
    drawn=requests,
    scheduler=st.sampled_from(SCHEDULERS),
    pool=st.sampled_from(POOLS),
    overlap=st.booleans(),
    sequences=st.integers(1, 5),
    slots=st.integers(1, 5),
    fewest=st.sampled_from([1, 2, 5]),
    extra=st.integers(0, 30),
    tight=st.booleans(),
    failing=st.sets(st.integers(1, 30), max_size=3),
    late=st.booleans(),
    narrow=st.booleans(),
    cancels=st.dictionaries(st.integers(0, 40), st.integers(0, 8), max_size=3),
    failing_growth=st.sets(st.integers(1, 4), max_size=1),
)
def test_every_run_ends_with_right_tokens_and_no_cell_lost(
    drawn, scheduler, pool, overlap, sequences, slots, fewest, extra, tight, failing, late, narrow, cancels,
    failing_growth,
):  # fmt: skip
    limits = Limits(fewest, 2 * fewest - 1 + extra // 2, sequences, 2 * fewest - 1 + extra)
    made = [
        Request(f"r{index}", tuple(prompt), new, tuple(stops), arrival_seconds=arrival)
        for index, (prompt, new, stops, arrival) in enumerate(drawn)
    ]
    # Holds the largest request alone, and little more.
    capacity = max(request.cells_needed for request in made) + 5 if tight and pool == "geometric" else None
    storage = FakeStorage(failing=tuple(failing_growth))

    def on_step(engine: Engine) -> None:
        assert_consistent(engine)
        for step, index in cancels.items():
            if len(engine.recorder.steps) == step and index < len(made):
                engine.cancel(f"r{index}")
                assert engine._by_id[f"r{index}"].phase is Phase.FINISHED

    kind = NarrowExecutor if narrow else FaultyExecutor
    engine = engine_of(
        scheduler, pool, limits, capacity, overlap=overlap, storage=storage, on_step=on_step, slots=slots,
        executor=lambda backend, own: kind(NoOptions(), backend, own, failing, late),
        pool_options={"start": "4", "factor": "1.5"} if pool == "geometric" else None,
    )  # fmt: skip
    recorder = engine.run(made)
    assert all(sequence.finish_reason is not None for sequence in recorder.sequences)
    assert_right(engine)
    assert_empty(engine)
    for sequence in recorder.sequences:
        out = 1 if sequence.preemptions and not sequence.finish_reason.succeeded else 0
        assert len(sequence.pauses) in (2 * sequence.preemptions, 2 * sequence.preemptions - out)
        assert list(sequence.pauses) == sorted(sequence.pauses)
    sessions = [sequence.session for sequence in recorder.sequences]
    assert len(set(sessions)) == len(made)
    if not failing and not failing_growth and not cancels:
        assert all(sequence.finish_reason.succeeded for sequence in recorder.sequences)
    if not recorder.failed_steps:
        assert not any(sequence.finish_reason is FinishReason.FAILED for sequence in recorder.sequences)
    own = engine.executor.limits
    for batch in engine.executor.backend.batches:
        assert batch.tokens <= own.most_tokens
        assert batch.sequences <= min(own.most_sequences, slots)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("pool", POOLS)
def test_overlap_changes_no_token(scheduler, pool):
    made = [Request(f"r{i}", tuple(range(i, i + 5 + 3 * i)), 12, (i, 7)) for i in range(8)]
    tokens = []
    for overlap in (False, True):
        engine = engine_of(scheduler, pool, overlap=overlap)
        engine.run(made)
        assert_right(engine)
        assert_empty(engine)
        tokens.append([sequence.generated_tokens() for sequence in engine.recorder.sequences])
    assert tokens[0] == tokens[1]


def test_a_request_larger_than_the_pool_is_refused_by_name_and_the_others_finish():
    engine = engine_of(capacity=20)
    engine.run([Request("large", range(40), 10), Request("small", range(5), 4)])
    large, small = engine.recorder.sequences
    assert large.finish_reason is FinishReason.REFUSED
    assert "'large'" in large.message
    assert "49 cells" in large.message
    assert "20" in large.message
    assert small.finish_reason is FinishReason.LENGTH


def test_two_long_requests_in_a_pool_of_one_and_a_half_both_finish():
    engine = engine_of(capacity=45)
    engine.run([Request("a", range(10), 21), Request("b", range(3, 13), 21)])
    assert_right(engine)
    assert_empty(engine)
    assert 1 <= engine.recorder.preemptions <= 3
    assert engine.recorder.sequences[0].preemptions == 0  # the oldest always advances


def test_a_step_wider_than_the_program_is_cut_into_several_in_order():
    engine = engine_of(executor=lambda backend, limits: NarrowExecutor(NoOptions(), backend, limits))
    engine.run([Request(f"r{i}", range(i, i + 20), 6) for i in range(5)])
    assert_right(engine)
    assert_empty(engine)
    assert all(batch.tokens <= 6 for batch in engine.executor.backend.batches)
    assert all(batch.sequences <= 2 for batch in engine.executor.backend.batches)
    assert max(sum(step.programs.values()) for step in engine.recorder.steps) > 1


def test_graphs_pad_to_the_ladder_and_are_captured_again_when_the_pool_moved():
    engine = engine_of(
        executor=lambda backend, limits: GraphExecutor(GraphOptions((2, 4)), backend, limits),
        pool_options={"start": "4"},
    )
    engine.run([Request(f"r{i}", range(i, i + 4), 9 + i) for i in range(3)])
    assert_right(engine)
    counters = engine.executor.counters()
    assert counters["captures"] == 2
    assert counters["recaptures"] >= 1
    assert counters["fallbacks"] == 0
    assert sum(step.padded_tokens for step in engine.recorder.steps) > 0
    assert {batch.layout.tokens for batch in engine.executor.backend.batches if batch.layout.decode} == {2, 4}


def test_a_batch_wider_than_the_ladder_is_run_eagerly_and_counted():
    engine = engine_of(executor=lambda backend, limits: GraphExecutor(GraphOptions((1,)), backend, limits))
    engine.run([Request(f"r{i}", range(i, i + 4), 9) for i in range(3)])
    assert_right(engine)
    assert engine.executor.counters()["fallbacks"] > 0
    assert sum(step.programs.get("eager fallback", 0) for step in engine.recorder.steps) > 0


def test_a_failed_step_condemns_only_what_was_in_it():
    engine = engine_of(
        scheduler="solo",
        executor=lambda backend, limits: FaultyExecutor(NoOptions(), backend, limits, failing={2}),
    )
    engine.run([Request("a", range(4), 5), Request("b", range(4), 5)])
    first, second = engine.recorder.sequences
    assert first.finish_reason is FinishReason.FAILED
    assert "planted at execution 2" in first.message
    assert second.finish_reason is FinishReason.LENGTH
    assert engine.recorder.failed_steps == 1


@pytest.mark.parametrize("phase", ["waiting", "prefill", "decode", "finished"])
@pytest.mark.parametrize("overlap", [False, True])
def test_a_cancel_in_any_phase_gives_its_cells_back_and_touches_nobody_else(phase, overlap):
    limits = Limits(most_prefill=4, most_sequences=2, most_tokens=6)
    name = "c" if phase == "waiting" else "b"
    ended = []

    def on_step(engine: Engine) -> None:
        if engine._by_id[name].phase.value == phase and not ended:
            ended.append(None)  # what is in flight lands inside of cancel, and calls this again
            ended[0] = engine.cancel(name)

    made = [Request("a", range(6), 8), Request("b", range(14), 5), Request("c", range(3, 9), 4)]
    engine = engine_of(limits=limits, overlap=overlap, on_step=on_step)
    engine.run(made)
    assert ended == [phase != "finished"]
    for sequence in engine.recorder.sequences:
        if sequence.request.id == name and phase != "finished":
            assert sequence.finish_reason is FinishReason.CANCELLED
        else:
            assert sequence.generated_tokens() == reference(sequence.request)
    assert_right(engine)
    assert_empty(engine)
    with pytest.raises(ValueError, match="submitted before"):
        engine.submit(Request("b", range(3), 1))


def test_a_stop_wins_over_the_limit_when_both_fall_together():
    made = reference(Request("r", range(5), 6))
    stop = made[-1]
    count = made.index(stop) + 1
    engine = engine_of()
    engine.run([Request("r", range(5), count, (stop,))])
    (sequence,) = engine.recorder.sequences
    assert sequence.finish_reason is FinishReason.STOP
    assert sequence.generated_tokens() == made[:count]


def test_a_request_for_no_token_is_finished_and_makes_none():
    engine = engine_of()
    engine.run([Request("none", range(5), 0)])
    (sequence,) = engine.recorder.sequences
    assert sequence.finish_reason is FinishReason.LENGTH
    assert sequence.generated_tokens() == []
    assert engine.recorder.steps == []


def test_arrivals_are_waited_for():
    engine = engine_of()
    engine.run([Request("late", range(3), 2, arrival_seconds=50.0), Request("now", range(3), 2)])
    late, now = engine.recorder.sequences
    assert late.scheduled_seconds >= 50.0
    assert now.finish_seconds < 50.0


def test_a_plan_cannot_be_changed():
    plan = StepPlan()
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.decodes = ()
    assert isinstance(plan.decodes, tuple)


def test_sampling_is_packed_per_row():
    sampling = Sampling(0.5, 3, 0.25, 2**40 + 5)
    engine = engine_of()
    engine.run([Request("drawn", range(4), 2, sampling=sampling), Request("greedy", range(3), 2)])
    batch = next(batch for batch in engine.executor.backend.batches if batch.rows == 2)
    fields = batch.fields
    assert batch.layout.sampled
    assert fields.temperature.view(np.float32).tolist() == [0.5, 0.0]
    assert fields.top_p.view(np.float32).tolist() == [0.25, 1.0]
    assert fields.top_k.tolist() == [3, 0]
    low, high = fields.seed_low.view(np.uint32).tolist()[0], fields.seed_high.tolist()[0]
    assert low + (high << 32) == 2**40 + 5
    assert fields.sample_positions.tolist() == [4, 3]


def test_a_request_cancelled_before_it_arrives_is_not_waited_for():
    engine = engine_of(on_step=lambda engine: engine.cancel("far"))
    engine.run([Request("far", range(3), 3, arrival_seconds=1e6), Request("near", range(3), 3)])
    far, near = engine.recorder.sequences
    assert (far.finish_reason, near.finish_reason) == (FinishReason.CANCELLED, FinishReason.LENGTH)
    assert engine.now() < 10.0


def failing_step(engine: Engine) -> list[StepFailed]:
    """Steps to the end, trying again what failed; the failures."""
    failures = []
    while not engine.idle:
        try:
            engine.step()
        except StepFailed as failure:
            assert_consistent(engine)
            failures.append(failure)
    return failures


def test_sequences_of_a_step_that_came_back_failed_wait_in_their_order():
    limits = Limits(most_prefill=4, most_sequences=4, most_tokens=8)
    engine = engine_of(
        "continuous", limits=limits, overlap=True,
        executor=lambda backend, own: FaultyExecutor(NoOptions(), backend, own, {1}, late=True),
    )  # fmt: skip
    for name in "abcdef":
        engine.submit(Request(name, range(4), 3))
    engine.step()
    with pytest.raises(StepFailed, match="planted at execution 1"):
        engine.step()
    assert [sequence.request.id for sequence in engine.waiting] == list("abcdef")
    assert engine.pool.in_use == 0
    assert failing_step(engine) == []
    assert_right(engine)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("pool", POOLS)
def test_a_step_can_be_tried_again_after_it_failed_part_way(pool, overlap, late):
    engine = engine_of(
        pool=pool, overlap=overlap,
        executor=lambda backend, own: NarrowExecutor(NoOptions(), backend, own, set(range(4, 60, 5)), late),
    )  # fmt: skip
    for index in range(4):
        engine.submit(Request(f"r{index}", range(index, index + 6), 10))
    assert len(failing_step(engine)) > 2
    assert all(sequence.finish_reason is FinishReason.LENGTH for sequence in engine.recorder.sequences)
    assert_right(engine)
    assert_empty(engine)


def test_growths_are_recorded_with_the_step_they_were_for_when_steps_failed():
    engine = engine_of(
        overlap=True, pool_options={"start": "2", "factor": "1.2"},
        executor=lambda backend, own: FaultyExecutor(NoOptions(), backend, own, {2, 3}, late=True),
    )  # fmt: skip
    engine.run([Request(name, range(4), 12) for name in "abcdefgh"])
    last = {growth.step: growth.rows for growth in engine.recorder.growths}
    assert len(last) > 3
    assert last == {step: engine.recorder.steps[step].rows for step in last}
    assert_right(engine)


def test_a_cancel_beside_a_step_that_fails_is_not_lost():
    ended = []

    def on_step(engine: Engine) -> None:
        if len(engine.recorder.steps) == 2 and not ended:
            ended.append(engine.cancel("b"))

    engine = engine_of(
        "continuous", overlap=True, on_step=on_step,
        executor=lambda backend, own: FaultyExecutor(NoOptions(), backend, own, {3}, late=True),
    )  # fmt: skip
    engine.run([Request("a", range(4), 9), Request("b", range(4), 9, arrival_seconds=2.0)])
    a, b = engine.recorder.sequences
    assert ended == [True]
    assert (a.finish_reason, b.finish_reason) == (FinishReason.FAILED, FinishReason.CANCELLED)
    assert_empty(engine)


def test_a_growth_that_fails_ends_what_was_in_the_step_and_the_rest_goes_on():
    engine = engine_of("solo", storage=FakeStorage(most=12), pool_options={"start": "4"})
    engine.run([Request("long", range(20), 5), Request("short", range(5), 5)])
    long, short = engine.recorder.sequences
    assert long.finish_reason is FinishReason.FAILED
    assert "OutOfMemory" in long.message
    assert short.finish_reason is FinishReason.LENGTH
    assert_right(engine)
    assert_empty(engine)


def test_nobody_who_runs_ends_because_a_scheduler_admits_too_much():
    engine = engine_of(limits=Limits(1, 200, 4, 400), capacity=45)
    engine.scheduler = Careless()
    engine.run([Request(name, range(10), 21) for name in "abcd"])
    assert [sequence.finish_reason for sequence in engine.recorder.sequences] == [FinishReason.LENGTH] * 4
    assert engine.recorder.sequences[0].preemptions == 0
    assert_right(engine)
    assert_empty(engine)


class Wrong:
    name = "wrong"

    def __init__(self, make) -> None:
        self.plan = lambda waiting, running, limits, pool: make(waiting, running)


def whole(*sequences: Sequence) -> tuple[Slice, ...]:
    return tuple(Slice(one, one.remaining) for one in sequences)


def stranger() -> Sequence:
    ended = engine_of()
    ended.run([Request("ended", range(3), 2)])
    return ended.recorder.sequences[0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda w, r: StepPlan((), whole(*w, *w)), "planned twice"),
        (lambda w, r: StepPlan((), tuple(Slice(one, 0) for one in w)), "a slice of 0"),
        (lambda w, r: StepPlan((), tuple(Slice(one, 9) for one in w)), "a slice of 9"),
        (lambda w, r: StepPlan(tuple(w)), "cannot decode"),
        (lambda w, r: StepPlan((), (Slice(stranger(), 1),)), "a slice of 1|neither waits"),
        (lambda w, r: StepPlan(), "planned nothing"),
    ],
    ids=["twice", "empty slice", "too long", "decode of a prompt", "a stranger", "nothing"],
)
def test_a_wrong_plan_is_named_before_anything_changed(make, message):
    engine = engine_of()
    engine.scheduler = Wrong(make)
    with pytest.raises(RuntimeError, match=f"scheduler 'wrong'.*({message})"):
        engine.run([Request(name, range(4), 3) for name in "ab"])
    assert engine.pool.in_use == 0
    assert len(engine._free_slots) == engine.table.slots
    assert [sequence.phase for sequence in engine.waiting] == [Phase.WAITING] * 2


def test_a_plan_beyond_the_limits_is_named():
    engine = engine_of(limits=Limits(1, 4, 2, 5))
    engine.scheduler = Wrong(lambda waiting, running: StepPlan((), whole(*waiting)))
    with pytest.raises(RuntimeError, match="6 tokens of 2 sequences; at most 5 tokens of 2 sequences"):
        engine.run([Request(name, range(3), 3) for name in "ab"])


def test_the_same_run_twice_is_the_same_to_the_last_number():
    made = [
        Request(f"r{i}", tuple(range(i, i + 5 + 3 * i)), 12, (i,), arrival_seconds=i / 2) for i in range(8)
    ]
    seen = []
    for _ in range(2):
        engine = engine_of(capacity=60, overlap=True)
        engine.run(made)
        seen.append(([dataclasses.asdict(step) for step in engine.recorder.steps], engine.pool.counters()))
    assert seen[0] == seen[1]
