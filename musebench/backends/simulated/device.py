"""What a simulated device is to the backend: a name, bytes, and a cost model for one model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field
from typing import Any

from musebench.backends.simulated.options import SimulatedOptions
from musebench.backends.simulated.shape import Costs, StepShape
from musebench.core.facts import ModelFacts


@dataclass(frozen=True)
class SimulatedDevice:
    """`memory_bytes` are all that one device has, `weight_bytes` and `cell_bytes` what it holds of the
    weights and of a cell; `conditions` say where the numbers come from. `bound` names what a step waits for:
    compute, bandwidth, launch, host or network; `explain` gives its `ExplainedRow`s."""

    name: str
    memory_bytes: int
    weight_bytes: int
    cell_bytes: int
    costs: Costs
    conditions: Mapping[str, Any] = field(default_factory=dict)
    bound: Callable[[StepShape, str], str] | None = None
    explain: Callable[[StepShape, str], Ordered[Any]] | None = None


def open_device(profile: str, facts: ModelFacts, options: SimulatedOptions) -> SimulatedDevice:
    """The device of a profile (its name, or its file) running one model.

    Raises:
        UsageError: no such profile; names the nearest.
        InputError: a file that is no profile.
        UnsupportedError: the device has no such dtype.
    """
    from musebench.backends.simulated.costs import costs_for
    from musebench.backends.simulated.explain import explain_step, step_bound
    from musebench.backends.simulated.profile import open_profile

    opened = open_profile(profile)
    costs = costs_for(facts, opened, options.devices, options.weights, options.cells)
    conditions = {
        "profile": opened.label, "memory_bytes": opened.memory_bytes, "devices": options.devices,
        "weights": options.weights or facts.dtype, "cells": options.cells or facts.dtype,
        "sources": dict(opened.sources),
    }  # fmt: skip
    return SimulatedDevice(
        opened.label, opened.memory_bytes, costs.weight_bytes, costs.cell_bytes, costs, conditions,
        lambda shape, program: step_bound(explain_step(costs, shape, program)),
        lambda shape, program: explain_step(costs, shape, program),
    )  # fmt: skip
