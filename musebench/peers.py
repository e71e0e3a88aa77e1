"""A run of a whole engine: the same workload, conditions and report as any other, without steps and pool."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from musebench.core.answers import Asking, memory_of, numbers_of
from musebench.core.blame import told
from musebench.core.clock import HostClock
from musebench.core.errors import UnsupportedError, UsageError
from musebench.core.options import nearest
from musebench.core.peer import LIMITS, Peer, PeerSetting
from musebench.core.protocols import PoolBounds
from musebench.core.request import FinishReason, Request
from musebench.core.service import Service
from musebench.measure.ceilings import stored_ceilings
from musebench.measure.energy import EnergyMeter
from musebench.measure.nvml import Nvml
from musebench.models.source import Model, RemoteModel
from musebench.plugin.component import Component
from musebench.plugin.failing import foreign, naming
from musebench.plugin.registry import Registry
from musebench.report.columns import RunData
from musebench.report.schema import (
    Choice,
    Choices,
    ComputedMemory,
    Conditions,
    Costs,
    Memory,
    ModelInfo,
    Reference,
    Report,
    WorkloadInfo,
    new_report,
)  # fmt: skip
from musebench.report.served import served_run
from musebench.run import RunOptions
from musebench.run.assembly import model_source
from musebench.run.conditions import conditions_of, machine_conditions
from musebench.run.dimensions import MOST_SESSIONS, TOKEN_BUDGET
from musebench.run.options import MOST_REPEATS, natural
from musebench.run.reference import reference_tokens
from musebench.run.refused import opening
from musebench.workload.build import Built
from musebench.workload.load import load_workload
from musebench.workload.spec import Context
from musebench.workload.workload import Workload

SET_KINDS = ("engine", "model", "workload")
"""Kinds of components whose options a run of a whole engine has."""

PeerProgress = Callable[[Service, int], None]
"""Called after each request that has ended; the repeat counts from 1 and is 0 for a warm-up."""


@dataclass
class _Opened:
    workload: Workload
    built: Built
    model: Model | RemoteModel
    setting: PeerSetting
    peer: Peer
    costs: dict[str, float]
    memory: dict[str, Any]
    reference: Reference | None


def run_peer(
    engine: str, options: RunOptions, registry: Registry, progress: PeerProgress | None = None
) -> Report:
    """Run a workload through the engine of that name, and report.

    Raises:
        MusebenchError: a choice, a workload or a model that cannot be used, in one line.
    """
    component = registry.get("engine", engine)
    with naming(foreign([component])):
        return _run(component, options, registry, progress)


def _run(
    component: Component, options: RunOptions, registry: Registry, progress: PeerProgress | None
) -> Report:
    factory = component.load()
    _refuse(component, factory, options)
    with opening(options):
        opened = _open(component, factory, options, registry)
    peer = opened.peer
    trouble = None
    ask = Asking()
    told_before = _conditions(options, opened)
    try:
        runs, message = _measure(options, opened, progress, ask)
        conditions = ask("engine", lambda: _conditions(options, opened), told_before)
        counters = ask.numbers("engine", peer, "counters")
    finally:
        try:
            peer.close()
        except (Exception, SystemExit) as error:  # what was measured is worth more
            trouble = f"the engine could not be closed: {told(error)}"
    opened.memory["closed"] = ask.memory("engine", peer)
    facts = opened.model.facts if isinstance(opened.model, Model) else None
    return new_report(
        conditions,
        _choices(component, options, opened),
        runs,
        Memory(ComputedMemory(weights=None if facts is None else facts.weight_bytes), opened.memory),
        Costs(seconds=opened.costs, counters=counters),
        message or ask.trouble or trouble,
        dict(options.slo),
        opened.reference,
    )


def _refuse(component: Component, factory: Any, options: RunOptions) -> None:
    """What this run was told and could not keep to."""
    who = f"engine {component.name!r}"
    for kind in options.settings:
        if kind not in SET_KINDS:
            raise UsageError(f"--set {kind}.…: {who} has no {kind}; {nearest(kind, SET_KINDS)}")
    usual = RunOptions()
    for name in ("executor", "pool", "scheduler"):
        if getattr(options, name) != getattr(usual, name):
            raise UsageError(
                f"--{name} {getattr(options, name)}: {who} brings its own {name}; leave one of them out"
            )
    for name in ("overlap", "margins", "stepwise", "step_timeout", "on_oom"):
        if getattr(options, name) != getattr(usual, name):
            flag = name.replace("_", "-")
            raise UsageError(f"--{flag} is about steps, which {who} does not tell; leave it or --engine out")
    for name in LIMITS:
        given = getattr(options, name)
        flag = f"--{name.replace('_', '-')}"
        if given is not None and name not in factory.TAKES:
            takes = ", ".join(f"--{one.replace('_', '-')}" for one in factory.TAKES) or "no limit"
            raise UsageError(f"{flag}: {who} does not take it; it takes {takes}")
        if given is not None and given < 1:
            raise UsageError(f"{flag} is {given}; at least 1 is wanted")
    natural("--warmup", options.warmup, 0, MOST_REPEATS)
    natural("--repeat", options.repeat, 1, MOST_REPEATS)
    if factory.HAS_WEIGHTS and (options.dtype is not None or options.device != usual.device):
        what = "--dtype" if options.dtype is not None else f"--device {options.device}"
        raise UsageError(f"{what}: {who} runs its own weights where they are; leave it out")
    if factory.HAS_WEIGHTS and options.reference is not None:
        raise UsageError(f"--reference {options.reference} needs the weights, which {who} keeps to itself")


def _open(component: Component, factory: Any, options: RunOptions, registry: Registry) -> _Opened:
    started = time.perf_counter()
    workload = load_workload(options.workload).with_overrides(options.settings.get("workload", {}))
    parsed = component.parse(options.settings.get("engine", {}))
    dtype = options.dtype or ("float32" if options.device.partition(":")[0] == "cpu" else "bfloat16")
    model: Model | RemoteModel
    memory: dict[str, Any] = {}
    if factory.HAS_WEIGHTS:
        if options.settings.get("model"):
            raise UsageError(f"--set model.…: engine {component.name!r} opens no model here")
        remote: RemoteModel = factory.remote_model(parsed, options.model)
        model, vocab, dtype = remote, remote.vocab, remote.dtype
    else:
        memory["start"] = _require_device(options.device, component, registry)
        model = _open_model(options, dtype, registry)
        vocab = model.facts.vocab
    built = workload.build(
        Context(
            tokenizer=model.tokenizer,
            vocab=vocab,
            stop_tokens=model.stop_tokens,
            seed=options.seed,
            generators={c.name: c.make for c in registry.components("workload")},
            trace_formats={c.name: c.make for c in registry.components("trace")},
        )
    )
    if any(request.after is not None for request in built.requests):
        raise UnsupportedError(
            f"workload {workload.name!r} has turns, which only musebench's own engine serves"
        )
    if not built.requests:
        raise UsageError(f"workload {workload.name!r} makes no request")
    reference = None
    if options.reference is not None and isinstance(model, Model):
        reference = reference_tokens(model, built.requests)
    setting = _setting(factory, options, workload, built.requests, model, dtype)
    peer: Peer = factory(parsed, setting)
    try:
        memory["loaded"] = memory_of(peer)
        costs = dict(model.load_seconds) if isinstance(model, Model) else {}
        costs.update(numbers_of(peer, "prepare"))
        memory["opened"] = memory_of(peer)
    except BaseException:
        peer.close()
        raise
    costs["ready"] = time.perf_counter() - started
    return _Opened(workload, built, model, setting, peer, costs, memory, reference)


def _require_device(device: str, component: Component, registry: Registry) -> Any:
    """The memory before anything is loaded, once it is sure that the device is there."""
    backend = registry.get("backend", device.partition(":")[0]).load()
    if getattr(backend, "SIMULATED", False):
        raise UnsupportedError(
            f"--device {device}: engine {component.name!r} computes, and a simulated device does not; use "
            "cpu or cuda"
        )
    if (require := getattr(backend, "require", None)) is not None:
        require(device)
    return backend.memory_before(device)


def _open_model(options: RunOptions, dtype: str, registry: Registry) -> Model:
    model = model_source(options, registry).open(options.model, dtype, options.device, options.seed)
    if model.module is None:
        raise UnsupportedError(f"--model {options.model} holds no weights that another engine could run")
    return model


def _setting(
    factory: Any,
    options: RunOptions,
    workload: Workload,
    requests: list[Request],
    model: Model | RemoteModel,
    dtype: str,
) -> PeerSetting:
    """Limits by flag, then by the workload, then what the requests need; None for those not taken."""
    given = workload.defaults
    longest = max(len(request.prompt) + request.max_new_tokens for request in requests)
    sessions = options.max_sessions or given.max_sessions or min(len(requests), MOST_SESSIONS)
    context = options.max_context or given.max_context or longest
    if isinstance(model, Model):
        most = model.facts.max_context
        if context > most and options.max_context:
            raise UsageError(
                f"--max-context {context:,} is more than model {model.facts.name!r} was made for "
                f"({most:,} positions)"
            )
        context = min(context, most)
    else:
        sessions = options.max_sessions or 0
    limits = {
        "max_sessions": sessions or None,
        "max_context": context,
        "token_budget": options.token_budget or given.token_budget or TOKEN_BUDGET,
    }
    taken = {name: value for name, value in limits.items() if name in factory.TAKES}
    return PeerSetting(model, options.device, dtype, options.seed, **taken)


def _measure(
    options: RunOptions, opened: _Opened, progress: PeerProgress | None, ask: Asking
) -> tuple[list[RunData], str | None]:
    """Warm-ups, then the repeats; an interruption keeps what there is, as an incomplete report."""
    peer, runs = opened.peer, []
    nvml = Nvml(0) if opened.setting.device.startswith("cuda") else None
    for number in range(-options.warmup, options.repeat):
        if number == 0:
            peer.reset_peak()
        shown = None if progress is None else partial(_tell, progress, max(number + 1, 0))
        service = Service(opened.built.requests, HostClock(), opened.workload.concurrency, shown)
        before, message = ask.numbers("engine", peer, "counters"), None
        energy = EnergyMeter(nvml)
        energy.start()
        began = time.perf_counter()
        service.now()  # the run starts here, whenever the engine first asks who has arrived
        try:
            peer.serve(service)
            message = _trouble(service)
        except KeyboardInterrupt:
            message = "interrupted"
        except (Exception, SystemExit) as error:
            message = f"the engine failed: {told(error)}"
        wall = time.perf_counter() - began
        used = energy.stop()
        if number < 0 and message is None:
            opened.costs["warmup"] = opened.costs.get("warmup", 0.0) + wall
            opened.memory["warm"] = ask.memory("engine", peer)
            continue
        opened.memory["peak"] = ask.memory("engine", peer)
        after = ask.numbers("engine", peer, "counters")
        counters = {name: value - before.get(name, 0) for name, value in after.items()}
        model = opened.model
        runs.append(served_run(service, model.tokenizer, model.stop_tokens, counters, used, wall))
        if message := message or ask.trouble:
            return runs, message
    return runs, None


def _tell(progress: PeerProgress, repeat: int, service: Service) -> None:
    progress(service, repeat)


def _trouble(service: Service) -> str | None:
    """Why a run that came to its end is incomplete all the same."""
    records = list(service.records.values())
    if unfinished := [one for one in records if one.finish_reason is None]:
        return f"the engine returned with {len(unfinished):,} of {len(records):,} requests not ended"
    failed = [one for one in records if one.finish_reason is FinishReason.FAILED]
    if not failed:
        return None
    return (
        f"{len(failed):,} of {len(records):,} requests failed: {failed[0].message or 'for no known reason'}"
    )


def _choices(component: Component, options: RunOptions, opened: _Opened) -> Choices:
    setting = opened.setting
    where = "remote" if isinstance(opened.model, RemoteModel) else options.device
    bounds = None
    if setting.max_sessions is not None and setting.max_context is not None:
        bounds = PoolBounds(setting.max_sessions, setting.max_context)
    parsed = component.parse(options.settings.get("engine", {}))
    return Choices(
        device=where,
        backend=Choice(where.partition(":")[0]),
        executor=None,
        pool=None,
        scheduler=None,
        limits=None,
        bounds=bounds,
        engine=Choice.of(component.name, component.package, component.version, parsed),
    )


def _conditions(options: RunOptions, opened: _Opened) -> Conditions:
    backend = conditions_of(opened.peer)
    model = opened.model
    limits = {name: value for name in LIMITS if (value := getattr(opened.setting, name)) is not None}
    device = str(backend.pop("device", options.device))
    facts = model.facts if isinstance(model, Model) else None
    name = model.facts.name if isinstance(model, Model) else model.name
    weights = model.weights_sha256 if isinstance(model, Model) else None
    return Conditions(
        device=device,
        workload=WorkloadInfo(opened.workload.name, opened.workload.sha256, list(opened.built.notes)),
        model=ModelInfo(name, model.source or options.model, opened.setting.dtype, facts, weights),
        seed=options.seed,
        warmup=options.warmup,
        repeats=options.repeat,
        driver=backend.pop("driver", None),
        backend={**backend, **limits},
        ceilings=stored_ceilings(device, opened.setting.dtype),
        **machine_conditions(),
    )
