"""Loading and opening everything that a run needs, cheap mistakes first."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from musebench.core.answers import answered, check_limits, check_pool, memory_of, numbers_of
from musebench.core.audit import Audit
from musebench.core.errors import UsageError
from musebench.core.facts import ModelFacts
from musebench.core.plan import Limits
from musebench.core.protocols import MemorySnapshot, Pool, PoolBounds, Storage
from musebench.models.source import Model, ModelSource
from musebench.plugin.component import Component
from musebench.plugin.failing import foreign
from musebench.plugin.registry import Registry
from musebench.report.bound import memory_bound
from musebench.report.schema import Choice, Choices
from musebench.run.dimensions import dimensions, plan_limits
from musebench.run.options import MOST_REPEATS, ROUTER, RunOptions, natural
from musebench.run.parts import Parts, Stack
from musebench.run.reference import reference_tokens, require_reference
from musebench.workload.build import Built
from musebench.workload.load import load_workload
from musebench.workload.spec import Context
from musebench.workload.workload import Workload


@dataclass(frozen=True)
class _Chosen:
    """One component of each kind, with its parsed options."""

    backend: Component
    executor: Component
    pool: Component
    scheduler: Component
    router: Component | None
    parsed: Mapping[str, Any]

    @property
    def simulated(self) -> bool:
        return bool(getattr(self.backend.load(), "SIMULATED", False))

    def choices(self, device: str, limits: Limits, bounds: PoolBounds, replicas: int) -> Choices:
        made = {
            component.kind: _choice(component, self.parsed[component.kind])
            for component in (self.backend, self.executor, self.pool, self.scheduler, self.router)
            if component is not None
        }
        return Choices(device=device, limits=limits, bounds=bounds, replicas=replicas, **made)

    def open(self, options: RunOptions, model: Model, limits: Limits, bounds: PoolBounds) -> Stack:
        """A replica more, simulated."""
        backend = self.backend.load()(self.parsed["backend"], options.device, model)
        backend.expect(limits)
        backend.open(bounds)
        executor = self.executor.load()(self.parsed["executor"], backend, limits)
        pool = self.make_pool(bounds, backend.storage())
        numbers_of(executor, "prepare")
        return Stack(backend, pool, executor)

    def make_pool(self, bounds: PoolBounds, storage: Storage) -> Pool:
        kind = self.pool.load()
        if self.simulated:  # nobody reads a simulated cell: a policy may have a form that only counts them
            kind = getattr(kind, "Counted", kind)
        made: Pool = kind(self.parsed["pool"], bounds, storage)
        check_pool(made)
        return made


def assemble(options: RunOptions, registry: Registry) -> Parts:
    """Load and open everything, cheap mistakes first.

    Raises:
        MusebenchError: a choice, a workload or a model that cannot be used, in one line.
    """
    started = time.perf_counter()
    workload = load_workload(options.workload).with_overrides(options.settings.get("workload", {}))
    chosen = _choose(options, registry)
    device = options.device
    source = model_source(options, registry)
    require_reference(options.reference)
    before = getattr(chosen.backend.load(), "memory_before", None)
    snapshots = {"start": MemorySnapshot() if before is None else before(device)}
    model = _open_model(options, source, chosen.simulated)
    built = _build(options, registry, workload, model, contents=not chosen.simulated)
    requests = built.requests
    limits, bounds = dimensions(options, workload, requests, model)
    if options.reference is not None and any(one.after is not None for one in requests):
        raise UsageError("--reference takes whole prompts; turns of a session have none before the run")
    reference = None if options.reference is None else reference_tokens(model, requests)

    backend = chosen.backend.load()(chosen.parsed["backend"], device, model)
    snapshots["loaded"] = memory_of(backend)
    if chosen.simulated:
        backend.expect(limits)
    backend.open(bounds, record_margins=options.margins)
    # Nobody computes a simulated token: there is nothing that an executor could give for another.
    audit = None if chosen.simulated else Audit()
    launcher = chosen.executor.load()(
        chosen.parsed["executor"], backend if audit is None else audit.backend(backend), limits
    )
    executor = launcher if audit is None else audit.executor(launcher)
    pool = chosen.make_pool(bounds, backend.storage())
    others = tuple(chosen.open(options, model, limits, bounds) for _ in range(options.replicas - 1))
    check_limits(executor.limits, launcher)
    limits = plan_limits(limits, executor)
    costs = {**model.load_seconds}
    costs.update(numbers_of(executor, "prepare"))
    if require_model := getattr(backend, "require_model", None):
        require_model()
    if not chosen.simulated:  # no host clock leaks into a simulated run's report
        costs["ready"] = time.perf_counter() - started
    snapshots["opened"] = memory_of(backend)
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
        workload, built, model, backend, pool, executor, limits, bounds,
        chosen.choices(device, limits, bounds, options.replicas), costs, snapshots, bound, audit, reference,
        others,
    )  # fmt: skip


def components_of(options: RunOptions, registry: Registry) -> list[Component]:
    """The backend, executor, pool and scheduler by name, and the router where there are replicas.

    Raises:
        UsageError: there is none of that name.
    """
    made = [
        registry.get("backend", options.device.partition(":")[0]),
        registry.get("executor", options.executor),
        registry.get("pool", options.pool),
        registry.get("scheduler", options.scheduler),
    ]
    return made if options.replicas < 2 else [*made, registry.get("router", options.router or ROUTER)]


def taking_part(options: RunOptions, registry: Registry) -> tuple[str, ...]:
    """Those of plugin packages, as `musebench.plugin.failing.naming` takes them."""
    return foreign(components_of(options, registry))


def _choose(options: RunOptions, registry: Registry) -> _Chosen:
    """The components by name; what they and the device refuse at once."""
    device = options.device
    components = components_of(options, registry)
    parsed = {one.kind: one.parse(options.settings.get(one.kind, {})) for one in components}
    kinds: dict[str, Any] = {one.kind: one for one in components}
    chosen = _Chosen(parsed=parsed, **{"router": None, **kinds})
    natural("--warmup", options.warmup, 0, MOST_REPEATS)
    natural("--repeat", options.repeat, 1, MOST_REPEATS)
    if options.stepwise and not chosen.simulated:
        raise UsageError(f"--stepwise is for simulated devices; on {device} every run is stepped")
    require = getattr(chosen.backend.load(), "require", None)
    if require is not None:
        require(device)  # no device: said before anything is loaded
    return chosen


def _open_model(options: RunOptions, source: ModelSource, simulated: bool) -> Model:
    dtype = options.dtype or ("float32" if options.device.partition(":")[0] == "cpu" else "bfloat16")
    if simulated:
        facts = answered(source.facts(options.model, dtype), ModelFacts, source, "facts")
        return Model(facts, source=options.model)
    opened = source.open(options.model, dtype, options.device, options.seed)
    return answered(opened, Model, source, "open")


def _build(
    options: RunOptions, registry: Registry, workload: Workload, model: Model, contents: bool
) -> Built:
    """The workload's requests, for this model."""
    built = workload.build(
        Context(
            tokenizer=model.tokenizer,
            vocab=model.facts.vocab,
            stop_tokens=model.stop_tokens,
            seed=options.seed,
            contents=contents,
            generators={c.name: c.make for c in registry.components("workload")},
            trace_formats={c.name: c.make for c in registry.components("trace")},
        )
    )
    if not built.requests:
        raise UsageError(f"workload {workload.name!r} makes no request")
    return built


def model_source(options: RunOptions, registry: Registry) -> ModelSource:
    """What opens `--model`, with its `--set model.NAME=VALUE`.

    Raises:
        UsageError: nothing does, or it has no such option.
    """
    from musebench.models.resolve import resolve

    sources = registry.made("model")
    source = resolve(options.model, sources)
    name = next(name for name, one in sources.items() if one is source)
    given = options.settings.get("model", {})
    made: ModelSource = registry.get("model", name).make(given) if given else source
    return made


def _choice(component: Component, options: Any) -> Choice:
    values = asdict(options) if is_dataclass(options) and not isinstance(options, type) else {}
    return Choice(component.name, component.package, component.version, values)
