"""Keeping what a run has done, for when it does not end: the journal's entries, and the watchdog's report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

from musebench.core.answers import numbers_of
from musebench.core.engine import Engine
from musebench.core.protocols import Executor
from musebench.core.request import FinishReason
from musebench.core.watchdog import Watchdog
from musebench.report.columns import RunData
from musebench.report.journal import JournalEntry, JournalHead
from musebench.report.recorded import EndedSince
from musebench.report.schema import Report


class Keeper(Protocol):
    """Puts it somewhere safe. The command line's writes files (musebench.cli.keeping)."""

    @property
    def noting(self) -> bool:
        """Whether `note` does anything with an entry: making one costs time inside the run."""

    def begin(self, head: JournalHead, virtual: bool) -> None:
        """Before the first measured step; `virtual` says that the run is simulated: it can be had again."""

    def note(self, entry: JournalEntry) -> None:
        """Requests have ended."""

    def hung(self, report: Report) -> None:
        """A step does not end: keep the incomplete report, before the process is ended. Called on a thread
        beside the one that hangs."""


@dataclass(frozen=True)
class Kept:
    """A keeper for one run: `stub` is its report without runs, `step_timeout` how long a step may take
    (seconds; None: as long as it likes)."""

    keeper: Keeper
    stub: Report
    step_timeout: float | None = None

    def journal(
        self, ended: EndedSince, counters: Callable[[], Mapping[str, Any]]
    ) -> Callable[[Engine], None]:
        """A callback after steps, that notes the requests which have ended in them."""

        def on_step(engine: Engine) -> None:
            if self.keeper.noting and ended.anything:
                self.keeper.note(ended.take(counters()))

        return on_step

    def rest(self, ended: EndedSince, counters: Callable[[], Mapping[str, Any]]) -> None:
        """After a run: note what no step has noted, and what the run came to."""
        if self.keeper.noting:
            self.keeper.note(ended.take(counters()))

    def watch(
        self, engine: Engine, runs: list[RunData], so_far: Callable[[], RunData]
    ) -> AbstractContextManager[Any]:
        """A context that ends the process when a step of the engine hangs. `runs` are those before it,
        `so_far` reads this one."""
        if self.step_timeout is None:
            return nullcontext()

        def hung(text: str) -> None:
            message = f"{text} (--step-timeout)"
            self.keeper.hung(replace(self.stub, runs=[*runs, so_far()], message=message))

        return Watchdog(engine, self.step_timeout, hung)


def counters_since(executor: Executor, before: Mapping[str, int | float]) -> dict[str, int | float]:
    """What an executor has counted since `before`."""
    return {name: value - before.get(name, 0) for name, value in numbers_of(executor, "counters").items()}


def trouble_of(engine: Engine) -> str | None:
    """Why a run that came to its end is incomplete all the same: requests failed, and the first reason."""
    sequences = engine.recorder.sequences
    failed = [sequence for sequence in sequences if sequence.finish_reason is FinishReason.FAILED]
    if not failed:
        return None
    reasons = engine.recorder.failures or [failed[0].message or "for no known reason"]
    more = f"; {len(reasons) - 1:,} more steps failed" if len(reasons) > 1 else ""
    return f"{len(failed):,} of {len(sequences):,} requests failed: {reasons[0]}{more}"


def after_each(*callbacks: Callable[[Engine], None] | None) -> Callable[[Engine], None] | None:
    """One callback that calls all of them that there are; None when there is none."""
    there = [callback for callback in callbacks if callback is not None]
    if len(there) < 2:
        return there[0] if there else None

    def call(engine: Engine) -> None:
        for callback in there:
            callback(engine)

    return call
