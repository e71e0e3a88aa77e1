"""A run from its options to its report."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from musebench.core.answers import Asking
from musebench.core.errors import UsageError
from musebench.keeping import Keeper, Kept
from musebench.plugin.failing import naming
from musebench.plugin.registry import Registry
from musebench.report.schema import ComputedMemory, Costs, Memory, Report, new_report
from musebench.run.assembly import assemble, taking_part
from musebench.run.conditions import conditions
from musebench.run.fleet import FleetRepeat
from musebench.run.options import RunOptions
from musebench.run.parts import Parts
from musebench.run.profile import Profile, record_profile, require_profiler
from musebench.run.refused import opening
from musebench.run.repeat import Progress, measure


class Prepare(Protocol):
    """Called once with everything open, before the first step."""

    def __call__(self, parts: Parts) -> None: ...


def run(
    options: RunOptions,
    registry: Registry,
    progress: Progress | None = None,
    keeper: Keeper | None = None,
    profile: Profile | None = None,
    prepare: Prepare | None = None,
) -> Report:
    """Run, and report. What goes wrong inside a step is in the report; a mistake raises before the first.

    `keeper` is told what has ended while it runs; `step_timeout` needs one. Neither it nor `progress` hears
    of several replicas. Memory in the report is that of one device.

    Raises:
        MusebenchError: a choice, a workload or a model that cannot be used, in one line.
    """
    with naming(taking_part(options, registry)):
        return _run(options, registry, progress, keeper, profile, prepare)


def _run(
    options: RunOptions,
    registry: Registry,
    progress: Progress | None,
    keeper: Keeper | None,
    profile: Profile | None,
    prepare: Prepare | None,
) -> Report:
    options.check()
    if options.step_timeout is not None and keeper is None:
        raise UsageError(f"--step-timeout is {options.step_timeout}; it needs a keeper")
    if profile is not None:
        require_profiler(options, registry)
    with opening(options):
        parts = assemble(options, registry)
    try:
        stub = new_report(
            conditions(options, parts), parts.choices, [], Memory(ComputedMemory(), parts.snapshots),
            Costs(seconds=parts.costs), "the run has not ended",
        )  # fmt: skip
        if prepare is not None:
            prepare(parts)
        kept = None if keeper is None else Kept(keeper, stub, options.step_timeout)
        if options.replicas > 1:
            runs, message = measure(options, registry, parts, None, None, FleetRepeat)
        else:
            runs, message = measure(options, registry, parts, progress, kept)
        ask = Asking()
        counters = ask.numbers("executor", parts.executor, "counters")
        sizes = ask.numbers("executor", parts.executor, "sizes", optional=True)
        costs = Costs(seconds=parts.costs, counters={**counters, **sizes})
        computed = ComputedMemory(
            weights=parts.model.facts.weight_bytes,
            rows=ask("storage", lambda: max(stack.backend.storage().bytes for stack in parts.stacks), None),
            workspace=getattr(parts.backend, "workspace_bytes", None),
            graphs=getattr(parts.backend, "graph_pool_bytes", 0),
        )
        ran_under = ask("backend", lambda: conditions(options, parts), stub.conditions)
        if profile is not None and message is None:
            record_profile(options, registry, parts, profile)
    finally:
        trouble = parts.close()
    parts.snapshots["closed"] = ask.memory("backend", parts.backend)
    reasons = dict(getattr(parts.backend, "memory_reasons", {}) or {})
    made = new_report(
        ran_under,
        parts.choices,
        runs,
        Memory(computed, parts.snapshots, reasons, parts.bound),
        costs,
        message or ask.trouble or trouble,
        dict(options.slo),
        parts.reference,
    )
    return replace(made, id=stub.id, created=stub.created)
