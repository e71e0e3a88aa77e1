"""The engine over fakes: every run ends, every token is right, every cell comes back."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from fakes import FakeBackend, FakeStorage, FaultyExecutor, reference
from hypothesis import given, settings
from hypothesis import strategies as st

from musebench.core.engine import Engine
from musebench.core.forwards import cut_to_limits
from musebench.core.options import NoOptions
from musebench.core.plan import Limits, Slice, StepPlan
from musebench.core.planning import slice_tokens
from musebench.core.protocols import PoolBounds
from musebench.core.request import FinishReason, Request, Sampling
from musebench.core.sequence import Phase, Sequence, SequenceTable
from musebench.executors.graph import GraphExecutor, GraphOptions
from musebench.plugin.registry import Registry

REGISTRY = Registry.installed()
SCHEDULERS = ("solo", "static", "continuous", "chunked")
POOLS = ("geometric", "fixed")
LIMITS = Limits(most_prefill=16, most_sequences=4, most_tokens=24)


def engine_of(
    scheduler="chunked", pool="geometric", limits=LIMITS, capacity=None, context=128, overlap=False,
    executor=None, storage=None, on_step=None, pool_options=None,
) -> Engine:  # fmt: skip
    bounds = PoolBounds(limits.most_sequences, context, capacity)
    backend = FakeBackend(bounds, storage)
    made = (executor or (lambda b, li: FaultyExecutor(NoOptions(), b, li)))(backend, limits)
    return Engine(
        REGISTRY.get("scheduler", scheduler).make({}),
        REGISTRY.get("pool", pool).make(pool_options or {}, bounds, backend.storage()),
        made, backend.clock, limits, bounds.max_sessions, context, overlap, on_step,
    )  # fmt: skip


def assert_empty(engine: Engine) -> None:
    """No cell, slot or sequence is left behind."""
    assert engine.idle
    assert engine.pool.in_use == 0
    assert not engine.pool.cells.held.any()
    assert sorted(engine._free_slots) == list(range(1, engine.table.slots + 1))


def assert_right(engine: Engine) -> None:
    for sequence in engine.recorder.sequences:
        made, expected = sequence.generated_tokens(), reference(sequence.request)
        if sequence.finish_reason in (FinishReason.STOP, FinishReason.LENGTH):
            assert made == expected
            stopped = bool(made) and made[-1] in sequence.request.stop_tokens
            assert sequence.finish_reason is (FinishReason.STOP if stopped else FinishReason.LENGTH)
        else:
            assert made == expected[: len(made)]
        if made:
            steps = engine.recorder.steps
            ends = [steps[step].end for step in sequence.rest_steps[: len(made)]]
            assert ends == sorted(ends)
            assert sequence.first_token_seconds == ends[0]
            assert sequence.last_token_seconds == ends[-1]
            times = (sequence.arrival_seconds, sequence.scheduled_seconds, ends[0], ends[-1])
            assert list(times) == sorted(times)
            assert sequence.finish_seconds >= ends[-1]


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


@settings(max_examples=300, deadline=None)
@given(
    drawn=requests,
    scheduler=st.sampled_from(SCHEDULERS),
    pool=st.sampled_from(POOLS),
    overlap=st.booleans(),
    sequences=st.integers(1, 5),
    fewest=st.sampled_from([1, 2, 5]),
    extra=st.integers(0, 30),
    tight=st.booleans(),
    failing=st.sets(st.integers(1, 30), max_size=3),
    late=st.booleans(),
    cancels=st.dictionaries(st.integers(0, 40), st.integers(0, 8), max_size=3),
    failing_growth=st.sets(st.integers(1, 4), max_size=1),
)
def test_every_run_ends_with_right_tokens_and_no_cell_lost(
    drawn, scheduler, pool, overlap, sequences, fewest, extra, tight, failing, late, cancels, failing_growth
):
    limits = Limits(fewest, 2 * fewest - 1 + extra // 2, sequences, 2 * fewest - 1 + extra)
    made = [
        Request(f"r{index}", tuple(prompt), new, tuple(stops), arrival_seconds=arrival)
        for index, (prompt, new, stops, arrival) in enumerate(drawn)
    ]
    # Holds the largest request alone, and little more.
    capacity = max(request.cells_needed for request in made) + 5 if tight and pool == "geometric" else None
    storage = FakeStorage(failing=tuple(failing_growth))

    def cancel(engine: Engine) -> None:
        for step, index in cancels.items():
            if len(engine.recorder.steps) == step and index < len(made):
                engine.cancel(f"r{index}")

    engine = engine_of(
        scheduler, pool, limits, capacity, overlap=overlap, storage=storage, on_step=cancel,
        executor=lambda backend, own: FaultyExecutor(NoOptions(), backend, own, failing, late),
    )  # fmt: skip
    recorder = engine.run(made)
    assert all(sequence.finish_reason is not None for sequence in recorder.sequences)
    assert_right(engine)
    assert_empty(engine)
    sessions = [sequence.session for sequence in recorder.sequences]
    assert len(set(sessions)) == len(made)
    if not failing and not failing_growth and not cancels:
        assert all(sequence.finish_reason.succeeded for sequence in recorder.sequences)
    for batch in engine.executor.backend.batches:
        assert batch.tokens <= limits.most_tokens
        assert batch.sequences <= limits.most_sequences


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


class NarrowExecutor(FaultyExecutor):
    def __init__(self, options, backend, limits) -> None:
        super().__init__(options, backend, limits)
        self.limits = Limits(most_prefill=5, most_sequences=2, most_tokens=6)


def test_a_step_wider_than_the_program_is_cut_into_several_in_order():
    engine = engine_of(executor=lambda backend, limits: NarrowExecutor(NoOptions(), backend, limits))
    engine.run([Request(f"r{i}", range(i, i + 20), 6) for i in range(5)])
    assert_right(engine)
    assert_empty(engine)
    for batch in engine.executor.backend.batches:
        assert batch.tokens <= 6
        assert batch.sequences <= 2
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


# -- schedulers -------------------------------------------------------------------------------------------


@given(remaining=st.integers(1, 200), budget=st.integers(1, 64), fewest=st.integers(1, 16), data=st.data())
def test_slices_end_a_prompt_without_falling_below_the_fewest(remaining, budget, fewest, data):
    most = data.draw(st.integers(2 * fewest - 1, 2 * fewest + 40))
    limits = Limits(fewest, most, 4, max(most, budget))
    first = True
    while remaining:
        count = slice_tokens(remaining, limits.most_tokens if not first else budget, limits)
        if first and count == 0:
            assert budget < min(remaining, 2 * fewest)
            first = False
            continue
        assert 1 <= count <= most
        assert count >= fewest or (first and count == remaining) or remaining < fewest
        remaining -= count
        first = False


def plan_strategy():
    return st.tuples(st.integers(0, 12), st.lists(st.integers(1, 60), max_size=5)).filter(
        lambda p: p[0] or p[1]
    )


@given(counts=plan_strategy(), fewest=st.integers(1, 6), extra=st.integers(0, 20), most=st.integers(1, 5))
def test_forwards_hold_the_plan_in_order_within_the_limits(counts, fewest, extra, most):
    decodes, prefills = counts
    limits = Limits(fewest, 2 * fewest - 1 + extra // 2, most, 2 * fewest - 1 + extra)
    table = SequenceTable(32)
    sequences = [Sequence(i, Request(str(i), range(70), 1), table) for i in range(decodes + len(prefills))]
    plan = StepPlan(
        tuple(sequences[:decodes]),
        tuple(Slice(one, count) for one, count in zip(sequences[decodes:], prefills, strict=True)),
    )
    flat = []
    for forward in cut_to_limits(plan, limits):
        part = forward.plan
        assert 1 <= part.tokens <= limits.most_tokens
        assert part.slices <= limits.most_sequences
        flat += [(one, 1) for one in part.decodes]
        for piece in part.prefills:
            assert piece.count <= limits.most_prefill
            whole = dict(zip(sequences[decodes:], prefills, strict=True))[piece.sequence]
            assert piece.count >= min(fewest, whole)
            flat.append((piece.sequence, piece.count))
    joined: list[list] = []
    for one, count in flat:
        if joined and joined[-1][0] is one:
            joined[-1][1] += count
        else:
            joined.append([one, count])
    assert [tuple(entry) for entry in joined] == [
        *((one, 1) for one in plan.decodes), *((piece.sequence, piece.count) for piece in plan.prefills)
    ]  # fmt: skip


def plans_of(scheduler: str, made: list[Request], limits: Limits) -> list[tuple[int, list[tuple[str, int]]]]:
    """(decodes, slices) of every step."""
    engine = engine_of(scheduler, limits=limits)
    seen = []
    inner = engine.scheduler.plan

    def plan(*arguments):
        made_plan = inner(*arguments)
        seen.append(
            ([one.request.id for one in made_plan.decodes],
             [(piece.sequence.request.id, piece.count) for piece in made_plan.prefills])
        )  # fmt: skip
        return made_plan

    engine.scheduler.plan = plan
    engine.run(made)
    assert_right(engine)
    return seen


def test_chunked_decodes_first_and_rotates_over_the_prompts():
    limits = Limits(most_prefill=4, most_sequences=4, most_tokens=6)
    plans = plans_of(
        "chunked", [Request("short", range(2), 9), *(Request(n, range(30), 2) for n in "xyz")], limits
    )
    served = [slices[0][0] for decodes, slices in plans if decodes == ["short"] and len(slices) > 1]
    assert len(served) > 3
    assert all(one != after for one, after in itertools.pairwise(served))
    assert all(decodes == ["short"] for decodes, _ in plans[1:9])


def test_static_runs_a_batch_until_its_last_member_ends():
    limits = Limits(most_prefill=16, most_sequences=2, most_tokens=32)
    plans = plans_of(
        "static", [Request("a", range(3), 3), Request("b", range(3), 8), Request("c", range(3), 2)], limits
    )
    admitted = [i for i, (_, slices) in enumerate(plans) if any(name == "c" for name, _ in slices)]
    last_of_b = max(i for i, (decodes, _) in enumerate(plans) if "b" in decodes)
    assert min(admitted) > last_of_b


def test_solo_runs_one_sequence_at_a_time():
    plans = plans_of("solo", [Request(n, range(5), 4) for n in "abc"], LIMITS)
    assert all(len(decodes) + len(slices) == 1 for decodes, slices in plans)


def test_continuous_takes_whole_prompts_first():
    plans = plans_of(
        "continuous", [Request(n, range(10), 4, arrival_seconds=t) for n, t in (("a", 0), ("b", 2))], LIMITS
    )
    assert plans[0] == ([], [("a", 10)])
    assert ([], [("b", 10)]) in plans


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("fewest", [2, 5])
def test_the_last_slice_of_a_prompt_is_not_below_the_fewest_tokens(scheduler, fewest):
    limits = Limits(fewest, 2 * fewest, 3, 2 * fewest + 2)
    made = [
        Request(f"p{count}", range(count), 3) for count in (1, fewest - 1 or 1, fewest, 2 * fewest + 1, 31)
    ]
    made = list({request.id: request for request in made}.values())
    lengths = {request.id: len(request.prompt) for request in made}
    for _, slices in plans_of(scheduler, made, limits):
        for name, count in slices:
            assert count >= min(fewest, lengths[name])


def test_phases_are_named():
    assert {phase.value for phase in Phase} == {"waiting", "prefill", "decode", "finished"}
