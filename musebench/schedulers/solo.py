"""`solo`: one sequence at a time, from its first token to its last."""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from typing import ClassVar

from musebench.core.options import NoOptions
from musebench.core.plan import Limits, StepPlan
from musebench.core.planning import PlanBuilder
from musebench.core.protocols import Pool, Running
from musebench.core.sequence import Sequence
from musebench.core.stretch import FOR_EVER


class SoloScheduler:
    name: ClassVar[str] = "solo"
    Options = NoOptions

    def __init__(self, options: NoOptions) -> None:
        self.options = options

    def plan(self, waiting: Ordered[Sequence], running: Running, limits: Limits, pool: Pool) -> StepPlan:
        builder = PlanBuilder(limits, pool, running)
        builder.decode(running.decoding)
        for sequence in running.prefilling:
            builder.prefill(sequence)
        if not len(running) and waiting:
            builder.admit(waiting[0])
        return builder.plan()

    def steady(self, plan: StepPlan) -> int:
        """See `musebench.core.stretch.Steady`: nobody else is looked at."""
        return 0 if plan.prefills else FOR_EVER
