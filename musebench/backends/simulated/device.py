"""What a simulated device is to the backend: a name, bytes, and a cost model for one model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from musebench.backends.simulated.shape import Costs
from musebench.core.facts import ModelFacts


@dataclass(frozen=True)
class SimulatedDevice:
    """`memory_bytes` are all the device has; `conditions` say where its numbers come from."""

    name: str
    memory_bytes: int
    costs: Costs
    conditions: Mapping[str, Any] = field(default_factory=dict)


def open_device(profile: str, facts: ModelFacts) -> SimulatedDevice:
    """The device of a profile (its name, or its file) running one model.

    Raises:
        UsageError: no such profile; names the nearest.
        InputError: a file that is no profile.
        UnsupportedError: the device has no such dtype.
    """
    from musebench.backends.simulated.costs import costs_for
    from musebench.backends.simulated.profile import open_profile

    opened = open_profile(profile)
    return SimulatedDevice(opened.name, opened.memory_bytes, costs_for(facts, opened))
