"""Measuring a GPU at small sizes: numbers that a GPU can have, and graphs among them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from musebench.backends.profiler import SMALL, HostLine, measure_device
from musebench.backends.simulated.costs import costs_for
from musebench.backends.simulated.profile import profile_of
from musebench.models.random_source import RandomOptions, RandomSource
from musebench.models.shapes import shape
from musebench.models.source import Model

SIZES = replace(
    SMALL, copy_bytes=256 << 20, squares=(2048, 4096), products=((2048, 2048), (2048, 8192)),
    tokens=(1, 64, 512), heads=((32, 8, 128),), decodes=((1, 1024), (64, 1024)),
    prefills=((0, 256), (0, 1024)), rotated_bytes=64 << 20, context=256,
)  # fmt: skip


def opened(layers: int) -> Model:
    return RandomSource(RandomOptions()).open(
        f"random:smollm2-135m@vocab=512,layers={layers}", "bfloat16", "cuda", 0
    )


def test_a_gpus_profile_has_launches_above_replays_and_prices_steps():
    replays = []
    tree = measure_device(
        "cuda", "bfloat16", "here", SIZES, opened,
        lambda replay: HostLine(1e-4, 0.0) if not replays.append(replay) else HostLine(0.0, 0.0), None,
    )  # fmt: skip
    profile = profile_of(tree)
    assert 1e11 < profile.bandwidth < 2e13
    assert 1e12 < profile.rates["bfloat16"] < 1e16
    assert 1e10 < profile.attention[0].decode_bandwidth < 4 * profile.bandwidth
    assert 1e-7 < profile.small.seconds < 1e-4
    assert 1e-7 < profile.launch.eager_seconds < 1e-3
    assert 0.0 < profile.launch.replay_seconds < 0.1
    assert replays[0] >= profile.launch.replay_seconds
    costs = costs_for(shape("llama-3.1-8b").facts("bfloat16"), profile)
    assert costs.launch_seconds("eager") > costs.launch_seconds("graph")
    assert (costs.decode_stretch(np.full(64, 1024), 3, "graph") > 0).all()
