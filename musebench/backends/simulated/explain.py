"""Where a step's time goes: its operations, what bounds each, and what the host does beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from musebench.backends.simulated.costs import ModelCosts
from musebench.backends.simulated.kernels import HOST, LAUNCH
from musebench.backends.simulated.operations import PROGRAMS
from musebench.backends.simulated.shape import StepShape

DEVICE, HOST_SIDE = "device", "host"


@dataclass(frozen=True, slots=True)
class ExplainedRow:
    """One line: `count` kernels on the device (or launches on the host), the bytes and operations of all of
    them, their seconds, `share` of the step's longer side, and what bounds them: "compute", "bandwidth",
    "launch", "host" or "network"."""

    operation: str
    side: str
    count: int
    bytes: float
    flops: float
    seconds: float
    share: float
    bound: str


def explain_step(costs: ModelCosts, shape: StepShape, program: str) -> list[ExplainedRow]:
    """The rows of one step, the device's longest first, then the host's.

    The device's seconds add up to `costs.step`, the host's to its host work and launch. The step takes the
    longer of the two where the host works ahead, and an eager step cannot be shorter than its launches.
    """
    operations = costs.operations(shape, program)
    device = sum(operation.seconds for operation in operations)
    tokens = int(shape.queries.sum()) + shape.padded_tokens
    host = costs.host_seconds(len(shape.queries), tokens)
    launch = costs.launch_seconds(program)
    whole = max(device, host + launch)
    known = PROGRAMS[program]
    launches = 1 if known.replayed else costs.work.launches(known)
    rows = [
        ExplainedRow(
            operation.name, DEVICE, operation.count, operation.count * operation.each.bytes,
            operation.count * operation.each.flops, operation.seconds, operation.seconds / whole,
            operation.each.bound,
        )
        for operation in sorted(operations, key=lambda operation: -operation.seconds)
    ]  # fmt: skip
    launched = "replay" if known.replayed else "launches"
    return [
        *rows,
        ExplainedRow(launched, HOST_SIDE, launches, 0.0, 0.0, launch, launch / whole, LAUNCH),
        ExplainedRow("plan, pack and commit", HOST_SIDE, 1, 0.0, 0.0, host, host / whole, HOST),
    ]


def step_bound(rows: Sequence[ExplainedRow]) -> str:
    """What holds the whole step: the host's launches or work where the host takes longer, else what bounds
    most of the device's time."""
    by_side: dict[str, dict[str, float]] = {DEVICE: {}, HOST_SIDE: {}}
    for row in rows:
        kinds = by_side[row.side]
        kinds[row.bound] = kinds.get(row.bound, 0.0) + row.seconds
    longer = max(by_side.values(), key=lambda kinds: sum(kinds.values()))
    return max(longer, key=lambda bound: longer[bound])
