"""Lets the engine run a history with an executor between an audit's two sides, and holds its laws."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Ordered
from typing import Any

import numpy as np

from musebench.core.audit import FINDINGS, Audit
from musebench.core.batch import StepBatch
from musebench.core.engine import Engine
from musebench.core.errors import StepFailed, UnsupportedError, UsageError
from musebench.core.plan import Limits, StepPlan
from musebench.core.protocols import Executor, Forward, PoolBounds, StepOutput
from musebench.core.request import FinishReason
from musebench.pools.geometric import GeometricOptions, GeometricPool
from musebench.schedulers.chunked import ChunkedOptions, ChunkedScheduler
from musebench.testing.fake_backend import FakeBackend, Misuse, PlantedFailure, reference
from musebench.testing.fake_storage import FakeStorage
from musebench.testing.laws import executor_laws as laws
from musebench.testing.laws.counters import Counted
from musebench.testing.laws.executor_histories import ExecutorHistory
from musebench.testing.laws.law import ERRORS, Broken, History, Impossible, counted, listed

MakeExecutor = Callable[[Any, Limits], Executor]


def executor_play(make: MakeExecutor) -> Callable[[ExecutorHistory, History], None]:
    """A play of the executors that `make(backend, limits)` makes."""

    def play(drawn: ExecutorHistory, history: History) -> None:
        requests, limits = drawn.requests(), drawn.limits
        for one in requests:
            drawn_by = "" if one.sampling.greedy else ", sampled"
            what = f"{counted(len(one.prompt), 'token')} and {one.max_new_tokens} to make{drawn_by}"
            at = f" at {one.arrival_seconds:g} s" if one.arrival_seconds else ""
            history.doing(f"submitting {one.id} with {what}{at}")
        bounds = PoolBounds(drawn.sequences, max(one.cells_needed for one in requests))
        storage = FakeStorage(moves=drawn.moves)
        backend: Any = FakeBackend(bounds, storage, failing=drawn.failing, late=drawn.late)
        audit = Audit()
        try:
            executor = make(audit.backend(backend), limits)
        except (UsageError, UnsupportedError) as error:
            raise Impossible(f"it is not made: {error}") from None
        watched: Any = _Watched(audit.executor(executor), limits, history)
        watched.prepare_once()
        pool = GeometricPool(GeometricOptions(start=drawn.rows), bounds, storage)
        engine = Engine(
            ChunkedScheduler(ChunkedOptions()), pool, watched, backend.clock, limits, drawn.sequences,
            bounds.max_context, drawn.overlap, _Steps(drawn, watched), watched.failed,
        )  # fmt: skip
        engine.run(requests)
        _over(engine, backend, audit, history)
        _close(executor, backend, drawn.backend_first, history)

    return play


class _Steps:
    """After each step: cancels that are due, and the counters."""

    def __init__(self, drawn: ExecutorHistory, watched: _Watched) -> None:
        self._cancels = drawn.cancels
        self._watched = watched

    def __call__(self, engine: Engine) -> None:
        self._watched.look()
        for step, which in self._cancels:
            if len(engine.recorder.steps) == step and which < len(engine.recorder.sequences):
                engine.cancel(f"r{which}")


class _Watched:
    """An executor as the engine sees it."""

    def __init__(self, inner: Any, limits: Limits, history: History) -> None:
        self.inner = inner
        self.name = inner.name
        self.history = history
        own = inner.limits
        wide = [
            f"{name} is {getattr(own, name)} and the run's {getattr(limits, name)}"
            for name in ("most_prefill", "most_sequences", "most_tokens")
            if getattr(own, name) > getattr(limits, name)
        ]
        history.hold(laws.LIMITS, not wide, f"its limits are wider than the run's: {listed(wide)}")
        self._counters = Counted(laws.COUNTERS)

    @property
    def limits(self) -> Limits:
        limits: Limits = self.inner.limits
        return limits

    def prepare_once(self) -> None:
        for name, seconds in self.inner.prepare().items():
            fine = isinstance(seconds, int | float) and math.isfinite(seconds) and seconds >= 0
            self.history.hold(laws.PREPARE, fine, f"prepare says {seconds!r} seconds of {name!r}")
        self.history.judged[laws.PREPARE.name] += 1

    def look(self) -> None:
        self._counters.look(self.inner.counters(), self.history)

    def failed(self, engine: Engine, failure: StepFailed) -> bool:
        """What a law or the backend has said is not to be condemned but told."""
        cause = failure.cause
        if isinstance(cause, Broken):
            raise cause
        if isinstance(cause, Misuse):
            raise Broken(laws.GRAPHS if "graph" in str(cause) else laws.PADDING, str(cause))
        if not isinstance(cause, PlantedFailure):
            raise Broken(ERRORS, f"{type(cause).__name__} was raised in a step: {cause}")
        self.history.doing("a forward fails")
        return False

    def cut(self, plan: StepPlan) -> Ordered[Forward]:
        before = _facts(plan)
        slices = _slices(plan)
        self.history.doing(f"cutting {_words(plan)}")
        forwards: Ordered[Forward] = self.inner.cut(plan)
        self.history.hold(laws.PLAN, _facts(plan) == before, "the plan was changed while it was cut")
        made = _joined([_slices(forward.plan) for forward in forwards])
        fault = f"the forwards hold {_told(made)}; the plan is {_told(slices)}"
        self.history.hold(laws.SLICES, made == slices, fault)
        limits = self.limits
        for forward in forwards:
            for what, value, most in (
                ("tokens", forward.plan.tokens, limits.most_tokens),
                ("sequences", forward.plan.slices, limits.most_sequences),
                (
                    "tokens of a prefill",
                    max((piece.count for piece in forward.plan.prefills), default=0),
                    limits.most_prefill,
                ),
            ):
                self.history.hold(laws.LIMITS, value <= most, f"a forward of {value} {what}; it takes {most}")
        return forwards

    def execute(self, batch: StepBatch) -> StepOutput:
        before = batch.buffer.tobytes()
        output = self.inner.execute(batch)
        same = batch.buffer.tobytes() == before
        self.history.hold(laws.BATCHES, same, "the packed batch was changed")
        return _Output(output, batch.rows, self.history)

    def counters(self) -> Mapping[str, int | float]:
        counters: Mapping[str, int | float] = self.inner.counters()
        return counters

    def close(self) -> None:
        self.inner.close()


class _Output:
    def __init__(self, inner: Any, rows: int, history: History) -> None:
        self._inner, self._rows, self._history = inner, rows, history
        self.device_seconds: float | None = None
        self.margins: np.ndarray | None = None

    def wait(self) -> np.ndarray:
        tokens: Any = self._inner.wait()
        fine = isinstance(tokens, np.ndarray) and tokens.dtype == np.int32 and tokens.shape == (self._rows,)
        self._history.hold(laws.OUTPUT, fine, f"wait gave {tokens!r} for {counted(self._rows, 'logit row')}")
        again = np.array_equal(tokens.copy(), self._inner.wait())
        self._history.hold(laws.OUTPUT, again, "the second wait gave other tokens than the first")
        self.device_seconds, self.margins = self._inner.device_seconds, self._inner.margins
        made: np.ndarray = tokens
        return made


def _over(engine: Engine, backend: FakeBackend, audit: Audit, history: History) -> None:
    for name, count in audit.found.items():
        if count:
            history.hold(laws.AUDITED[name], False, f"{counted(count, 'time')}: {FINDINGS[name]}")
    for law in (laws.BATCHES, laws.WAITED, laws.PADDING, laws.GRAPHS):
        history.judged[law.name] += 1
    if failures := backend.failures:
        hidden = f"{counted(failures, 'forward')} failed, and no step was seen to fail"
        history.hold(laws.FAILURES, engine.recorder.failed_steps > 0, hidden)
    for sequence in engine.recorder.sequences:
        made, wanted = sequence.generated_tokens(), reference(sequence.request)
        reason = sequence.finish_reason
        if reason in (FinishReason.STOP, FinishReason.LENGTH):
            right = made == wanted
        else:
            right = made == wanted[: len(made)]
        known = f"the tokens of {sequence.request.id} are {made}; {wanted} are its own"
        history.hold(laws.TOKENS, right, known)
        fault = f"{sequence.request.id} did not end as it should: {sequence.message}"
        history.hold(laws.FAILURES, reason is not FinishReason.FAILED or failures > 0, fault)


def _close(executor: Executor, backend: FakeBackend, backend_first: bool, history: History) -> None:
    first, second = (backend, executor) if backend_first else (executor, backend)
    history.doing(
        f"closing the {'backend and the executor' if backend_first else 'executor and the backend'}"
    )
    for what in (first, second, executor):
        try:
            what.close()
        except Exception as error:
            raise Broken(laws.CLOSE, f"{type(error).__name__} was raised: {error}") from error
    kept = sum(not graph.dropped for graph in backend.graphs)
    history.hold(laws.CLOSE, not kept, f"{counted(kept, 'graph')} of {len(backend.graphs)} is still kept")


def _facts(plan: StepPlan) -> Any:
    those = [(one.session, one.slot, one.length, one.computed, one.phase) for one in plan.sequences()]
    return those, _slices(plan), len(plan.decodes)


def _slices(plan: StepPlan) -> list[tuple[str, int]]:
    decodes = [(one.request.id, 1) for one in plan.decodes]
    return _joined([decodes, [(piece.sequence.request.id, piece.count) for piece in plan.prefills]])


def _joined(parts: list[list[tuple[str, int]]]) -> list[tuple[str, int]]:
    """In order; neighbouring slices of one sequence as one."""
    made: list[tuple[str, int]] = []
    for name, count in (piece for part in parts for piece in part):
        if made and made[-1][0] == name:
            made[-1] = name, made[-1][1] + count
        else:
            made.append((name, count))
    return made


def _told(slices: list[tuple[str, int]]) -> str:
    return listed(f"{count} of {name}" for name, count in slices)


def _words(plan: StepPlan) -> str:
    decodes = listed(one.request.id for one in plan.decodes)
    said = [f"decodes of {decodes}"] if plan.decodes else []
    said += [f"{counted(piece.count, 'token')} of {piece.sequence.request.id}" for piece in plan.prefills]
    return listed(said)
