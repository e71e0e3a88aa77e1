"""One run: a workload on a model, with one executor, pool and scheduler; it ends in a report."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from functools import partial
from typing import Any, Protocol

from musebench.core.audit import Audit
from musebench.core.clock import VirtualClock
from musebench.core.counted import CountedTable
from musebench.core.engine import Engine
from musebench.core.errors import UnsupportedError, UsageError
from musebench.core.options import nearest
from musebench.core.packing import pack
from musebench.core.plan import Limits
from musebench.core.profiling import Activity
from musebench.core.protocols import Backend, Executor, MemorySnapshot, Pool, PoolBounds
from musebench.core.request import Request
from musebench.core.shrink import Shrink
from musebench.keeping import Keeper, Kept, after_each, counters_since, trouble_of
from musebench.measure import host
from musebench.measure.ceilings import stored_ceilings
from musebench.measure.energy import Energy, EnergyMeter
from musebench.models.plain_generate import REFERENCES, plain_generate, require_greedy
from musebench.models.source import Model, ModelSource
from musebench.plugin.component import Component
from musebench.plugin.registry import Registry
from musebench.report.bound import memory_bound
from musebench.report.columns import RunData
from musebench.report.journal import JournalHead
from musebench.report.recorded import NOT_MEASURED, EndedSince, before_the_run, run_data
from musebench.report.schema import (
    Choice,
    Choices,
    ComputedMemory,
    Conditions,
    Costs,
    Memory,
    MemoryBound,
    ModelInfo,
    Reference,
    Report,
    WorkloadInfo,
    new_report,
)
from musebench.workload.build import Built
from musebench.workload.load import load_workload
from musebench.workload.spec import Context
from musebench.workload.workload import Workload

MOST_SESSIONS = 256
TOKEN_BUDGET = 1024


class Prepare(Protocol):
    """Called once with everything open, before the first step."""

    def __call__(self, parts: Parts) -> None: ...


class Progress(Protocol):
    """Called after each step; `repeat` counts from 1 and is 0 for a warm-up."""

    def __call__(self, engine: Engine, repeat: int) -> None: ...


ON_OOM = ("fail", "shrink")
"""After an out-of-memory: the step's requests fail, or the step is tried again with half of it."""


@dataclass(frozen=True)
class RunOptions:
    """What `musebench run` is told. None leaves a choice to the workload, then to the defaults here.

    `step_timeout` (seconds) ends a run in which a step hangs; `on_oom` is one of `ON_OOM`. `settings` are
    option values by kind of component, as `--set KIND.NAME=VALUE` gives them.
    """

    workload: str = "capitals"
    model: str = "bundled"
    device: str = "cpu"
    dtype: str | None = None
    executor: str = "eager"
    pool: str = "geometric"
    scheduler: str = "chunked"
    max_sessions: int | None = None
    max_context: int | None = None
    token_budget: int | None = None
    seed: int = 0
    warmup: int = 0
    repeat: int = 1
    overlap: bool | None = None
    margins: bool = False
    stepwise: bool = False
    slo: Mapping[str, float] = field(default_factory=dict)
    step_timeout: float | None = None
    on_oom: str = "fail"
    reference: str | None = None
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    USED = ("backend", "executor", "model", "pool", "scheduler", "workload")


@dataclass
class Profile:
    """What `run` fills when it is handed one: a run more, after the measured ones and in no report, with what
    was recorded in its first `steps` steps. None and empty when the measured runs did not end well, or with
    `trouble` in one line."""

    steps: int = 200
    run: RunData | None = None
    activities: list[Activity] = field(default_factory=list)
    trouble: str | None = None


@dataclass
class Parts:
    """What a run is put together from; `built.requests` may be changed before the first step."""

    workload: Workload
    built: Built
    model: Model
    backend: Backend
    pool: Pool
    executor: Executor
    limits: Limits
    bounds: PoolBounds
    choices: Choices
    costs: dict[str, float]
    snapshots: dict[str, MemorySnapshot]
    bound: MemoryBound
    audit: Audit | None
    reference: Reference | None = None


def run(
    options: RunOptions,
    registry: Registry,
    progress: Progress | None = None,
    keeper: Keeper | None = None,
    profile: Profile | None = None,
    prepare: Prepare | None = None,
) -> Report:
    """Run, and report. What goes wrong inside a step is in the report; a mistake raises before the first.

    `keeper` is told what has ended while it runs; `step_timeout` needs one.

    Raises:
        MusebenchError: a choice, a workload or a model that cannot be used, in one line.
    """
    for kind in options.settings:
        if kind not in RunOptions.USED:
            raise UsageError(f"--set {kind}.…: a run has no {kind}; {nearest(kind, RunOptions.USED)}")
    if options.on_oom not in ON_OOM:
        raise UsageError(f"--on-oom is {options.on_oom!r}; {nearest(options.on_oom, ON_OOM)}")
    if options.step_timeout is not None and (keeper is None or not 0 < options.step_timeout < 1e6):
        raise UsageError(f"--step-timeout is {options.step_timeout}; seconds above 0 are wanted")
    if profile is not None:
        _require_profiler(options, registry)
    parts = _assemble(options, registry)
    try:
        stub = new_report(
            _conditions(options, parts), parts.choices, [], Memory(ComputedMemory(), parts.snapshots),
            Costs(seconds=parts.costs), "the run has not ended",
        )  # fmt: skip
        if prepare is not None:
            prepare(parts)
        kept = None if keeper is None else Kept(keeper, stub, options.step_timeout)
        runs, message = _measure(options, registry, parts, progress, kept)
        sizes: Mapping[str, int] = getattr(parts.executor, "sizes", dict)()
        costs = Costs(seconds=parts.costs, counters={**parts.executor.counters(), **sizes})
        computed = ComputedMemory(
            weights=parts.model.facts.weight_bytes,
            rows=parts.backend.storage().bytes,
            workspace=getattr(parts.backend, "workspace_bytes", None),
            graphs=getattr(parts.backend, "graph_pool_bytes", 0),
        )
        conditions = _conditions(options, parts)
        if profile is not None and message is None:
            _profile(options, registry, parts, profile)
    finally:
        trouble = _close(parts)
    parts.snapshots["closed"] = parts.backend.memory()
    reasons = dict(getattr(parts.backend, "memory_reasons", {}) or {})
    measured = Memory(computed, parts.snapshots, reasons, parts.bound)
    made = new_report(
        conditions,
        parts.choices,
        runs,
        measured,
        costs,
        message or trouble,
        dict(options.slo),
        parts.reference,
    )
    return replace(made, id=stub.id, created=stub.created)


def _close(parts: Parts) -> str | None:
    """Close everything; what does not close costs no report. The first such thing as text."""
    trouble = None
    for what, close in (
        ("executor", parts.executor.close),
        ("storage", parts.backend.storage().close),
        ("backend", parts.backend.close),
    ):
        try:
            close()
        except Exception as error:  # a device that is broken says so at every call
            trouble = trouble or f"the {what} could not be closed: {type(error).__name__}: {error}"
    return trouble


def _assemble(options: RunOptions, registry: Registry) -> Parts:
    """Load and open everything, cheap mistakes first."""
    settings = options.settings
    started = time.perf_counter()
    workload = load_workload(options.workload).with_overrides(settings.get("workload", {}))
    device = options.device
    backend_kind = registry.get("backend", device.partition(":")[0])
    executor_kind = registry.get("executor", options.executor)
    pool_kind = registry.get("pool", options.pool)
    scheduler_kind = registry.get("scheduler", options.scheduler)
    chosen = {
        c.kind: c.parse(settings.get(c.kind, {}))
        for c in (backend_kind, executor_kind, pool_kind, scheduler_kind)
    }
    _natural("--warmup", options.warmup, 0)
    _natural("--repeat", options.repeat, 1)
    if options.stepwise and device.partition(":")[0] != "sim":
        raise UsageError(f"--stepwise is for simulated devices; on {device} every run is stepped")
    require = getattr(backend_kind.load(), "require", None)
    if require is not None:
        require(device)  # no device: said before anything is loaded

    simulated = bool(getattr(backend_kind.load(), "SIMULATED", False))
    source = _model_source(options, registry)
    dtype = options.dtype or ("float32" if device.partition(":")[0] == "cpu" else "bfloat16")
    if options.reference is not None and options.reference not in REFERENCES:
        raise UsageError(
            f"--reference {options.reference}: there is no such reference; "
            f"{nearest(options.reference, REFERENCES)}"
        )
    before = getattr(backend_kind.load(), "memory_before", None)
    snapshots = {"start": MemorySnapshot() if before is None else before(device)}
    if simulated:
        model = Model(source.facts(options.model, dtype), source=options.model)
    else:
        model = source.open(options.model, dtype, device, options.seed)
    built = workload.build(
        Context(
            tokenizer=model.tokenizer,
            vocab=model.facts.vocab,
            stop_tokens=model.stop_tokens,
            seed=options.seed,
            contents=not simulated,
            generators={c.name: c.make for c in registry.components("workload")},
            trace_formats={c.name: c.make for c in registry.components("trace")},
        )
    )
    requests = built.requests
    if not requests:
        raise UsageError(f"workload {workload.name!r} makes no request")
    limits, bounds = _dimensions(options, workload, requests, model)
    reference = None if options.reference is None else _reference(model, requests)

    backend = backend_kind.load()(chosen["backend"], device, model)
    snapshots["loaded"] = backend.memory()
    if simulated:
        backend.expect(limits)
    backend.open(bounds, record_margins=options.margins)
    # Nobody computes a simulated token: there is nothing that an executor could give for another.
    audit = None if simulated else Audit()
    launcher = executor_kind.load()(
        chosen["executor"], backend if audit is None else audit.backend(backend), limits
    )
    executor = launcher if audit is None else audit.executor(launcher)
    limits = _plan_limits(limits, executor)
    make_pool = pool_kind.load()
    if simulated:  # nobody reads a simulated cell: a policy may have a form that only counts them
        make_pool = getattr(make_pool, "Counted", make_pool)
    pool = make_pool(chosen["pool"], bounds, backend.storage())
    costs = {**model.load_seconds}
    costs.update(executor.prepare())
    if require_model := getattr(backend, "require_model", None):
        require_model()
    if not simulated:  # no host clock leaks into a simulated run's report
        costs["ready"] = time.perf_counter() - started
    snapshots["opened"] = backend.memory()
    choices = Choices(
        device=device,
        backend=_choice(backend_kind, chosen["backend"]),
        executor=_choice(executor_kind, chosen["executor"]),
        pool=_choice(pool_kind, chosen["pool"]),
        scheduler=_choice(scheduler_kind, chosen["scheduler"]),
        limits=limits,
        bounds=bounds,
    )
    bound = memory_bound(
        model.facts,
        limits,
        bounds,
        pool,
        backend.storage().cell_bytes,
        (request.cells_needed for request in requests),
        getattr(backend, "workspace_bytes", 0),
        len(getattr(getattr(launcher, "ladder", None), "sizes", ())),
    )
    return Parts(
        workload, built, model, backend, pool, executor, limits, bounds, choices, costs, snapshots,
        bound, audit, reference,
    )  # fmt: skip


def _reference(model: Model, requests: list[Request]) -> Reference:
    """By the module itself, before a backend takes it over."""
    if model.module is None:
        raise UsageError(f"--reference transformers needs weights, and {model.facts.name!r} has none here")
    require_greedy(requests)
    began = time.perf_counter()
    made = plain_generate(model.module, requests)
    return Reference(
        by=f"transformers {host.version('transformers')}",
        id=list(made),
        generated_tokens=[len(tokens) for tokens in made.values()],
        token_ids=[token for tokens in made.values() for token in tokens],
        seconds=time.perf_counter() - began,
    )


def _plan_limits(limits: Limits, executor: Executor) -> Limits:
    """A plan may be wider than a program, which is then run several times, but no slice too short for it."""
    fewest = max(limits.fewest_prefill, executor.limits.fewest_prefill)
    return Limits(fewest, limits.most_prefill, limits.most_sequences, limits.most_tokens)


def _model_source(options: RunOptions, registry: Registry) -> ModelSource:
    from musebench.models.resolve import resolve

    kinds = {c.name: c for c in registry.components("model")}
    source = resolve(options.model, {name: kind.make({}) for name, kind in kinds.items()})
    name = next(name for name, kind in kinds.items() if isinstance(source, kind.load()))
    given = options.settings.get("model", {})
    made: ModelSource = kinds[name].make(given) if given else source
    return made


def _dimensions(
    options: RunOptions, workload: Workload, requests: list[Request], model: Model
) -> tuple[Limits, PoolBounds]:
    """Flags first, then the workload's defaults, then what the requests need."""
    given = workload.defaults
    sessions = options.max_sessions or given.max_sessions or min(len(requests), MOST_SESSIONS)
    budget = options.token_budget or given.token_budget or TOKEN_BUDGET
    for flag, value in (
        ("--max-sessions", options.max_sessions), ("--max-context", options.max_context),
        ("--token-budget", options.token_budget),
    ):  # fmt: skip
        if value is not None:
            _natural(flag, value, 1)
    longest = max(len(request.prompt) + request.max_new_tokens for request in requests)
    context = options.max_context or given.max_context or min(longest, model.facts.max_context)
    if context > model.facts.max_context:
        raise UsageError(
            f"--max-context {context:,} is more than model {model.facts.name!r} was made for "
            f"({model.facts.max_context:,} positions)"
        )
    fewest = given.fewest_prefill or 1
    limits = Limits(fewest, min(given.most_prefill or budget, budget), sessions, budget)
    return limits, PoolBounds(sessions, context, given.capacity)


def _natural(flag: str, value: int, least: int) -> None:
    if value < least:
        raise UsageError(f"{flag} is {value}; at least {least} is wanted")


def _choice(component: Component, options: Any) -> Choice:
    values = asdict(options) if is_dataclass(options) and not isinstance(options, type) else {}
    return Choice(component.name, component.package, component.version, values)


def _measure(
    options: RunOptions, registry: Registry, parts: Parts, progress: Progress | None, kept: Kept | None
) -> tuple[list[RunData], str | None]:
    """Warm-ups, then the repeats; an interruption keeps what there is, as an incomplete report."""
    runs: list[RunData] = []
    scheduler_kind = registry.get("scheduler", options.scheduler)
    for number in range(-options.warmup, options.repeat):
        if number == 0:
            parts.backend.synchronize()
            parts.backend.reset_peak()
        scheduler = scheduler_kind.make(options.settings.get("scheduler", {}))
        simulated = parts.backend.name == "sim"
        overlap = parts.backend.name in ("cuda", "sim") if options.overlap is None else options.overlap
        shrink = Shrink() if options.on_oom == "shrink" else None
        engine = Engine(
            scheduler,
            parts.pool,
            parts.executor,
            parts.backend.clock,
            parts.limits,
            parts.bounds.max_sessions,
            parts.bounds.max_context,
            overlap,
            on_failure=shrink,
            packer=getattr(parts.backend, "packer", pack),
            table=CountedTable(parts.bounds.max_sessions) if simulated else None,
            bulk=simulated and not options.stepwise,
        )
        start_rows = parts.backend.storage().rows
        before = dict(parts.executor.counters())
        audited = {} if parts.audit is None else parts.audit.counts()
        message = None

        def so_far(
            engine: Engine = engine, start_rows: int = start_rows, before: dict[str, Any] = before,
            shrink: Shrink | None = shrink, energy: Energy = NOT_MEASURED,
            audited: dict[str, int] = audited, wall: float | None = None,
        ) -> RunData:  # fmt: skip
            counters, storage = counters_since(parts.executor, before), parts.backend.storage()
            audit = None
            if parts.audit is not None:
                audit = {name: count - audited[name] for name, count in parts.audit.counts().items()}
            made = run_data(
                engine, storage, parts.model, start_rows, counters, options.margins, energy, wall, audit
            )
            if shrink is None or not shrink.times:
                return made
            return replace(made, shrinks=shrink.times, last_limits=engine.limits)

        journal, counters = None, partial(counters_since, parts.executor, before)
        ended = EndedSince(number + 1, engine, parts.backend.storage(), options.margins)
        if kept is not None and number >= 0:
            journal = kept.journal(ended, counters)
        if kept is not None and number == 0:
            head = JournalHead(kept.stub, before_the_run(parts.built.requests, parts.model))
            kept.keeper.begin(head, isinstance(parts.backend.clock, VirtualClock))
        engine.on_step = after_each(
            None if progress is None else partial(progress, repeat=max(number + 1, 0)), journal
        )
        energy = EnergyMeter(getattr(parts.backend, "nvml", None))
        energy.start()
        began, wall_began = parts.backend.clock.now(), time.perf_counter()
        try:
            with nullcontext() if kept is None else kept.watch(engine, runs, so_far):
                engine.run(parts.built.requests, parts.workload.concurrency)
            message = trouble_of(engine)
        except KeyboardInterrupt:
            message = "interrupted"
        except Exception as error:
            message = f"step {len(engine.recorder.steps)}: {type(error).__name__}: {error}"
        wall = time.perf_counter() - wall_began
        # No host time in a report of virtual time: it would not be the same twice.
        shown_wall = None if isinstance(parts.backend.clock, VirtualClock) else wall
        used = energy.stop()
        if number < 0 and message is None:
            parts.costs["warmup"] = parts.costs.get("warmup", 0.0) + parts.backend.clock.now() - began
            parts.snapshots["warm"] = parts.backend.memory()
            continue
        parts.snapshots["peak"] = parts.backend.memory()
        runs.append(so_far(energy=used, wall=shown_wall))
        if kept is not None and number >= 0:
            kept.rest(ended, counters)
        if message is not None:
            return runs, message
    return runs, None


def _require_profiler(options: RunOptions, registry: Registry) -> None:
    name = options.device.partition(":")[0]
    if not hasattr(registry.get("backend", name).load(), "profiler"):
        raise UnsupportedError(
            f"--profile: backend {name!r} launches nothing to record; use --device cpu or cuda"
        )


def _profile(options: RunOptions, registry: Registry, parts: Parts, profile: Profile) -> None:
    """One more run under the backend's profiler; costs and memory of the report stay as they were."""
    profiler = parts.backend.profiler()  # type: ignore[attr-defined]

    def watch(engine: Engine, repeat: int) -> None:
        if len(engine.recorder.steps) <= profile.steps:
            profiler.mark(engine.now())
        if len(engine.recorder.steps) == profile.steps:
            profiler.stop()

    apart = replace(parts, costs=dict(parts.costs), snapshots=dict(parts.snapshots))
    try:
        profiler.start()
        try:
            runs, _ = _measure(replace(options, warmup=0, repeat=1), registry, apart, watch, None)
        finally:
            profiler.stop()
        profile.run, profile.activities = runs[0], profiler.activities()
    except Exception as error:  # what was measured is worth more than the profile
        profile.trouble = f"nothing was recorded: {type(error).__name__}: {error}"


def _conditions(options: RunOptions, parts: Parts) -> Conditions:
    backend = dict(parts.backend.conditions())
    commit = host.commit()
    device = str(backend.pop("device", options.device))
    return Conditions(
        device=device,
        workload=WorkloadInfo(parts.workload.name, parts.workload.sha256, list(parts.built.notes)),
        model=ModelInfo(
            parts.model.facts.name, parts.model.source or options.model, parts.model.facts.dtype,
            parts.model.facts, parts.model.weights_sha256,
        ),
        seed=options.seed,
        clock="virtual" if parts.backend.name == "sim" else "host",
        warmup=options.warmup,
        repeats=options.repeat,
        driver=backend.pop("driver", None),
        versions=host.versions(),
        commit=commit.commit,
        dirty=commit.dirty,
        command=host.command_line(sys.argv),
        cpu=host.cpu_name(),
        cores=host.cores(),
        platform=host.platform_name(),
        backend=backend,
        ceilings=stored_ceilings(device, parts.model.facts.dtype),
    )  # fmt: skip
