"""Forwards hold their plan, in its order, within the limits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from fakes import plan_of, running
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from musebench.core.forwards import cut_to_limits
from musebench.core.packing import pack
from musebench.core.plan import Limits, Slice, StepPlan
from musebench.core.protocols import Forward
from musebench.core.request import Request
from musebench.core.sequence import Sequence, SequenceTable


def pieces_of(plan: StepPlan) -> list[tuple[Sequence, int]]:
    return [*((one, 1) for one in plan.decodes), *((piece.sequence, piece.count) for piece in plan.prefills)]


@settings(max_examples=150)
@given(
    decodes=st.integers(0, 12),
    prefills=st.lists(st.integers(1, 60), max_size=5),
    fewest=st.integers(1, 6),
    extra=st.integers(0, 20),
    most=st.integers(1, 5),
)
def test_forwards_hold_the_plan_in_order_within_the_limits(decodes, prefills, fewest, extra, most):
    assume(decodes or prefills)
    limits = Limits(fewest, 2 * fewest - 1 + extra // 2, most, 2 * fewest - 1 + extra)
    table = SequenceTable(32)
    sequences = [Sequence(i, Request(str(i), range(70), 1), table) for i in range(decodes + len(prefills))]
    prompts = dict(zip(sequences[decodes:], prefills, strict=True))
    plan = StepPlan(tuple(sequences[:decodes]), tuple(Slice(one, count) for one, count in prompts.items()))
    flat = []
    for forward in cut_to_limits(plan, limits, "some"):
        part = forward.plan
        assert forward.program == "some"
        assert 1 <= part.tokens <= limits.most_tokens
        assert part.slices <= limits.most_sequences
        assert len(set(part.sequences())) == part.slices, "a sequence has two slices in one forward"
        for piece in part.prefills:
            assert min(fewest, prompts[piece.sequence]) <= piece.count <= limits.most_prefill
        flat += pieces_of(part)
    joined = [
        (one, sum(count for _, count in pieces)) for one, pieces in itertools.groupby(flat, lambda p: p[0])
    ]
    assert joined == pieces_of(plan)


def test_a_plan_that_fits_is_one_forward_and_the_plan_itself():
    table = SequenceTable(2)
    plan = plan_of((running(table, 1), 4), (running(table, 2), 3))
    (forward,) = cut_to_limits(plan, Limits(1, 4, 2, 7))
    assert forward.plan is plan


def test_a_rest_of_one_is_joined_by_tokens_of_the_slice_before():
    table = SequenceTable(1)
    forwards = cut_to_limits(plan_of((running(table, 1, prompt=9), 9)), Limits(2, 4, 4, 8))
    assert [piece.count for forward in forwards for piece in forward.plan.prefills] == [4, 3, 2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda one: StepPlan(decodes=(one,)), "not exactly one token left"),
        (lambda one: StepPlan(prefills=(Slice(one, 0),)), "a slice of 0 of the 4"),
        (lambda one: StepPlan(prefills=(Slice(one, 5),)), "a slice of 5 of the 4"),
        (lambda one: StepPlan(prefills=(Slice(one, 2), Slice(one, 2))), "twice"),
    ],
    ids=["decode of a prompt", "empty", "longer than what is left", "twice"],
)
def test_packing_refuses_what_would_compute_a_wrong_token(make, message):
    table = SequenceTable(1)
    plan = make(running(table, 1, prompt=4))
    with pytest.raises(ValueError, match=message):
        pack(Forward(plan), table, np.arange(1, plan.tokens + 1, dtype=np.int32), 0)


def test_packing_refuses_cells_that_do_not_match_the_tokens():
    table = SequenceTable(1)
    with pytest.raises(ValueError, match="3 cells for 4 tokens"):
        pack(Forward(plan_of((running(table, 1), 4))), table, np.arange(1, 4, dtype=np.int32), 0)
