"""What the cost model itself takes: simulation asks it once a step, or once a stretch of decodes."""

from __future__ import annotations

import numpy as np
import pytest

from musebench.backends.simulated.costs import ModelCosts, costs_for
from musebench.backends.simulated.profile import open_profile
from musebench.backends.simulated.shape import StepShape
from musebench.models.shapes import shape

CONTEXTS = np.arange(500, 756)


@pytest.fixture(scope="module")
def costs() -> ModelCosts:
    return costs_for(shape("llama-3.1-8b").facts("bfloat16"), open_profile("h200"))


def test_a_decode_step_of_256(benchmark, costs):
    decodes = StepShape(np.ones(256, np.int64), CONTEXTS, 256)
    assert benchmark(costs.step, decodes, "graph") > 0


def test_a_mixed_step_of_255_decodes_and_a_slice(benchmark, costs):
    mixed = StepShape(np.append(np.ones(255, np.int64), 500), CONTEXTS, 256)
    assert benchmark(costs.step, mixed, "eager") > 0


def test_a_stretch_of_100_decodes_of_256(benchmark, costs):
    assert len(benchmark(costs.decode_stretch, CONTEXTS, 100, "graph")) == 100


def test_a_stretch_with_windows(benchmark):
    sliding = costs_for(shape("gpt-oss-20b").facts("bfloat16"), open_profile("h200"))
    assert len(benchmark(sliding.decode_stretch, CONTEXTS, 100, "graph")) == 100
