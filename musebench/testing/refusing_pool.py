"""`refusing`: a pool around another that refuses at a chosen step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from musebench.core.errors import OutOfMemory, PoolFull
from musebench.core.options import option
from musebench.core.plan import StepPlan
from musebench.core.protocols import PoolBounds, Storage
from musebench.plugin.registry import Registry
from musebench.testing.when import When, settings


@dataclass(frozen=True)
class RefusingOptions:
    kind: str = option(
        "full",
        "how it refuses: full (no cell is free), oom (rows that cannot be had)",
        choices=("full", "oom"),
    )
    step: int = option(0, "first reservation that is refused; warm-ups and repeats count on", minimum=0)
    times: int = option(1, "reservations in a row that are refused; 0: all from there on", minimum=0)
    fits: int = option(0, "oom: plans of at most so many sequences fit", unit="sequences", minimum=0)
    inner: str = option("geometric", "the pool that does the work")
    inner_options: str = option("", "its options: NAME=VALUE;NAME=VALUE")


class RefusingPool:
    """Every other call goes to the pool inside: this one has no cells of its own."""

    name: ClassVar[str] = "refusing"
    Options = RefusingOptions

    def __init__(self, options: RefusingOptions, bounds: PoolBounds, storage: Storage) -> None:
        self.options = options
        component = Registry.installed().get("pool", options.inner)
        self.inner: Any = component.make(settings(options.inner_options), bounds, storage)
        self._when = When(options.step, options.times)

    def reserve(self, plan: StepPlan) -> np.ndarray:
        """Cells int32 [plan.tokens] of the pool inside.

        Raises:
            PoolFull, OutOfMemory: as chosen; nothing has changed.
        """
        if self._when.next():
            if self.options.kind == "full":
                raise PoolFull(plan.tokens, 0, self.inner.capacity)
            if plan.slices > self.options.fits:
                raise OutOfMemory(1 << 60, 0, f"planted rows for {plan.slices} sequences")
        reserved: np.ndarray = self.inner.reserve(plan)
        return reserved

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)
