"""Serving the workload once, as often as it is repeated."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from musebench.core.answers import Asking, numbers_of
from musebench.core.blame import told
from musebench.core.clock import VirtualClock
from musebench.core.engine import Engine
from musebench.core.interrupt import RunInterrupted, between_steps
from musebench.core.packing import pack
from musebench.core.protocols import MemorySnapshot
from musebench.core.shrink import Shrink
from musebench.keeping import Kept, after_each, counters_since, trouble_of
from musebench.measure.energy import EnergyMeter
from musebench.plugin.failing import suspected
from musebench.plugin.registry import Registry
from musebench.report.columns import RunData
from musebench.report.journal import JournalHead
from musebench.report.recorded import NOT_MEASURED, EndedSince, before_the_run, run_data
from musebench.run.assembly import taking_part
from musebench.run.options import RunOptions
from musebench.run.parts import Parts, Stack

OnStep = Callable[[Engine], None]


class Progress(Protocol):
    """Called after each step; `repeat` counts from 1 and is 0 for a warm-up."""

    def __call__(self, engine: Engine, repeat: int) -> None: ...


class Repeat:
    """One serving of the workload, by an engine of its own; what it did is counted from its making on.

    After `serve`, `seconds` is how long it took on the backend's clock.
    """

    def __init__(self, options: RunOptions, registry: Registry, parts: Parts) -> None:
        self._parts = parts
        self._margins = options.margins
        self._shrink = Shrink() if options.on_oom == "shrink" else None
        self.engine = make_engine(options, registry, parts, parts.stacks[0], self._shrink)
        self._start_rows = parts.backend.storage().rows
        self.ask = Asking()
        self._taking_part = taking_part(options, registry)
        self._counters_before = numbers_of(parts.executor, "counters")
        self._audited_before = {} if parts.audit is None else parts.audit.counts()
        self._energy = NOT_MEASURED
        self._wall_seconds: float | None = None
        self._waited_seconds: float | None = None
        self.seconds = 0.0

    def serve(self, watch: AbstractContextManager[Any]) -> str | None:
        """Serve all requests, within `watch`; why that is incomplete, or None."""
        parts = self._parts
        meter = EnergyMeter(getattr(parts.backend, "nvml", None))
        meter.start()
        began, wall_began = self._now(), time.perf_counter()
        try:
            with watch, between_steps(self._engines()):
                self._run()
            message = self._trouble()
        except KeyboardInterrupt as error:
            if self.engine.interrupted and not isinstance(error, RunInterrupted):
                raise  # the second one, in the middle of a step: only the journal is whole
            message = "interrupted"
        except (Exception, SystemExit) as error:
            message = f"step {len(self.engine.recorder.steps)}: {told(error)}"
        wall = time.perf_counter() - wall_began
        waited = None if parts.audit is None else parts.audit.waited
        if waited is not None and waited > wall_began:
            self._waited_seconds = waited - wall_began
        # No host time in a report of virtual time: it would not be the same twice.
        self._wall_seconds = None if isinstance(parts.backend.clock, VirtualClock) else wall
        self._energy = meter.stop()
        self.seconds = self._now() - began
        return message if message in (None, "interrupted") else suspected(message, self._taking_part)

    def _now(self) -> float:
        return self._parts.backend.clock.now()

    def _engines(self) -> Sequence[Engine]:
        return (self.engine,)

    def _run(self) -> None:
        self.engine.run(self._parts.built.requests, self._parts.workload.concurrency)

    def _trouble(self) -> str | None:
        return trouble_of(self.engine)

    def counters(self) -> dict[str, int | float]:
        """The executor's, over this serving."""
        return self.ask("executor", lambda: counters_since(self._parts.executor, self._counters_before), {})

    def ended(self, number: int) -> EndedSince:
        """What it adds from here on, for a journal in which it is run `number`."""
        return EndedSince(number, self.engine, self._parts.backend.storage(), self._margins)

    def data(self) -> RunData:
        """What it has come to by now; any thread may ask while it is served."""
        parts, engine = self._parts, self.engine
        made = run_data(
            engine,
            parts.backend.storage(),
            parts.model,
            self._start_rows,
            self.counters(),
            self._margins,
            self._energy,
            self._wall_seconds,
            self._audited(),
            self._waited_seconds,
        )
        if self._shrink is None or not self._shrink.times:
            return made
        return replace(made, shrinks=self._shrink.times, last_limits=engine.limits)

    def _audited(self) -> dict[str, int] | None:
        if self._parts.audit is None:
            return None
        before = self._audited_before
        return {name: count - before[name] for name, count in self._parts.audit.counts().items()}


def measure(
    options: RunOptions,
    registry: Registry,
    parts: Parts,
    progress: Progress | None,
    kept: Kept | None,
    kind: type[Repeat] = Repeat,
) -> tuple[list[RunData], str | None]:
    """Warm-ups, then the repeats; an interruption keeps what there is, as an incomplete report."""
    for _ in range(options.warmup):
        warmup = kind(options, registry, parts)
        warmup.engine.on_step = _telling(progress, 0)
        message = warmup.serve(nullcontext())
        if message is not None:
            parts.snapshots["peak"] = _peak(warmup, parts)
            return [warmup.data()], message
        parts.costs["warmup"] = parts.costs.get("warmup", 0.0) + warmup.seconds
        parts.snapshots["warm"] = parts.backend.memory()
    parts.backend.synchronize()
    parts.backend.reset_peak()
    runs: list[RunData] = []
    for number in range(1, options.repeat + 1):
        repeat = kind(options, registry, parts)
        message = _serve_kept(repeat, number, runs, parts, _telling(progress, number), kept)
        parts.snapshots["peak"] = _peak(repeat, parts)
        data = repeat.ask("run", repeat.data, None)
        if data is not None:
            runs.append(data)
        if message := message or repeat.ask.trouble:
            return runs, message
    return runs, None


def _peak(repeat: Repeat, parts: Parts) -> MemorySnapshot:
    return repeat.ask.memory("backend", parts.backend)


def _serve_kept(
    repeat: Repeat,
    number: int,
    runs: list[RunData],
    parts: Parts,
    telling: OnStep | None,
    kept: Kept | None,
) -> str | None:
    """Serve repeat `number`, after those that made `runs`; what has ended is told to the keeper meanwhile."""
    engine = repeat.engine
    if kept is None:
        engine.on_step = telling
        return repeat.serve(nullcontext())
    ended = repeat.ended(number)
    if number == 1:
        head = JournalHead(kept.stub, before_the_run(parts.built.requests, parts.model))
        kept.keeper.begin(head, isinstance(parts.backend.clock, VirtualClock))
    engine.on_step = after_each(telling, kept.journal(ended, repeat.counters))
    message = repeat.serve(kept.watch(engine, runs, repeat.data))
    kept.rest(ended, repeat.counters)
    return message


def _telling(progress: Progress | None, number: int) -> OnStep | None:
    return None if progress is None else partial(progress, repeat=number)


def make_engine(
    options: RunOptions, registry: Registry, parts: Parts, stack: Stack, shrink: Shrink | None
) -> Engine:
    """An engine of its own over one replica."""
    backend, bounds = stack.backend, parts.bounds
    simulated = backend.name == "sim"
    make_table = getattr(backend, "table", None)
    return Engine(
        registry.get("scheduler", options.scheduler).make(options.settings.get("scheduler", {})),
        stack.pool,
        stack.executor,
        backend.clock,
        parts.limits,
        bounds.max_sessions,
        bounds.max_context,
        overlap=backend.name in ("cuda", "sim") if options.overlap is None else options.overlap,
        on_failure=shrink,
        packer=getattr(backend, "packer", pack),
        table=None if make_table is None else make_table(bounds.max_sessions, options.seed),
        bulk=simulated and not options.stepwise,
    )
