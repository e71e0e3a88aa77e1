"""The laws of executors, held over histories on a fake backend."""

from __future__ import annotations

from musebench.testing.laws.executor_histories import executor_histories
from musebench.testing.laws.executor_laws import EXECUTOR_LAWS
from musebench.testing.laws.executor_play import MakeExecutor, executor_play
from musebench.testing.laws.law import Finding
from musebench.testing.laws.search import search

__all__ = ["EXECUTOR_LAWS", "hold_executor"]


def hold_executor(make: MakeExecutor, *, examples: int = 100, seed: int = 0) -> list[Finding]:
    """A finding a law for the executors that `make(backend, limits)` makes."""
    return search(EXECUTOR_LAWS, executor_histories(), executor_play(make), examples, seed)
