"""The conformance kit passes built-in components and finds planted faults, by their laws and in words."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from musebench.cli import root
from musebench.core.errors import PoolFull
from musebench.core.options import NoOptions
from musebench.core.plan import Limits, StepPlan
from musebench.plugin.registry import Registry
from musebench.pools.geometric import GeometricOptions, GeometricPool
from musebench.schedulers.chunked import ChunkedOptions, ChunkedScheduler
from musebench.schedulers.solo import SoloScheduler
from musebench.testing import PoolConformance, SchedulerConformance
from musebench.testing.laws import search as searching
from musebench.testing.laws.pool import hold_pool
from musebench.testing.laws.scheduler import hold_scheduler

REGISTRY = Registry.installed()


class TestGeometric(PoolConformance):
    examples = 80

    def make(self, bounds, storage):
        return GeometricPool(GeometricOptions(start=4, factor=1.5), bounds, storage)


class TestFixed(PoolConformance):
    examples = 80

    def make(self, bounds, storage):
        return REGISTRY.get("pool", "fixed").make({}, bounds, storage)


class TestChunked(SchedulerConformance):
    examples = 20

    def make(self):
        return ChunkedScheduler(ChunkedOptions())


@pytest.mark.parametrize("name", ["solo", "static", "continuous"])
def test_built_in_schedulers_keep_every_law(name):
    component = REGISTRY.get("scheduler", name)
    for finding in hold_scheduler(lambda: component.make({}), examples=15):
        assert finding.outcome == "held", finding.text()


class LeaksACell(GeometricPool):
    def release(self, slot):
        self.rewind(slot, min(1, int(self.cells.held[slot])))


class OwnsACellTwice(GeometricPool):
    def reserve(self, plan):
        cells = super().reserve(plan)
        cells[cells == 3] = 1
        return cells


class GivesScratch(GeometricPool):
    def reserve(self, plan):
        return super().reserve(plan) - 1


class BumpsNeedlessly(GeometricPool):
    def reserve(self, plan):
        self.generation += 1
        return super().reserve(plan)


class ForgetsAGeneration(GeometricPool):
    def reserve(self, plan):
        cells = super().reserve(plan)
        self.generation = min(self.generation, 1)
        return cells


class ExceedsItsCapacity(GeometricPool):
    def reserve(self, plan):
        known, self._capacity = self._capacity, 10**6
        try:
            return super().reserve(plan)
        finally:
            self._capacity = known


class DropsRowsWhenItGrows(GeometricPool):
    def __init__(self, options, bounds, storage):
        super().__init__(options, bounds, storage)
        resize = storage.resize
        storage.resize = lambda rows, live: resize(rows, min(live, 1))


class ChangesInARefusal(GeometricPool):
    def reserve(self, plan):
        try:
            return super().reserve(plan)
        except PoolFull:
            self.generation += 1
            raise


class RefusesTheLastCell(GeometricPool):
    def reserve(self, plan):
        if self.in_use + plan.tokens == self.capacity:
            raise PoolFull(plan.tokens + 1, plan.tokens, self.capacity)
        return super().reserve(plan)


class CountsDown(GeometricPool):
    def counters(self):
        return {"refusals": -self.refusals}


class MutatesThePlan(GeometricPool):
    def reserve(self, plan):
        cells = super().reserve(plan)
        object.__setattr__(plan, "prefills", plan.prefills[:-1])
        return cells


class ForgetsTheFork(GeometricPool):
    def take_edits(self):
        super().take_edits()
        return ()


BROKEN_POOLS = {
    LeaksACell: ("release", "1 cell is owned by nobody but counted in use"),
    OwnsACellTwice: ("owners", "cell 1 was given to B and belongs to A"),
    GivesScratch: ("scratch", "cell 0, which is scratch, was given to A"),
    BumpsNeedlessly: ("generation", "no address moved"),
    ForgetsAGeneration: ("generation", "addresses moved, and the generation is still 1"),
    ExceedsItsCapacity: ("capacity", "the capacity is"),
    DropsRowsWhenItGrows: ("tokens", "holds nothing, where token 0 of A was written"),
    ChangesInARefusal: ("refusal", "the refused plan changed the pool: generation went from"),
    RefusesTheLastCell: ("quote", "fit, and it was refused with a room of 4"),
    CountsDown: ("counters", "counter 'refusals' is -1, below 0"),
    MutatesThePlan: ("plan", "the plan or its sequences changed"),
    ForgetsTheFork: ("fork", "take_edits told cells [] of B"),
}


@pytest.mark.parametrize("pool", BROKEN_POOLS, ids=lambda pool: pool.__name__)
def test_a_broken_pool_is_found_by_its_law_in_words(pool):
    law, words = BROKEN_POOLS[pool]
    found = hold_pool(lambda bounds, storage: pool(GeometricOptions(start=4), bounds, storage), examples=150)
    broken = {finding.law.name: finding for finding in found if finding.outcome == "broken"}
    assert law in broken, {name: finding.text() for name, finding in broken.items()}
    assert words in broken[law].sentence()
    assert 1 <= len(broken[law].history) <= 6, broken[law].text()


class Starves(ChunkedScheduler):
    """Prefers who came last, among those who run and those who wait."""

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
    Starves: ({"order", "waiting"}, "which came earlier and differs in nothing else"),
    NeverDecodesTheFirst: ({"running"}, "r0 runs and was not planned while others computed"),
    ExceedsTheBudget: ({"limits"}, "tokens in a plan; at most"),
    PlansNothing: ({"progress"}, "nothing is planned, and r0 could run"),
    PlansAFinishedSequence: ({"known"}, "is planned, and has ended"),
    ForgetsWhatItPlanned: ({"same"}, "is another the second time"),
    Meddles: ({"reads"}, "planning changed a sequence or the pool"),
}


@pytest.mark.parametrize("kind", BROKEN_SCHEDULERS, ids=lambda kind: kind.__name__)
def test_a_broken_scheduler_is_found_by_its_law_in_words(kind):
    laws, words = BROKEN_SCHEDULERS[kind]
    options = NoOptions() if issubclass(kind, SoloScheduler) else ChunkedOptions()
    found = hold_scheduler(lambda: kind(options), examples=40)
    broken = {finding.law.name: finding for finding in found if finding.outcome == "broken"}
    assert laws & set(broken), {finding.law.name: finding.text() for finding in found}
    assert any(words in broken[law].sentence() for law in laws & set(broken)), broken


def test_the_command_prints_a_line_a_law():
    result = CliRunner().invoke(root, ["conformance", "geometric", "--examples", "20", "--format", "json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.output)
    assert {"owners", "last cell", "generation", "errors"} <= {row["law"] for row in rows}
    assert {row["kind"] for row in rows} == {"pool"}


def test_the_command_refuses_what_has_no_laws_in_one_line():
    with pytest.raises(
        Exception, match="nothing that has laws is named 'geometrix'; did you mean 'geometric'"
    ):
        CliRunner().invoke(root, ["conformance", "geometrix"], standalone_mode=False, catch_exceptions=False)


def test_without_hypothesis_the_kit_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "hypothesis", None)
    with pytest.raises(
        Exception, match=r"hypothesis, which is not installed; pip install 'musebench\[testing\]'"
    ):
        searching.strategies()
