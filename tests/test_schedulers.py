"""Plans keep the limits, progress, and starve nobody."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
from fakes import LIMITS, POOLS, SCHEDULERS, VOCABULARY, assert_empty, assert_right, engine_of
from hypothesis import given, settings
from hypothesis import strategies as st

from musebench.core.engine import Engine
from musebench.core.plan import Limits
from musebench.core.planning import slice_tokens
from musebench.core.request import Request


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


@dataclass(frozen=True)
class Seen:
    """One plan as it was made: names of the decodes, (name, tokens) of the slices, names of what ran."""

    decodes: list[str]
    slices: list[tuple[str, int]]
    decoding: list[str]
    prefilling: list[str]


def watch(engine: Engine, limits: Limits) -> list[Seen]:
    """Note every plan that is made, and hold it against the limits."""
    seen: list[Seen] = []
    inner = engine.scheduler.plan

    def plan(waiting, running, given_limits, pool):
        made = inner(waiting, running, given_limits, pool)
        assert made.tokens <= limits.most_tokens
        assert len(running) + sum(one in waiting for one in made.sequences()) <= limits.most_sequences
        assert len(set(made.sequences())) == made.slices
        for piece in made.prefills:
            one = piece.sequence
            assert piece.count <= limits.most_prefill
            whole_as_it_came = one.computed == 0 and piece.count == one.remaining
            assert piece.count >= limits.fewest_prefill or whole_as_it_came
            assert one.remaining - piece.count == 0 or one.remaining - piece.count >= limits.fewest_prefill
        names = [[one.request.id for one in line] for line in (running.decoding, running.prefilling)]
        slices = [(piece.sequence.request.id, piece.count) for piece in made.prefills]
        seen.append(Seen([one.request.id for one in made.decodes], slices, *names))
        return made

    engine.scheduler.plan = plan
    return seen


def plans_of(scheduler: str, made: list[Request], limits: Limits, **others) -> list[Seen]:
    engine = engine_of(scheduler, limits=limits, **others)
    seen = watch(engine, limits)
    engine.run(made)
    assert_right(engine)
    assert_empty(engine)
    assert all(sequence.finish_reason.succeeded for sequence in engine.recorder.sequences)
    return seen


prompts = st.lists(
    st.tuples(st.integers(1, 80), st.integers(1, 12), st.sampled_from([0.0, 0.0, 2.0, 5.0])),
    min_size=1,
    max_size=8,
)


@settings(max_examples=150)
@given(
    drawn=prompts,
    scheduler=st.sampled_from(SCHEDULERS),
    pool=st.sampled_from(POOLS),
    fewest=st.sampled_from([1, 2, 5, 16]),
    sequences=st.integers(1, 5),
    extra=st.integers(0, 12),
    tight=st.booleans(),
    overlap=st.booleans(),
)
def test_plans_keep_the_limits_and_everybody_is_served(
    drawn, scheduler, pool, fewest, sequences, extra, tight, overlap
):
    limits = Limits(fewest, 2 * fewest - 1 + extra // 2, sequences, 2 * fewest - 1 + extra)
    made = [
        Request(f"r{i}", tuple(j % VOCABULARY for j in range(prompt)), new, arrival_seconds=arrival)
        for i, (prompt, new, arrival) in enumerate(drawn)
    ]
    capacity = max(one.cells_needed for one in made) + 7 if tight and pool == "geometric" else None
    seen = plans_of(scheduler, made, limits, pool=pool, capacity=capacity, overlap=overlap)
    if scheduler == "chunked":
        unserved: dict[str, int] = {}
        for plan in seen:
            assert plan.decodes == plan.decoding
            served = {name for name, _ in plan.slices}
            # The first in turn is always served; whoever ends moves the others up.
            assert not plan.prefilling or served & set(plan.prefilling)
            unserved = {name: 0 if name in served else unserved.get(name, 0) + 1 for name in plan.prefilling}
            assert max(unserved.values(), default=0) <= 2 * sequences
    if scheduler == "solo":
        assert all(len(plan.decodes) + len(plan.slices) <= 1 for plan in seen)
    if scheduler in ("static", "continuous"):
        assert not any(plan.decodes and plan.slices for plan in seen)


def test_a_prompt_that_needs_more_than_the_fewest_is_not_starved_by_decodes():
    """7 tokens left, of at least 5 a slice, go only as a whole: others may not take the room for ever."""
    limits = Limits(fewest_prefill=5, most_prefill=9, most_sequences=4, most_tokens=9)
    made = [Request("first", range(5), 2)]
    made += [Request("seven", range(7), 2)]
    made += [Request(f"short{i}", range(5), 20, arrival_seconds=i / 4) for i in range(40)]
    engine = engine_of("chunked", limits=limits)
    watch(engine, limits)
    engine.run(made)
    ends = {one.request.id: one.finish_seconds for one in engine.recorder.sequences}
    assert ends["seven"] < ends["short2"]


def test_chunked_decodes_first_and_rotates_over_the_prompts():
    limits = Limits(most_prefill=4, most_sequences=4, most_tokens=6)
    plans = plans_of(
        "chunked", [Request("short", range(2), 9), *(Request(n, range(30), 2) for n in "xyz")], limits
    )
    served = [plan.slices[0][0] for plan in plans if plan.decodes == ["short"] and len(plan.slices) > 1]
    assert len(served) > 3
    assert all(one != after for one, after in itertools.pairwise(served))
    assert all(plan.decodes == ["short"] for plan in plans[1:9])


def test_static_runs_a_batch_until_its_last_member_ends():
    limits = Limits(most_prefill=16, most_sequences=2, most_tokens=32)
    plans = plans_of(
        "static", [Request("a", range(3), 3), Request("b", range(3), 8), Request("c", range(3), 2)], limits
    )
    admitted = [i for i, plan in enumerate(plans) if any(name == "c" for name, _ in plan.slices)]
    last_of_b = max(i for i, plan in enumerate(plans) if "b" in plan.decodes)
    assert min(admitted) > last_of_b


def test_solo_runs_one_sequence_at_a_time():
    plans = plans_of("solo", [Request(n, range(5), 4) for n in "abc"], LIMITS)
    assert all(len(plan.decodes) + len(plan.slices) == 1 for plan in plans)


def test_continuous_takes_whole_prompts_first():
    plans = plans_of(
        "continuous", [Request(n, range(10), 4, arrival_seconds=t) for n, t in (("a", 0), ("b", 2))], LIMITS
    )
    assert (plans[0].decodes, plans[0].slices) == ([], [("a", 10)])
    assert ([], [("b", 10)]) in [(plan.decodes, plan.slices) for plan in plans]


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("fewest", [2, 5, 16])
def test_the_last_slice_of_a_prompt_is_not_below_the_fewest_tokens(scheduler, fewest):
    limits = Limits(fewest, 2 * fewest, 3, 2 * fewest + 2)
    made = [
        Request(f"p{count}", range(count), 3) for count in (1, fewest - 1 or 1, fewest, 2 * fewest + 1, 31)
    ]
    made = list({request.id: request for request in made}.values())
    lengths = {request.id: len(request.prompt) for request in made}
    for plan in plans_of(scheduler, made, limits):
        for name, count in plan.slices:
            assert count >= min(fewest, lengths[name])
