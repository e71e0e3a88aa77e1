"""The pool vmm against the laws that every pool keeps, over granules of five cells."""

from __future__ import annotations

from musebench_vmm.pool import VmmOptions, VmmPool

from musebench.testing import PoolConformance

GRANULE_BYTES = 40


class TestVmm(PoolConformance):
    def make(self, bounds, storage):
        return VmmPool(VmmOptions(granule=GRANULE_BYTES), bounds, storage)


class TestVmmThatGivesBack(PoolConformance):
    def make(self, bounds, storage):
        return VmmPool(VmmOptions(granule=GRANULE_BYTES, give_back=True), bounds, storage)
