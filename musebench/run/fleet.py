"""Serving the workload once with several replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from musebench.core.answers import numbers_of
from musebench.core.engine import Engine
from musebench.core.fleet import Fleet
from musebench.core.shrink import Shrink
from musebench.keeping import counters_since, trouble_of
from musebench.plugin.registry import Registry
from musebench.report.columns import RunData
from musebench.report.recorded import run_data
from musebench.report.replicas import merged
from musebench.run.options import ROUTER, RunOptions
from musebench.run.parts import Parts
from musebench.run.repeat import Repeat, make_engine


class FleetRepeat(Repeat):
    """One serving by an engine a replica; `engine` is the first's."""

    def __init__(self, options: RunOptions, registry: Registry, parts: Parts) -> None:
        super().__init__(options, registry, parts)
        self._shrinks = [self._shrink] + [
            Shrink() if options.on_oom == "shrink" else None for _ in parts.replicas
        ]
        engines = [
            make_engine(options, registry, parts, stack, shrink)
            for stack, shrink in zip(parts.replicas, self._shrinks[1:], strict=True)
        ]
        self._before = [
            (stack.backend.storage().rows, numbers_of(stack.executor, "counters")) for stack in parts.stacks
        ]
        router = registry.get("router", options.router or ROUTER).make(options.settings.get("router", {}))
        self.fleet = Fleet([self.engine, *engines], router)

    def _now(self) -> float:
        return max(stack.backend.clock.now() for stack in self._parts.stacks)

    def _engines(self) -> Sequence[Engine]:
        return self.fleet.engines

    def _run(self) -> None:
        self.fleet.run(self._parts.built.requests, self._parts.workload.concurrency)

    def _trouble(self) -> str | None:
        troubles = [
            (place, trouble)
            for place, engine in enumerate(self.fleet.engines)
            if (trouble := trouble_of(engine)) is not None
        ]
        return "; ".join(f"replica {place}: {trouble}" for place, trouble in troubles) or None

    def data(self) -> RunData:
        """All replicas in one; requests that were not routed before an interruption are not in it."""
        place_of = {request.id: place for place, request in enumerate(self._parts.built.requests)}
        engines = self.fleet.engines
        places = [place_of[one.request.id] for engine in engines for one in engine.recorder.sequences]
        return merged([self._of(place, engine) for place, engine in enumerate(engines)], places)

    def _of(self, place: int, engine: Engine) -> RunData:
        stack, shrink = self._parts.stacks[place], self._shrinks[place]
        rows, counters = self._before[place]
        made = run_data(
            engine,
            stack.backend.storage(),
            self._parts.model,
            rows,
            counters_since(stack.executor, counters),
            energy=self._energy,
        )
        if shrink is None or not shrink.times:
            return made
        return replace(made, shrinks=shrink.times, last_limits=engine.limits)
