"""The laws of schedulers, held over histories."""

from __future__ import annotations

from musebench.testing.laws.law import Finding
from musebench.testing.laws.scheduler_histories import scheduler_histories
from musebench.testing.laws.scheduler_laws import SCHEDULER_LAWS
from musebench.testing.laws.scheduler_play import MakeScheduler, scheduler_play
from musebench.testing.laws.search import search

__all__ = ["SCHEDULER_LAWS", "hold_scheduler"]


def hold_scheduler(make: MakeScheduler, *, examples: int = 60, seed: int = 0) -> list[Finding]:
    """A finding a law for the schedulers that `make()` makes."""
    return search(SCHEDULER_LAWS, scheduler_histories(), scheduler_play(make), examples, seed)
