"""The pool private against the laws that every pool keeps."""

from __future__ import annotations

from musebench_private.pool import PrivateOptions, PrivatePool

from musebench.testing import PoolConformance


class TestPrivate(PoolConformance):
    """Runs so short that they are extended, moved and packed within few tokens."""

    def make(self, bounds, storage):
        return PrivatePool(PrivateOptions(start=4, run=3), bounds, storage)


class TestPrivateAsShipped(PoolConformance):
    def make(self, bounds, storage):
        return PrivatePool(PrivateOptions(), bounds, storage)
