"""The laws of a component by its kind: what `musebench conformance` runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from musebench.core.errors import InputError, UsageError
from musebench.plugin.component import Component
from musebench.testing.laws.check import hold_check
from musebench.testing.laws.executor import hold_executor
from musebench.testing.laws.law import Finding
from musebench.testing.laws.pool import hold_pool
from musebench.testing.laws.router import hold_router
from musebench.testing.laws.scheduler import hold_scheduler
from musebench.testing.laws.trace import hold_trace


@dataclass(frozen=True)
class Trial:
    """A component with its options, and how long to look. `examples` None: as many as its kind takes; `file`
    is a right trace, for a reader of traces."""

    component: Component
    values: Mapping[str, Any]
    examples: int | None
    seed: int
    file: Path | None = None

    def make(self, *arguments: Any) -> Any:
        return self.component.make(self.values, *arguments)

    def how(self) -> dict[str, Any]:
        return {"seed": self.seed} | ({} if self.examples is None else {"examples": self.examples})


def _trace(trial: Trial) -> list[Finding]:
    if trial.file is None:
        raise UsageError(f"{trial.component.where} reads files; give a right one with --file")
    try:
        example = trial.file.read_bytes()
    except OSError as error:
        raise InputError(f"{trial.file}: cannot read it: {error.strerror or error}") from error
    return hold_trace(trial.make, example, trial.file.name, **trial.how())


HOLD: dict[str, Callable[[Trial], list[Finding]]] = {
    "check": lambda trial: hold_check(trial.make, **trial.how()),
    "executor": lambda trial: hold_executor(trial.make, **trial.how()),
    "pool": lambda trial: hold_pool(trial.make, **trial.how()),
    "router": lambda trial: hold_router(trial.make, **trial.how()),
    "scheduler": lambda trial: hold_scheduler(trial.make, **trial.how()),
    "trace": _trace,
}
"""Kinds that have laws."""
