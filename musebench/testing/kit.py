"""The laws of a component by its kind: what `musebench conformance` runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from musebench.plugin.component import Component
from musebench.testing.laws.executor import hold_executor
from musebench.testing.laws.law import Finding
from musebench.testing.laws.pool import hold_pool
from musebench.testing.laws.scheduler import hold_scheduler


@dataclass(frozen=True)
class Trial:
    """A component with its options, and how long to look. `examples` None: as many as its kind takes."""

    component: Component
    values: Mapping[str, Any]
    examples: int | None
    seed: int

    def make(self, *arguments: Any) -> Any:
        return self.component.make(self.values, *arguments)

    def how(self) -> dict[str, Any]:
        return {"seed": self.seed} | ({} if self.examples is None else {"examples": self.examples})


HOLD: dict[str, Callable[[Trial], list[Finding]]] = {
    "executor": lambda trial: hold_executor(trial.make, **trial.how()),
    "pool": lambda trial: hold_pool(trial.make, **trial.how()),
    "scheduler": lambda trial: hold_scheduler(trial.make, **trial.how()),
}
"""Kinds that have laws."""
