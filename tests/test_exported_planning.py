"""Planners of exported programs: a method takes each forward, and together they are the plan."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from fakes import FACTS
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from musebench.core.batch import BatchLayout
from musebench.core.errors import UsageError
from musebench.core.packing import pack
from musebench.core.plan import Limits, Slice, StepPlan
from musebench.core.protocols import Forward
from musebench.core.request import Request
from musebench.core.sequence import Sequence, SequenceTable
from musebench.executors.planners import BoundedPlanner, LadderPlanner, planner_for
from musebench.export.bounds import Bounds, Widths, bounds_of
from musebench.programs.facts import BuildFacts, ExportCosts, LayerFacts, ProgramFacts, WeightsFacts

SESSIONS = 24


def facts_of(bounds: Bounds | Widths) -> ProgramFacts:
    return ProgramFacts(
        FACTS, bounds.methods(), (LayerFacts(1, 1, 1, 1, 0),), WeightsFacts({}, {}),
        BuildFacts("0", "0", "0", "triton", "cpu", "any"), ExportCosts({}), 50, 100,
    )  # fmt: skip


def plan_of(decodes: int, prefills: list[int]) -> tuple[StepPlan, SequenceTable]:
    """Decodes that have one token left to compute, and whole prompts."""
    table = SequenceTable(SESSIONS + 8)
    sequences = []
    for number in range(decodes + len(prefills)):
        length = 4 if number < decodes else prefills[number - decodes]
        sequence = Sequence(number, Request(str(number), range(length), 1), table)
        sequence.enter(number + 1)
        if number < decodes:
            table.computed[sequence.slot] = 3
        sequences.append(sequence)
    slices = tuple(Slice(one, count) for one, count in zip(sequences[decodes:], prefills, strict=True))
    return StepPlan(tuple(sequences[:decodes]), slices), table


def layouts(forwards: list[Forward], table: SequenceTable) -> list[BatchLayout]:
    """Of the packed forwards, computed one after the other."""
    made = []
    for forward in forwards:
        plan = forward.plan
        made.append(pack(forward, table, np.arange(1, plan.tokens + 1, dtype=np.int32), 0).batch.layout)
        for piece in plan.prefills:
            table.computed[piece.sequence.slot] += piece.count
    return made


def pieces_of(plan: StepPlan) -> list[tuple[Sequence, int]]:
    return [*((one, 1) for one in plan.decodes), *((piece.sequence, piece.count) for piece in plan.prefills)]


BOUNDS = st.one_of(
    st.builds(
        lambda fewest, extra, sequences, decodes: Bounds(
            fewest, max(2 * fewest - 1, sequences) + extra, sequences, min(decodes, sequences)
        ),
        st.integers(2, 16), st.integers(0, 20), st.integers(2, 12), st.integers(1, 12),
    ),
    st.builds(
        lambda widths, sequences: Widths(tuple(widths), max(sequences, min(widths))),
        st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(1, 12),
    ),
)  # fmt: skip


@settings(max_examples=200)
@given(
    bounds=BOUNDS,
    decodes=st.integers(0, SESSIONS),
    prefills=st.lists(st.integers(1, 60), max_size=6),
    budget=st.integers(31, 200),
)
def test_every_forward_is_one_that_its_method_takes_and_together_they_are_the_plan(
    bounds, decodes, prefills, budget
):
    assume(decodes or prefills)
    facts = facts_of(bounds)
    limits = facts.limits.within(Limits(1, budget, SESSIONS + 8, budget))
    plan, table = plan_of(decodes, prefills)
    forwards = planner_for(facts, limits, None).cut(plan)
    fewest = limits.fewest_prefill
    prompts = dict(pieces_of(plan))
    flat = []
    for forward, layout in zip(forwards, layouts(forwards, table), strict=True):
        method = facts.method_for(layout)
        assert method.name == forward.program
        assert all(piece.count >= min(fewest, prompts[piece.sequence]) for piece in forward.plan.prefills)
        flat += pieces_of(forward.plan)
    joined = [
        (one, sum(count for _, count in pieces))
        for one, pieces in itertools.groupby(flat, lambda pair: pair[0])
    ]
    assert joined == pieces_of(plan)


def programs(bounds: Bounds | Widths, decodes: int, prefills: list[int]) -> list[tuple[str, int, int]]:
    """(method, real tokens, padded tokens) of each forward."""
    facts = facts_of(bounds)
    plan, _ = plan_of(decodes, prefills)
    return [
        (forward.program, forward.plan.tokens, max(forward.pad_tokens, forward.plan.tokens))
        for forward in planner_for(facts, facts.limits, None).cut(plan)
    ]


def test_decodes_below_the_bound_are_decodes_of_what_decode_takes():
    """A one-token decode under a bound of 5 reads the weights once for each of up to four sequences."""
    bounds = Bounds(5, 20, 8, most_decodes=1)
    for count in (1, 2, 4):
        assert programs(bounds, count, []) == [("decode-1", 1, 1)] * count
    assert programs(bounds, 5, []) == [("prefill", 5, 5)]
    assert programs(bounds, 8, []) == [("prefill", 8, 8)]
    assert programs(bounds, 9, []) == [("prefill", 8, 8), ("decode-1", 1, 1)]


def test_decodes_go_together_as_far_as_decode_takes_them():
    bounds = Bounds(16, 40, 8, most_decodes=3)
    assert programs(bounds, 1, []) == [("decode-1", 1, 1)]
    assert programs(bounds, 3, []) == [("decode", 3, 3)]
    assert programs(bounds, 4, []) == [("decode", 3, 3), ("decode-1", 1, 1)]


def test_prompts_below_the_bound_are_padded_and_longer_ones_are_cut_so_that_the_rest_reaches_it():
    bounds = Bounds(5, 10, 8)
    assert programs(bounds, 0, [1]) == [("prefill", 1, 5)]
    assert programs(bounds, 2, [2]) == [("prefill", 4, 5)]
    assert programs(bounds, 0, [11]) == [("prefill", 6, 6), ("prefill", 5, 5)]
    assert programs(bounds, 0, [21]) == [("prefill", 10, 10), ("prefill", 6, 6), ("prefill", 5, 5)]


def test_a_ladder_pads_to_the_next_width():
    bounds = Widths((1, 2, 4, 16), most_sequences=4)
    assert programs(bounds, 3, []) == [("decode-4", 3, 4)]
    assert programs(bounds, 5, []) == [("decode-4", 4, 4), ("decode-1", 1, 1)]
    assert programs(bounds, 0, [3]) == [("prefill-4", 3, 4)]
    assert programs(bounds, 1, [16]) == [("prefill-16", 16, 16), ("prefill-1", 1, 1)]


def test_the_planner_is_the_one_that_fits_the_methods():
    assert isinstance(planner_for(facts_of(Bounds()), Limits(), None), BoundedPlanner)
    assert isinstance(planner_for(facts_of(Widths((1, 8))), Limits(), None), LadderPlanner)
    assert isinstance(planner_for(facts_of(Widths((8,))), Limits(), None), LadderPlanner)


@pytest.mark.parametrize(
    "layout",
    [
        BatchLayout(1, 2, 2), BatchLayout(4, 2, 2), BatchLayout(21, 2, 2), BatchLayout(5, 1, 2),
        BatchLayout(5, 9, 2), BatchLayout(5, 2, 0), BatchLayout(4, 4, 4, decode=True),
        BatchLayout(0, 0, 0, decode=True),
    ],
)  # fmt: skip
def test_what_no_method_takes_is_refused_with_what_each_takes(layout):
    facts = facts_of(Bounds(5, 20, 8, most_decodes=3))
    with pytest.raises(ValueError, match=r"outside .* prefill: 5 to 20 tokens of 2 to 8 sequences"):
        facts.method_for(layout)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((1, None, 8, None, None), "--fewest is 1; at least 2"),
        ((5, 8, 8, None, None), "most tokens of a prefill is 8; a fewest prefill of 5 needs at least 9"),
        ((None, 6, 8, None, None), "--most is 6; at least 8"),
        ((None, None, 1, None, None), "--most-sequences is 1; at least 2"),
        ((None, None, 8, 0, None), "--most-decodes is 0; at least 1"),
        ((None, None, 8, 9, None), "--most-decodes is 9; at most --most-sequences, 8"),
        ((5, None, 8, None, "1,2"), "--fewest is of a range, and --widths"),
        ((None, None, 8, None, "1;2"), "--widths is '1;2'"),
        ((None, None, 8, None, "0,2"), "--widths .* at least 1"),
        ((None, None, 8, None, "16,32"), "--widths begins at 16 and --most-sequences is 8"),
        ((None, None, 0, None, "1"), "--most-sequences is 0"),
    ],
)
def test_bounds_that_cannot_be_are_refused_with_what_would_do(flags, message):
    with pytest.raises(UsageError, match=message):
        bounds_of(*flags)


def test_the_most_tokens_reach_the_most_sequences_unless_given():
    assert bounds_of(None, None, 8, None, None) == Bounds(2, 512, 8)
    assert bounds_of(None, None, 600, None, None) == Bounds(2, 600, 600)
    assert bounds_of(None, None, 4, None, "4,1,4") == Widths((4, 1, 4), 4)
    assert [method.name for method in Widths((4, 1, 4), 4).methods()] == [
        "decode-1", "decode-4", "prefill-1", "prefill-4",
    ]  # fmt: skip
