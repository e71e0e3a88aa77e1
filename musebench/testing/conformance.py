"""The conformance kit as pytest classes: an author subclasses one, and gives it a factory.

Each law is a test of its own, named after it; all laws of a class are held over one search. A law that cannot
be judged (a pool without fork) is skipped with the reason.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from musebench.core.plan import Limits
from musebench.core.protocols import Executor, Pool, PoolBounds, Router, Scheduler
from musebench.report.schema import Report
from musebench.report.verdict import Check
from musebench.testing.laws.check import CHECK_LAWS, hold_check
from musebench.testing.laws.executor import EXECUTOR_LAWS, hold_executor
from musebench.testing.laws.law import ERRORS, Finding, Law
from musebench.testing.laws.pool import POOL_LAWS, hold_pool
from musebench.testing.laws.pool_histories import PoolHistory
from musebench.testing.laws.pool_play import fake_storage
from musebench.testing.laws.router import ROUTER_LAWS, hold_router
from musebench.testing.laws.scheduler import SCHEDULER_LAWS, hold_scheduler
from musebench.testing.laws.trace import TRACE_LAWS, hold_trace
from musebench.workload.traces.row import TraceFormat


class Conformance:
    """What all kinds share. `examples` histories are drawn from `seed`."""

    examples: ClassVar[int] = 200
    seed: ClassVar[int] = 0
    _findings: ClassVar[dict[str, Finding] | None] = None

    def findings(self) -> list[Finding]:
        """A finding a law."""
        raise NotImplementedError

    def hold(self, law: Law) -> None:
        """Fail where this law is broken, with the shortest history that breaks it."""
        kind = type(self)
        if "_findings" not in kind.__dict__:
            kind._findings = {finding.law.name: finding for finding in self.findings()}
        finding = (kind._findings or {})[law.name]
        if finding.outcome == "broken":
            pytest.fail(finding.text(), pytrace=False)
        if finding.outcome == "not judged":
            pytest.skip(finding.reason)


def _each(*laws: Law) -> Any:
    return pytest.mark.parametrize("law", laws, ids=lambda law: law.name.replace(" ", "-"))


class PoolConformance(Conformance):
    """Random histories of steps, failures, ends, rewinds and forks, over rows that may move, stay or fail."""

    def make(self, bounds: PoolBounds, storage: Any) -> Pool:
        """The pool under test, over a `storage` that this class made."""
        raise NotImplementedError

    def storage(self, history: PoolHistory) -> Any:
        """The rows of one history; another storage where the policy needs its own."""
        return fake_storage(history)

    def findings(self) -> list[Finding]:
        return hold_pool(self.make, self.storage, examples=self.examples, seed=self.seed)

    @_each(*POOL_LAWS, ERRORS)
    def test_law(self, law: Law) -> None:
        self.hold(law)


class SchedulerConformance(Conformance):
    """Random requests over time, limits and tight pools, run by the engine; every plan is looked at."""

    examples: ClassVar[int] = 60

    def make(self) -> Scheduler:
        """A new scheduler."""
        raise NotImplementedError

    def findings(self) -> list[Finding]:
        return hold_scheduler(self.make, examples=self.examples, seed=self.seed)

    @_each(*SCHEDULER_LAWS, ERRORS)
    def test_law(self, law: Law) -> None:
        self.hold(law)


class ExecutorConformance(Conformance):
    """Random mixtures of batches on a fake backend whose tokens depend on every cell: growth, graphs,
    padding, forwards that fail, cancels, and closing in any order."""

    examples: ClassVar[int] = 100

    def make(self, backend: Any, limits: Limits) -> Executor:
        """The executor under test, over a `backend` that this class made."""
        raise NotImplementedError

    def findings(self) -> list[Finding]:
        return hold_executor(self.make, examples=self.examples, seed=self.seed)

    @_each(*EXECUTOR_LAWS, ERRORS)
    def test_law(self, law: Law) -> None:
        self.hold(law)


class TraceReaderConformance(Conformance):
    """A right file of the format, spoilt piece by piece. `example` is that file, with two rows or more, and
    `filename` what it would be called."""

    examples: ClassVar[int] = 150
    example: ClassVar[bytes]
    filename: ClassVar[str] = "trace.csv"

    def make(self) -> TraceFormat:
        """A new reader."""
        raise NotImplementedError

    def findings(self) -> list[Finding]:
        return hold_trace(self.make, self.example, self.filename, examples=self.examples, seed=self.seed)

    @_each(*TRACE_LAWS, ERRORS)
    def test_law(self, law: Law) -> None:
        self.hold(law)


class CheckConformance(Conformance):
    """Reports of a simulated run: sound ones, ones that lack parts, and one that must fail."""

    examples: ClassVar[int] = 30

    def make(self) -> Check:
        """A new check."""
        raise NotImplementedError

    def broken(self, report: Report) -> Report:
        """A sound report, changed so that the check must fail it."""
        raise NotImplementedError

    def findings(self) -> list[Finding]:
        return hold_check(self.make, self.broken, examples=self.examples, seed=self.seed)

    @_each(*CHECK_LAWS, ERRORS)
    def test_law(self, law: Law) -> None:
        self.hold(law)


class RouterConformance(Conformance):
    """Random requests, and replicas as busy as they come."""

    examples: ClassVar[int] = 150

    def make(self) -> Router:
        """A new router."""
        raise NotImplementedError

    def findings(self) -> list[Finding]:
        return hold_router(self.make, examples=self.examples, seed=self.seed)

    @_each(*ROUTER_LAWS, ERRORS)
    def test_law(self, law: Law) -> None:
        self.hold(law)
