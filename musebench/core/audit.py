"""Whether an executor did what it says: each of its forwards is held against what the backend was asked.

The audit stands on both sides of an executor: the engine calls `AuditedExecutor`, the executor calls
`AuditedBackend`. Batches must reach the backend as the engine packed them, once each, and what the engine is
handed must be what the backend made, waited for. Only counts are kept, a few microseconds a forward.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence as Ordered
from typing import Any, ClassVar

import numpy as np

from musebench.core.batch import StepBatch
from musebench.core.plan import Limits, StepPlan
from musebench.core.protocols import Executor, Forward, StepOutput

FINDINGS: dict[str, str] = {
    "not launched": "forwards gave tokens and launched nothing: repeated from a cache",
    "launched twice": "forwards launched more than once",
    "changed batches": "forwards ran another batch than the engine packed",
    "changed plans": "plans were cut into forwards that do not hold their slices in order",
    "not waited": "forwards gave tokens before the device was waited for: it was not synchronised",
    "changed tokens": "forwards gave tokens that the backend did not make in those rows",
    "changed seconds": "forwards gave a device time that the backend did not measure",
}
"""What an audit counts, and what each means; an honest executor has 0 of all."""


class AuditedOutput:
    """What an executor hands the engine, next to what the backend handed the executor."""

    def __init__(self, audit: Audit, given: StepOutput, made: _Seen | None) -> None:
        self.device_seconds: float | None = None
        self.margins: np.ndarray | None = None
        self._audit = audit
        self._given = given
        self._made = made

    def wait(self) -> np.ndarray:
        tokens, made, found = self._given.wait(), self._made, self._audit.found
        self._audit.waited = time.perf_counter()
        self.device_seconds, self.margins = self._given.device_seconds, self._given.margins
        self._made = None  # a second wait counts nothing twice
        if made is None:
            return tokens
        if made.tokens is None:
            found["not waited"] += 1
            made.wait()
            assert made.tokens is not None
        if not np.array_equal(tokens, made.tokens):
            found["changed tokens"] += 1
        if self._given.device_seconds != made.device_seconds:
            found["changed seconds"] += 1
        return tokens


class _Seen:
    """A backend's output, which remembers what it gave."""

    def __init__(self, output: StepOutput) -> None:
        self.device_seconds: float | None = None
        self.margins: np.ndarray | None = None
        self.tokens: np.ndarray | None = None
        self._output = output

    def wait(self) -> np.ndarray:
        tokens = self._output.wait()
        self.device_seconds, self.margins = self._output.device_seconds, self._output.margins
        self.tokens = tokens.copy()  # the executor may write into what it gets
        return tokens


class AuditedBackend:
    """A backend as an executor sees it: the same, with launches noted."""

    def __init__(self, audit: Audit, backend: Any) -> None:
        self._audit = audit
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def forward(self, batch: StepBatch) -> StepOutput:
        return self._audit.launched(batch, self._backend.forward(batch))

    def replay(self, graph: Any, batch: StepBatch) -> StepOutput:
        return self._audit.launched(batch, self._backend.replay(graph, batch))


class AuditedExecutor:
    """An executor as the engine sees it; see `musebench.core.protocols.Executor`."""

    name: ClassVar[str] = "audited"

    def __init__(self, audit: Audit, executor: Executor) -> None:
        self._audit = audit
        self.inner = executor
        self.name = executor.name  # type: ignore[misc]  # the executor's own, not the audit's

    @property
    def limits(self) -> Limits:
        return self.inner.limits

    def prepare(self) -> Mapping[str, float]:
        return self.inner.prepare()

    def cut(self, plan: StepPlan) -> Ordered[Forward]:
        slices = _slices(plan)
        forwards = self.inner.cut(plan)
        whole = len(forwards) == 1 and forwards[0].plan is plan
        if (_slices(plan) if whole else _joined(forwards)) != slices:
            self._audit.found["changed plans"] += 1
        return forwards

    def execute(self, batch: StepBatch) -> StepOutput:
        return self._audit.executed(batch, self.inner)

    def sizes(self) -> Mapping[str, int]:
        """Bytes for the report, where the executor has any to tell of."""
        made: Mapping[str, int] = getattr(self.inner, "sizes", dict)()
        return made

    def counters(self) -> Mapping[str, int | float]:
        return self.inner.counters()

    def close(self) -> None:
        self.inner.close()


class Audit:
    """The two sides of one executor. `found` counts by the names of `FINDINGS`; `waited` is when a forward
    was last waited for, by the host's clock, whatever the run's own clock says."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self.forwards = 0
        self.waited: float | None = None
        self._launches: list[tuple[int, _Seen]] = []

    def backend(self, backend: Any) -> AuditedBackend:
        """What to make the executor with."""
        return AuditedBackend(self, backend)

    def executor(self, executor: Executor) -> AuditedExecutor:
        """What to give the engine."""
        return AuditedExecutor(self, executor)

    def launched(self, batch: StepBatch, output: StepOutput) -> StepOutput:
        seen = _Seen(output)
        self._launches.append((_fingerprint(batch), seen))
        return seen

    def executed(self, batch: StepBatch, executor: Executor) -> StepOutput:
        self.forwards += 1
        packed = _fingerprint(batch)
        self._launches.clear()
        given = executor.execute(batch)
        launches = list(self._launches)
        if not launches:
            self.found["not launched"] += 1
            return AuditedOutput(self, given, None)
        if len(launches) > 1:
            self.found["launched twice"] += 1
        ran, made = launches[-1]
        if ran != packed:
            self.found["changed batches"] += 1
        return AuditedOutput(self, given, made)

    def counts(self) -> dict[str, int]:
        """Forwards looked at, and every finding, so far."""
        return {"forwards": self.forwards, **{name: self.found[name] for name in FINDINGS}}


def _fingerprint(batch: StepBatch) -> int:
    """Of all that decides a forward's tokens; padding belongs to it."""
    head = hash((batch.layout, batch.tokens, batch.sequences, batch.rows, batch.generation))
    return zlib.crc32(batch.buffer.tobytes(), head & 0xFFFFFFFF)


def _slices(plan: StepPlan) -> list[tuple[int, int]]:
    """(session, tokens) of a plan, in order; a sequence's slices next to each other as one."""
    pieces = [(sequence.session, 1) for sequence in plan.decodes]
    return pieces + [(piece.sequence.session, piece.count) for piece in plan.prefills]


def _joined(forwards: Ordered[Forward]) -> list[tuple[int, int]]:
    made: list[tuple[int, int]] = []
    for forward in forwards:
        for session, count in _slices(forward.plan):
            if made and made[-1][0] == session:
                made[-1] = (session, made[-1][1] + count)
            else:
                made.append((session, count))
    return made
