"""Schedulers: built-in ones keep the laws, and planted faults are found by theirs, in words."""

from __future__ import annotations

import pytest
from conformance_laws import assert_broken, assert_held

from musebench.core.options import NoOptions
from musebench.core.plan import Limits, Slice, StepPlan
from musebench.plugin.registry import Registry
from musebench.schedulers.chunked import ChunkedOptions, ChunkedScheduler
from musebench.schedulers.solo import SoloScheduler
from musebench.testing import SchedulerConformance
from musebench.testing.laws.scheduler import hold_scheduler

REGISTRY = Registry.installed()


class TestChunked(SchedulerConformance):
    examples = 15

    def make(self):
        return ChunkedScheduler(ChunkedOptions())


@pytest.mark.parametrize("name", ["solo", "static", "continuous"])
def test_built_in_schedulers_keep_every_law(name):
    component = REGISTRY.get("scheduler", name)
    assert_held(hold_scheduler(lambda: component.make({}), examples=12))


class LastComesFirst(ChunkedScheduler):
    def plan(self, waiting, running, limits, pool):
        made = super().plan(list(waiting)[::-1], running, limits, pool)
        return StepPlan(made.decodes, made.prefills)


class NeverDecodesTheFirst(ChunkedScheduler):
    def plan(self, waiting, running, limits, pool):
        made = super().plan(waiting, running, limits, pool)
        others = tuple(one for one in made.decodes if one.session)
        return StepPlan(others, made.prefills) if others or made.prefills else made


class ExceedsTheBudget(ChunkedScheduler):
    def plan(self, waiting, running, limits, pool):
        more = Limits(
            limits.fewest_prefill, limits.most_prefill, limits.most_sequences, limits.most_tokens + 3
        )
        return super().plan(waiting, running, more, pool)


class PlansNothing(SoloScheduler):
    def plan(self, waiting, running, limits, pool):
        made = super().plan(waiting, running, limits, pool)
        return StepPlan() if running.decoding else made


class PlansAFinishedSequence(SoloScheduler):
    last: tuple = ()

    def plan(self, waiting, running, limits, pool):
        made = super().plan(waiting, running, limits, pool)
        self.last, before = (*self.last, *made.decodes), self.last
        ended = [one for one in before if one.finish_reason is not None]
        return StepPlan((*made.decodes, ended[0]), made.prefills) if ended else made


class PreemptsInACircle(ChunkedScheduler):
    """Fills whatever room there is with the start of a prompt, which those who run need next."""

    def plan(self, waiting, running, limits, pool):
        made = super().plan((), running, limits, pool)
        free = len(running) < limits.most_sequences and limits.fewest_prefill == 1
        if waiting and free and not made.prefills:
            one = waiting[0]
            room = min(pool.room, limits.most_tokens) - made.tokens
            count = min(one.remaining, room, limits.most_prefill)
            if count > 0:
                return StepPlan(made.decodes, (Slice(one, count),))
        return made if not made.empty else super().plan(waiting, running, limits, pool)


class ForgetsWhatItPlanned(ChunkedScheduler):
    calls = 0

    def plan(self, waiting, running, limits, pool):
        ForgetsWhatItPlanned.calls += 1
        made = super().plan(waiting, running, limits, pool)
        few = (
            made.decodes[:-1]
            if ForgetsWhatItPlanned.calls % 7 == 0 and len(made.decodes) > 1
            else made.decodes
        )
        return StepPlan(few, made.prefills)


class Meddles(SoloScheduler):
    def plan(self, waiting, running, limits, pool):
        if running.decoding:
            pool.rewind(running.decoding[0].slot, 0)
        return super().plan(waiting, running, limits, pool)


BROKEN_SCHEDULERS = {
    LastComesFirst: ({"order", "waiting"}, "which came earlier and differs in nothing else"),
    NeverDecodesTheFirst: ({"running"}, "r0 runs and was not planned while others computed"),
    ExceedsTheBudget: ({"limits"}, "tokens in a plan; at most"),
    PlansNothing: ({"progress"}, "nothing is planned, and r0 could run"),
    PlansAFinishedSequence: ({"known"}, "is planned, and has ended"),
    PreemptsInACircle: ({"preemptions"}, "preemptions of"),
    ForgetsWhatItPlanned: ({"same"}, "is another the second time"),
    Meddles: ({"reads"}, "planning changed a sequence or the pool"),
}


@pytest.mark.parametrize("kind", BROKEN_SCHEDULERS, ids=lambda kind: kind.__name__)
def test_a_broken_scheduler_is_found_by_its_law_in_words(kind):
    laws, words = BROKEN_SCHEDULERS[kind]
    options = NoOptions() if issubclass(kind, SoloScheduler) else ChunkedOptions()
    assert_broken(hold_scheduler(lambda: kind(options), examples=40), laws, words)
