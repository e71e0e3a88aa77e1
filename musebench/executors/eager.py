"""`eager`: launches every operation of every forward."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Ordered
from typing import ClassVar

from musebench.core.batch import StepBatch
from musebench.core.forwards import cut_to_limits
from musebench.core.options import NoOptions
from musebench.core.plan import Limits, StepPlan
from musebench.core.protocols import Backend, Forward, StepOutput
from musebench.core.stretch import Stretch, StretchOutput
from musebench.executors.stretching import launch


class EagerExecutor:
    name: ClassVar[str] = "eager"
    Options = NoOptions

    def __init__(self, options: NoOptions, backend: Backend, limits: Limits) -> None:
        self.options = options
        self.backend = backend
        self.limits = limits
        self._forwards = 0

    def prepare(self) -> Mapping[str, float]:
        return self.backend.warm(self.limits)

    def cut(self, plan: StepPlan) -> Ordered[Forward]:
        return cut_to_limits(plan, self.limits, "eager")

    def execute(self, batch: StepBatch) -> StepOutput:
        self._forwards += 1
        return self.backend.forward(batch)

    def stretch(self, stretch: Stretch) -> StretchOutput | None:
        """See `musebench.core.stretch.Stretching`."""
        made = launch(self.backend, stretch)
        self._forwards += made.steps if made is not None else 0
        return made

    def counters(self) -> Mapping[str, int | float]:
        return {"forwards": self._forwards}

    def close(self) -> None:
        """Nothing to free."""
