"""The report: the one JSON file that a run writes. Everything shown is computed from it.

`Report` is built of frozen dataclasses over plain values; seconds, bytes and joules throughout; None (null)
where something is not known, never NaN and never 0 in its place. `musebench.report.files` reads and writes
it. `runs` hold one `RunData` a repeat (musebench.report.columns); warm-up runs are not stored.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from musebench.core.facts import ModelFacts
from musebench.core.plan import Limits
from musebench.core.protocols import MemorySnapshot, PoolBounds
from musebench.measure.roofline import Ceilings
from musebench.report.codec import Mismatch, encode
from musebench.report.columns import GrowthColumns, PoolData, RequestColumns, RunData, StepColumns

__all__ = [
    "COMPLETE", "INCOMPLETE", "PHASES", "SCHEMA", "Choice", "Choices", "ComputedMemory", "Conditions",
    "Costs", "GrowthColumns", "Memory", "MemoryBound", "ModelInfo", "PoolData", "Reference", "Report",
    "RequestColumns", "RunData", "StepColumns", "WorkloadInfo", "new_report",
]  # fmt: skip

SCHEMA = 2
"""Rises when a field changes its meaning or goes; a field that is added with a default leaves it. Since 2
long lists are packed (musebench.report.packing)."""

COMPLETE, INCOMPLETE = "complete", "incomplete"


@dataclass(frozen=True)
class WorkloadInfo:
    """`sha256` is over the requests that it made: ids, prompts, limits, arrivals, sampling. `notes` say what
    was left out of a trace."""

    name: str
    sha256: str | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ModelInfo:
    """`source` is the text it was opened with; `facts` None where nothing but the name is known."""

    name: str
    source: str
    dtype: str
    facts: ModelFacts | None = None
    weights_sha256: str | None = None


@dataclass(frozen=True)
class Conditions:
    """What the numbers depend on, beside the choices. None where it is not known.

    `device` is the device's own name, `clock` "host" or "virtual", `versions` by package ("python" among
    them), `commit` that of the checkout musebench ran from and `dirty` whether its code had changes, both
    None outside a checkout. `command` is the argument vector without secrets. `backend` holds what else the
    backend names. `ceilings` are what the device was measured to do at best (musebench doctor --measure).
    The host's name is left out on purpose.
    """

    device: str
    workload: WorkloadInfo
    model: ModelInfo
    seed: int
    warmup: int
    repeats: int
    clock: str = "host"
    driver: str | None = None
    versions: dict[str, str | None] = field(default_factory=dict)
    commit: str | None = None
    dirty: bool | None = None
    command: list[str] = field(default_factory=list)
    cpu: str | None = None
    cores: int | None = None
    platform: str | None = None
    backend: dict[str, Any] = field(default_factory=dict)
    ceilings: Ceilings | None = None


@dataclass(frozen=True)
class Choice:
    """A component by name, the package and version that brought it, and all its options, defaults too."""

    name: str
    package: str | None = None
    version: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, package: str | None, version: str | None, options: Any) -> Choice:
        """`options` is the component's frozen dataclass of options."""
        return cls(name, package, version, encode(options))


@dataclass(frozen=True)
class Choices:
    """What was chosen; `device` is the text of `--device`, `limits` what each replica was held to,
    `router` None where there is one.

    `engine` None is musebench's own. A whole engine (musebench.core.peer) brings its own executor, pool and
    scheduler, which are then None, as are limits that it does not take.
    """

    device: str
    backend: Choice
    executor: Choice | None
    pool: Choice | None
    scheduler: Choice | None
    limits: Limits | None
    bounds: PoolBounds | None
    engine: Choice | None = None
    router: Choice | None = None
    replicas: int = 1

    @property
    def launched_by(self) -> str:
        """The executor's name, or that of the whole engine: what stands in a table's row for it."""
        launcher = self.engine or self.executor
        return "-" if launcher is None else launcher.name

    def named(self) -> dict[str, str]:
        """The names of what was chosen, by kind."""
        if self.engine is not None:
            return {"engine": self.engine.name}
        kinds = {"executor": self.executor, "pool": self.pool, "scheduler": self.scheduler}
        return {kind: choice.name for kind, choice in kinds.items() if choice is not None}


@dataclass(frozen=True)
class ComputedMemory:
    """Bytes stated before the run: weights, rows under the policy, workspace, captured graphs."""

    weights: int | None = None
    rows: int | None = None
    workspace: int | None = None
    graphs: int | None = None


PHASES = ("start", "loaded", "opened", "warm", "peak", "closed")
"""When memory is looked at: at the start, with the model loaded, the backend opened, after warm-up, at the
peak over all runs, after everything was closed."""


@dataclass(frozen=True)
class MemoryBound:
    """Bytes that a configuration may use, stated before its first step (musebench.report.bound).

    `rows` are the most under the pool's policy, `growth` old rows beside new ones while it grows, `graphs`
    and `activations` allowances; `sums` say by part how it came about.
    """

    weights: int
    rows: int
    growth: int
    workspace: int
    graphs: int
    activations: int
    sums: dict[str, str] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return self.weights + self.rows + self.growth + self.workspace + self.graphs + self.activations


@dataclass(frozen=True)
class Memory:
    """`snapshots` by phase (`PHASES`); `reasons` say once, by source, why a number is missing. `bound` None
    in reports from before it was kept."""

    computed: ComputedMemory = ComputedMemory()
    snapshots: dict[str, MemorySnapshot] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    bound: MemoryBound | None = None


@dataclass(frozen=True)
class Reference:
    """What another program made of the same requests on the same weights, one at a time: `by` names it and
    its version. `token_ids` are flat, request after request, `generated_tokens` of each `id`."""

    by: str
    id: list[str]
    generated_tokens: list[int]
    token_ids: list[int]
    seconds: float | None = None

    def __post_init__(self) -> None:
        if len(self.id) != len(self.generated_tokens) or sum(self.generated_tokens) != len(self.token_ids):
            raise Mismatch("ids, counts and tokens of the reference do not belong together")

    def tokens(self) -> dict[str, list[int]]:
        """By the request's id."""
        made, at = {}, 0
        for name, count in zip(self.id, self.generated_tokens, strict=True):
            made[name] = self.token_ids[at : at + count]
            at += count
        return made


@dataclass(frozen=True)
class Costs:
    """One-off work outside every run: `seconds` by name (import, load, compile, capture, export, warmup),
    `counters` of the executor for it (captures, programs, ...)."""

    seconds: dict[str, float] = field(default_factory=dict)
    counters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """One report. `status` is "complete", or "incomplete" with a `message`; `runs` then hold what it got.
    `slo` holds objectives: seconds by latency (musebench.report.slo)."""

    id: str
    created: str
    conditions: Conditions
    choices: Choices
    runs: list[RunData]
    memory: Memory = Memory()
    costs: Costs = Costs()
    status: str = COMPLETE
    message: str | None = None
    slo: dict[str, float] = field(default_factory=dict)
    schema: int = SCHEMA
    reference: Reference | None = None

    def __post_init__(self) -> None:
        if self.status not in (COMPLETE, INCOMPLETE):
            raise Mismatch(f"status is {self.status!r}; {COMPLETE!r} or {INCOMPLETE!r} is wanted")


def new_report(
    conditions: Conditions,
    choices: Choices,
    runs: Ordered[RunData],
    memory: Memory = Memory(),
    costs: Costs = Costs(),
    message: str | None = None,
    slo: dict[str, float] | None = None,
    reference: Reference | None = None,
) -> Report:
    """A report of now, with an id of its own; incomplete when there is a `message`."""
    now = datetime.now(UTC)
    return Report(
        id=f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
        created=now.isoformat(timespec="seconds"),
        conditions=conditions,
        choices=choices,
        runs=list(runs),
        memory=memory,
        costs=costs,
        status=COMPLETE if message is None else INCOMPLETE,
        message=message,
        slo=slo or {},
        reference=reference,
    )
