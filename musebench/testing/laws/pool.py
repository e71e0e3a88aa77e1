"""The laws of pools, held over histories."""

from __future__ import annotations

from musebench.testing.laws.law import Finding
from musebench.testing.laws.pool_histories import pool_histories
from musebench.testing.laws.pool_laws import POOL_LAWS
from musebench.testing.laws.pool_play import MakePool, MakeStorage, fake_storage, pool_play
from musebench.testing.laws.search import search

__all__ = ["POOL_LAWS", "hold_pool"]


def hold_pool(
    make: MakePool, storage: MakeStorage = fake_storage, *, examples: int = 200, seed: int = 0
) -> list[Finding]:
    """A finding a law for the pools that `make(bounds, storage)` makes.

    `storage(history)` makes the rows of one history; nothing but the protocol is asked of it.
    """
    return search(POOL_LAWS, pool_histories(), pool_play(make, storage), examples, seed)
