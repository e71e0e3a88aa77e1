"""Pools: built-in ones keep the laws, and planted faults are found by theirs, in words."""

from __future__ import annotations

import pytest
from conformance_laws import assert_broken

from musebench.core.errors import PoolFull
from musebench.plugin.registry import Registry
from musebench.pools.geometric import GeometricOptions, GeometricPool
from musebench.testing import PoolConformance
from musebench.testing.laws.pool import hold_pool

REGISTRY = Registry.installed()


class TestGeometric(PoolConformance):
    examples = 80

    def make(self, bounds, storage):
        return GeometricPool(GeometricOptions(start=4, factor=1.5), bounds, storage)


class TestFixed(PoolConformance):
    examples = 150

    def make(self, bounds, storage):
        return REGISTRY.get("pool", "fixed").make({}, bounds, storage)


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


class QuotesTooLittleBesideOthers(GeometricPool):
    def quote(self, sequence):
        return min(super().quote(sequence), 1) if self.in_use else super().quote(sequence)


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
    QuotesTooLittleBesideOthers: ("quote", "fit, and it was refused with a room of"),
    CountsDown: ("counters", "counter 'refusals' is -1, below 0"),
    MutatesThePlan: ("plan", "the plan or its sequences changed"),
    ForgetsTheFork: ("fork", "take_edits told cells [] of B"),
}


@pytest.mark.parametrize("pool", BROKEN_POOLS, ids=lambda pool: pool.__name__)
def test_a_broken_pool_is_found_by_its_law_in_words(pool):
    law, words = BROKEN_POOLS[pool]
    found = hold_pool(lambda bounds, storage: pool(GeometricOptions(start=4), bounds, storage), examples=150)
    finding = assert_broken(found, {law}, words)
    assert 1 <= len(finding.history) <= 6, finding.text()
