"""`static`: fills a batch and runs it until its last sequence ends, then fills the next."""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from typing import ClassVar

from musebench.core.options import option
from musebench.core.plan import Limits, StepPlan
from musebench.core.planning import PlanBuilder
from musebench.core.protocols import Pool, Running
from musebench.core.sequence import Sequence
from musebench.core.stretch import FOR_EVER


@dataclass(frozen=True)
class StaticOptions:
    batch: int | None = option(None, "most sequences of a batch; none: the run's --max-sessions", minimum=1)


class StaticScheduler:
    """All prompts of a batch are computed before any of it decodes, as one padded batch would.

    A batch is what waits when the one before has ended and fits the pool, even where one step cannot take
    all its prompts: the steps after it go on filling until the first sequence decodes.
    """

    name: ClassVar[str] = "static"
    Options = StaticOptions

    def __init__(self, options: StaticOptions) -> None:
        self.options = options

    def plan(self, waiting: Ordered[Sequence], running: Running, limits: Limits, pool: Pool) -> StepPlan:
        builder = PlanBuilder(limits, pool, running)
        for sequence in running.prefilling:
            if not builder.prefill(sequence):
                break
        if not any(sequence.generated > 1 for sequence in running.decoding):
            most = self.options.batch or limits.most_sequences
            for place, sequence in enumerate(waiting, start=len(running)):
                if place >= most or not builder.admit(sequence):
                    break
        plan = builder.plan()
        if plan.empty:
            builder.decode(running.decoding)
            plan = builder.plan()
        return plan

    def steady(self, plan: StepPlan) -> int:
        """See `musebench.core.stretch.Steady`: a batch that decodes admits nobody."""
        return 0 if plan.prefills else FOR_EVER
