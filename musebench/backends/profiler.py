"""Measures a device and writes what it found as a profile of `musebench.backends.simulated.profile`."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from musebench.backends.profiler_kernels import AttentionSample, CudaTimer, HostTimer, KernelMeter
from musebench.backends.profiler_steps import CAPTURE_LAUNCHES, GrowthTime, StepMeter, StepTimes
from musebench.backends.simulated.costs import costs_for
from musebench.backends.simulated.fitting import curve_errors, fit_line, fit_products
from musebench.backends.simulated.operations import PROGRAMS
from musebench.backends.simulated.profile import SCHEMA, profile_of
from musebench.backends.torch_device import open_device
from musebench.core.errors import UnsupportedError
from musebench.core.facts import ModelFacts
from musebench.measure.ceilings import copy_bandwidth
from musebench.models.source import Model

Say = Callable[[str], None]
Keep = Callable[[dict[str, Any]], None]
MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Sizes:
    """What is measured. Products are (inputs, outputs); attention's heads (query heads, KV heads, head size);
    slices (tokens before, tokens of the step); `layers` of the two models whose steps are timed."""

    copy_bytes: int
    squares: tuple[int, ...]
    products: tuple[tuple[int, int], ...]
    tokens: tuple[int, ...]
    heads: tuple[tuple[int, int, int], ...]
    decodes: tuple[tuple[int, int], ...]
    prefills: tuple[tuple[int, int], ...]
    rotated_bytes: int
    layers: tuple[int, int]
    context: int
    growths: tuple[int, ...]
    compiled: bool


def _layer(hidden: int, keys: int, inner: int, vocab: int) -> tuple[tuple[int, int], ...]:
    """The products of a Llama layer whose heads make `hidden`, projections packed, and of the vocabulary."""
    return (
        (hidden, hidden + 2 * keys), (hidden, hidden), (hidden, 2 * inner), (inner, hidden), (hidden, vocab),
    )  # fmt: skip


FULL = Sizes(
    copy_bytes=2 * GIB,
    squares=(4096, 8192),
    products=(
        *_layer(4096, 1024, 14336, 128256),
        *_layer(2048, 512, 8192, 128256),
        *_layer(576, 192, 1536, 49152),
        (8192, 57344),
    ),
    tokens=(1, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096),
    heads=((32, 8, 128), (32, 8, 64), (9, 3, 64)),
    decodes=((1, 1024), (1, 8192), (8, 1024), (64, 512), (64, 2048), (256, 1024)),
    prefills=((0, 128), (0, 512), (0, 1024), (0, 2048), (1024, 1024), (4096, 1024)),
    rotated_bytes=160 * MIB,
    layers=(2, 6),
    context=1024,
    growths=(32 * MIB, 256 * MIB, GIB, 4 * GIB),
    compiled=True,
)
"""For a GPU; under five minutes there."""

SMALL = Sizes(
    copy_bytes=16 * MIB,
    squares=(256, 512),
    products=((256, 256), (256, 1024), (1024, 256)),
    tokens=(1, 8, 64),
    heads=((9, 3, 64),),
    decodes=((1, 64), (4, 64), (4, 256)),
    prefills=((0, 32), (0, 64), (64, 64)),
    rotated_bytes=4 * MIB,
    layers=(1, 2),
    context=64,
    growths=(MIB, 4 * MIB, 16 * MIB),
    compiled=False,
)
"""For a CPU, in seconds."""


@dataclass(frozen=True, slots=True)
class HostLine:
    """Host work of a step beside its launch, as a line over its sequences."""

    step_seconds: float
    sequence_seconds: float


@dataclass(frozen=True, slots=True)
class Links:
    """Links between devices as a profile's file has them, and where they come from: not measured here."""

    tree: dict[str, Any]
    source: str


def measure_device(
    device: str,
    dtype: str,
    name: str,
    sizes: Sizes,
    open_model: Callable[[int], Model],
    host: Callable[[float], HostLine],
    links: Links | None,
    say: Say = lambda line: None,
    keep: Keep = lambda tree: None,
) -> dict[str, Any]:
    """The tree of a measured profile.

    `open_model` opens a Llama of that many layers on the device; `host` gives the host's work of a step of
    the larger of the two models, which takes that many seconds to launch. `keep` is called with what there is
    whenever a part is done; what is not measured yet is 0.

    Raises:
        UnsupportedError: no such device, or a dtype that torch does not run there.
    """
    opened = open_device(device)
    wanted = _torch_dtype(dtype)
    conditions = opened.conditions()
    with opened.active(), torch.inference_mode():
        timer = CudaTimer() if opened.device.type == "cuda" else HostTimer()
        meter = KernelMeter(opened.device, wanted, timer, sizes.rotated_bytes)
        say("copies")
        bandwidth = copy_bandwidth(str(meter.device), sizes.copy_bytes)
        small_bandwidth = meter.small_bandwidth(sizes.copy_bytes // 2)
        say("products")
        before = _allocated(opened.device)
        rates = {dtype: meter.matrix_rate(sizes.squares)}
        workspace = max(0, _allocated(opened.device) - before)
        points = meter.products(sizes.products, sizes.tokens)
        curve = fit_products(points, bandwidth, rates)
        rates_of_attention = []
        for heads in sizes.heads:
            say(f"attention of heads {heads}")
            decodes = [meter.attention(heads, ((cells - 1, 1),) * count) for count, cells in sizes.decodes]
            prefills = [meter.attention(heads, (each,)) for each in sizes.prefills]
            rates_of_attention.append(_attention(heads[2], decodes, prefills))
    opened.trim()
    tree: dict[str, Any] = {
        "schema": SCHEMA,
        "name": name,
        "kind": "measured",
        "device": conditions["device"],
        "memory_bytes": _memory(opened.device),
        "bandwidth": bandwidth,
        "rates": rates,
        "products": {
            "bandwidth_share": curve.bandwidth_share,
            "rate_share": curve.rate_share,
            "sharpness": curve.sharpness,
            "fixed_seconds": curve.fixed_seconds,
            "points": [[p.tokens, p.inputs, p.outputs, p.dtype, p.seconds] for p in points],
        },
        "attention": _one_a_head_size(rates_of_attention),
        "small": {"seconds": 0.0, "bandwidth": small_bandwidth},
        "host": {"step_seconds": 0.0, "sequence_seconds": 0.0, "token_seconds": 0.0},
        "launch": {
            "eager_seconds": 0.0, "compiled_seconds": 0.0, "replay_seconds": 0.0,
            "replay_operation_seconds": 0.0, "capture_seconds": 0.0,
            "capture_launches": CAPTURE_LAUNCHES,
        },
        "copy_seconds": 0.0,
        "copy_share": 1.0,
        "workspace_bytes": workspace,
        "all_reduce": None if links is None else links.tree,
    }  # fmt: skip
    errors = sorted(curve_errors(curve, bandwidth, rates))
    tree["sources"] = _sources(conditions, dtype, len(points), errors[len(errors) // 2], links)
    keep(tree)
    replayed = _add_steps(tree, device, sizes, open_model, say)
    keep(tree)
    say("host work of steps")
    line = host(replayed)
    tree["host"] |= {"step_seconds": line.step_seconds, "sequence_seconds": line.sequence_seconds}
    return tree


def _add_steps(
    tree: dict[str, Any], device: str, sizes: Sizes, open_model: Callable[[int], Model], say: Say
) -> float:
    """Launches, replays, captures and growths of two models; what their layers differ by is a layer's.
    Returns the host's seconds to launch a step of the larger one."""
    times: list[StepTimes] = []
    growths: list[GrowthTime] = []
    facts: list[ModelFacts] = []
    for layers in sizes.layers:
        say(f"steps of {layers} layers")
        model = open_model(layers)
        facts.append(model.facts)
        meter = StepMeter(model, device, sizes.context)
        times.append(meter.times(sizes.compiled and layers == sizes.layers[-1]))
        if layers == sizes.layers[-1]:
            say("growths")
            growths = meter.growths(sizes.growths)
        meter.close()
        del meter, model
    small, large = times
    between = large.layers - small.layers
    profile = profile_of(tree)
    works = [costs_for(each, profile).work for each in facts]
    operations = works[1].launches(PROGRAMS["eager"]) - works[0].launches(PROGRAMS["eager"])
    launch = tree["launch"]
    launch["eager_seconds"] = max(0.0, large.eager_host - small.eager_host) / operations
    launch["compiled_seconds"] = (
        launch["eager_seconds"]
        if large.compiled_host is None
        else large.compiled_host / works[1].launches(PROGRAMS["compiled"])
    )
    if small.replay_host is None or large.replay_host is None:
        launch["replay_seconds"] = large.eager_host
    else:
        each = max(0.0, large.replay_host - small.replay_host) / operations
        launch["replay_operation_seconds"] = each
        launch["replay_seconds"] = max(0.0, large.replay_host - each * works[1].launches(PROGRAMS["graph"]))
    if large.capture is not None:
        launch["capture_seconds"] = max(0.0, large.capture - CAPTURE_LAUNCHES * large.eager_host)
    # A layer's products and attention are known; what is left of it are small kernels.
    first, last = (
        (small.eager_device, large.eager_device)
        if small.replay_device is None or large.replay_device is None
        else (small.replay_device, large.replay_device)
    )
    known = [_without_small(each, tree, sizes.context) for each in facts]
    kernels = works[0].small_kernels(PROGRAMS["graph"])
    left = (last - first) - (known[1] - known[0])
    tree["small"]["seconds"] = max(0.0, left / between / kernels)
    fixed, slope = fit_line([2.0 * each.copied_bytes for each in growths], [each.seconds for each in growths])
    tree["copy_seconds"] = fixed
    tree["copy_share"] = min(1.0, 1.0 / (slope * tree["bandwidth"])) if slope else 1.0
    return large.eager_host if large.replay_host is None else large.replay_host


def _without_small(facts: ModelFacts, tree: dict[str, Any], context: int) -> float:
    """Device seconds of a decode in which small kernels take nothing."""
    bare = {**tree, "small": {"seconds": 0.0, "bandwidth": tree["small"]["bandwidth"]}}
    costs = costs_for(facts, profile_of(bare))
    return float(costs.decode_stretch(np.array([context]), 1, "graph")[0])


def _attention(
    head_dim: int, decodes: Sequence[AttentionSample], prefills: Sequence[AttentionSample]
) -> dict[str, float]:
    fixed, slope = fit_line([each.bytes for each in decodes], [each.seconds for each in decodes])
    start, each_flop = fit_line([each.flops for each in prefills], [each.seconds for each in prefills])
    return {
        "head_dim": head_dim,
        "decode_seconds": fixed,
        "decode_bandwidth": 1.0 / slope if slope else 1e15,
        "prefill_seconds": start,
        "prefill_rate": 1.0 / each_flop if each_flop else 1e18,
    }


def _one_a_head_size(found: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """The first of each head size: the one of the larger model."""
    first: dict[float, dict[str, float]] = {}
    for each in found:
        first.setdefault(each["head_dim"], each)
    return list(first.values())


def _sources(conditions: Any, dtype: str, points: int, error: float, links: Links | None) -> dict[str, str]:
    versions = ", ".join(
        f"{key} {conditions[key]}" for key in ("torch", "cuda", "triton") if key in conditions
    )
    here = f"measured on {conditions['device']} in {dtype}, {versions}"
    return {
        "device": here,
        "products": f"{here}: {points} products; the bare curve is within {error:.1%} of half of them",
        "attention": f"{here}, this project's kernels over shuffled cells",
        "small": f"{here}: what a layer of a replayed step leaves beside products and attention",
        "host": f"decode steps of a run beside it, on {platform.machine()} with {os.cpu_count()} processors",
        "launch": f"{here}: steps of models that differ in their layers",
        "copy": f"{here}: doublings of a pool",
        "all_reduce": "none: one device" if links is None else links.source,
    }


def _torch_dtype(dtype: str) -> torch.dtype:
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if dtype not in known:
        raise UnsupportedError(f"--dtype {dtype} is not measured; use one of {', '.join(known)}")
    return known[dtype]


def _allocated(device: torch.device) -> int:
    return int(torch.cuda.memory_allocated(device)) if device.type == "cuda" else 0


def _memory(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
