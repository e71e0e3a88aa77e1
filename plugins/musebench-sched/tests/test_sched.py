"""Who is admitted next, and that nobody waits for ever."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from musebench_sched.fair_share import FairLine, FairShareOptions
from musebench_sched.priority import PriorityOptions, PriorityScheduler
from musebench_sched.ranked import RankedLine
from musebench_sched.sjf import SjfOptions, SjfScheduler
from runs import served

from musebench.core.errors import UsageError
from musebench.core.plan import Limits, StepPlan
from musebench.core.request import Request
from musebench.core.sequence import Phase, Sequence, SequenceTable
from musebench.plugin.registry import Registry

NAMES = ("fair-share", "priority", "sjf")


def load(count: int = 120, seed: int = 1) -> list:
    """More work than four sequences at a time can take, of three tenants, one of which asks for most."""
    draw = random.Random(seed)
    return [
        (
            round(index * 0.02, 3), draw.choice((16, 100, 900, 4000)), draw.choice((2, 20, 200)),
            draw.choice("aaaab"), draw.choice((0, 1, 3)),
        )
        for index in range(count)
    ]  # fmt: skip


def waiting(session: int, arrival: float = 0.0, prompt: int = 4, new: int = 4, **tags) -> Sequence:
    request = Request(str(session), range(prompt), new, arrival_seconds=arrival, tags=tags)
    return Sequence(session, request, SequenceTable(1))


def order(scheduler, line: list[Sequence]) -> list[int]:
    ranked = RankedLine(scheduler.rank)
    for sequence in line:
        ranked.add(sequence)
    return [sequence.session for sequence in ranked.in_order()]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_registered_with_its_options(name):
    component = Registry.installed().get("scheduler", name)
    assert component.package == "musebench-sched"
    assert all(option.help for option in component.describe())
    assert component.make({}).name == name


@pytest.mark.parametrize("steps", ["chunked", "continuous"])
@pytest.mark.parametrize("name", NAMES)
def test_a_simulated_run_is_the_same_in_bulk_and_step_by_step(tmp_path, name, steps):
    made = [served(tmp_path, load(60), name, stepwise, steps=steps) for stepwise in (False, True)]
    assert made[0] == made[1]


def test_the_shortest_goes_first():
    line = [waiting(0, prompt=300), waiting(1, prompt=5), waiting(2, prompt=40), waiting(3, prompt=5)]
    assert order(SjfScheduler(SjfOptions()), line) == [1, 3, 2, 0]


@pytest.mark.parametrize(("size", "first"), [("prompt", 0), ("output", 1), ("all", 0)])
def test_what_counts_as_short_can_be_chosen(size, first):
    line = [waiting(0, prompt=4, new=30), waiting(1, prompt=50, new=3)]
    assert order(SjfScheduler(SjfOptions(size=size)), line)[0] == first


def test_no_aging_is_first_come_first_served():
    line = [waiting(index, arrival=float(index), prompt=100 - index, priority=index) for index in range(9)]
    assert order(SjfScheduler(SjfOptions(aging=0.0)), line) == list(range(9))
    assert order(PriorityScheduler(PriorityOptions(aging=0.0)), line) == list(range(9))


def test_priority_is_a_tag_whose_text_may_be_a_number():
    line = [waiting(0), waiting(1, priority="2"), waiting(2, priority=5), waiting(3, priority=-1)]
    assert order(PriorityScheduler(PriorityOptions()), line) == [2, 1, 0, 3]


@pytest.mark.parametrize("value", ["high", None, [], "nan", float("inf")])
def test_a_priority_that_is_no_number_is_refused_naming_the_request(value):
    with pytest.raises(UsageError, match=r"request '7' has priority .*; a number is wanted"):
        PriorityScheduler(PriorityOptions()).rank(waiting(7, priority=value))


@pytest.mark.parametrize("name", ["sjf", "priority"])
def test_nobody_is_overtaken_but_by_whom_the_aging_allows(tmp_path, name):
    """Whoever is admitted before a request of lower rank was there before that one arrived."""
    rows = load()
    made = served(tmp_path, rows, name, aging=0.002 if name == "sjf" else 0.3)
    ranks = [
        arrival + 0.002 * (prompt + output) if name == "sjf" else arrival - 0.3 * priority
        for arrival, prompt, output, _, priority in rows
    ]
    overtaken = 0
    for one, other in itertools.permutations(range(len(rows)), 2):
        if ranks[one] > ranks[other] and made.scheduled_seconds[one] < made.scheduled_seconds[other]:
            assert made.arrival_seconds[other] > made.scheduled_seconds[one]
        overtaken += (
            rows[one][0] > rows[other][0] and made.scheduled_seconds[one] < made.scheduled_seconds[other]
        )
    assert overtaken > 100


def test_a_long_job_is_served_while_short_ones_never_stop_coming(tmp_path):
    """Short jobs alone keep the device busy: without aging the long one would be the last."""
    rows = [(0.05, 6000, 20, "a", 0.0)] + [(index * 0.01, 500, 40, "a", 0.0) for index in range(400)]
    rows.sort()
    long = rows.index((0.05, 6000, 20, "a", 0.0))
    starved = served(tmp_path, rows, "sjf", aging=1e6).scheduled_seconds
    aged = served(tmp_path, rows, "sjf", aging=0.0002).scheduled_seconds
    assert starved[long] == max(starved)
    # Overtaken by those alone that arrive within 0.0002 x (6,020 - 540) s = 1.096 s after it.
    behind = [at for row, at in zip(rows, aged, strict=True) if row[0] > 0.05 + 1.1]
    assert len(behind) > 200
    assert aged[long] < min(behind)


def test_sjf_shortens_the_median_wait_of_a_mixed_load(tmp_path):
    def median_wait(scheduler: str, **options) -> float:
        made = served(tmp_path, load(), scheduler, **options)
        waits = sorted(made.scheduled_seconds[i] - made.arrival_seconds[i] for i in range(len(made.id)))
        return waits[len(waits) // 2]

    assert median_wait("sjf", aging=1.0) < 0.75 * median_wait("chunked")


# -- fair share ------------------------------------------------------------------------------------------


def service(rows: list, made, until: float) -> dict[str, float]:
    """Weighted tokens of each tenant whose step ended by then."""
    totals: dict[str, float] = defaultdict(float)
    for index, (_, prompt, output, tenant, _) in enumerate(rows):
        first, last = made.first_token_seconds[index], made.last_token_seconds[index]
        if made.scheduled_seconds[index] <= until:
            totals[tenant] += prompt
        if first <= until:
            share = 1.0 if last <= first else min((until - first) / (last - first), 1.0)
            totals[tenant] += 2.0 * (1 + share * (output - 1))
    return totals


def test_two_tenants_that_always_wait_get_the_same_service_however_much_one_asks(tmp_path):
    draw = random.Random(3)
    rows = [
        (0.0, draw.randint(50, 400), draw.randint(10, 60), tenant, 0.0) for tenant in "a" * 160 + "b" * 40
    ]
    fair, first_come = served(tmp_path, rows, "fair-share"), served(tmp_path, rows, "chunked")
    until = max(at for row, at in zip(rows, fair.scheduled_seconds, strict=True) if row[3] == "b")
    most_running = 4 * 460
    for share in (0.25, 0.5, 0.75, 1.0):
        had = service(rows, fair, share * until)
        assert abs(had["a"] - had["b"]) <= 2 * max(400, 2 * most_running)
    had = service(rows, first_come, until / 2)
    assert had["b"] == 0.0  # who asked first had it all


def test_a_tenant_that_was_away_saved_up_no_claim():
    line = FairLine(FairShareOptions())
    for session in range(4):
        line.add(waiting(session, tenant="busy"))
    line.service["busy"] = 1000.0
    line.add(waiting(9, tenant="late"))
    assert line.service["late"] == 1000.0


def test_requests_without_a_tenant_are_one_tenant_s():
    line = FairLine(FairShareOptions())
    for sequence in (waiting(0), waiting(1, tenant="a"), waiting(2), waiting(3, tenant="a")):
        line.add(sequence)
    assert [sequence.session for sequence in line.in_order()] == [0, 1, 2, 3]
    assert line.contested


# -- lines -----------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(ranks=st.lists(st.integers(0, 5), max_size=40), taken=st.integers(0, 12), gone=st.integers(0, 12))
def test_a_ranked_line_is_a_sorted_list_without_those_who_left(ranks, taken, gone):
    line = RankedLine(lambda sequence: ranks[sequence.session])
    model = [waiting(session) for session in range(len(ranks))]
    for sequence in model:
        line.add(sequence)
    model.sort(key=lambda sequence: (ranks[sequence.session], sequence.session))
    for sequence in model[:taken]:
        sequence.admitted = sequence.session
    for sequence in model[len(model) - gone :] if gone else []:
        sequence.phase = Phase.FINISHED
    line.refresh()
    left = [one for one in model if one.phase is Phase.WAITING and one.admitted < 0]
    assert list(line.in_order()) == left
    assert all(sequence in line for sequence in left)


def test_preempted_sequences_go_first_whatever_their_rank():
    scheduler = SjfScheduler(SjfOptions())
    offered: list[Sequence] = []

    class Watching:
        def plan(self, line, running, limits, pool):
            offered.extend(line)
            return StepPlan()

    scheduler._steps = Watching()
    back = waiting(0, prompt=500)
    back.admitted = 3
    line = [back, waiting(1, prompt=90), waiting(2, prompt=9)]
    scheduler.plan(line, (), Limits(), None)
    assert [sequence.session for sequence in offered] == [0, 2, 1]


def test_options_are_frozen_and_refuse_what_is_out_of_bounds():
    component = Registry.installed().get("scheduler", "fair-share")
    with pytest.raises(UsageError, match="prompt_weight is 0"):
        component.make({"prompt_weight": "0"})
    with pytest.raises(UsageError, match="steps is 'statc'"):
        component.make({"steps": "statc"})
    assert dataclasses.asdict(component.make({}).options)["output_weight"] == 2.0
