"""What a run is put together from."""

from __future__ import annotations

from dataclasses import dataclass

from musebench.core.audit import Audit
from musebench.core.blame import told
from musebench.core.plan import Limits
from musebench.core.protocols import Backend, Executor, MemorySnapshot, Pool, PoolBounds
from musebench.models.source import Model
from musebench.report.schema import Choices, MemoryBound, Reference
from musebench.workload.build import Built
from musebench.workload.workload import Workload


@dataclass(frozen=True)
class Stack:
    """Where one replica's steps run."""

    backend: Backend
    pool: Pool
    executor: Executor


@dataclass
class Parts:
    """What a run is put together from; `built.requests` may be changed before the first step. `replicas` are
    those beside the first, whose backend, pool and executor stand here."""

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
    replicas: tuple[Stack, ...] = ()

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """All replicas, from 0."""
        return (Stack(self.backend, self.pool, self.executor), *self.replicas)

    def close(self) -> str | None:
        """Close everything; what does not close costs no report. The first such thing as text."""
        trouble = None
        for what, close in (
            one
            for stack in self.stacks
            for one in (
                ("executor", stack.executor.close),
                ("storage", stack.backend.storage().close),
                ("backend", stack.backend.close),
            )
        ):
            try:
                close()
            except (Exception, SystemExit) as error:  # a device that is broken says so at every call
                trouble = trouble or f"the {what} could not be closed: {told(error)}"
        return trouble
