"""`continuous`: a waiting sequence is admitted as soon as there is room; whole prompts come first."""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from typing import ClassVar

from musebench.core.options import NoOptions
from musebench.core.plan import Limits, StepPlan
from musebench.core.planning import PlanBuilder
from musebench.core.protocols import Pool, Running
from musebench.core.sequence import Sequence
from musebench.core.stretch import FOR_EVER


class ContinuousScheduler:
    """A step is either prefills, whole prompts as far as the limits take them, or decodes.

    A prompt longer than a step takes several, one after the other, before anybody decodes again: that is
    what `chunked` is compared with.
    """

    name: ClassVar[str] = "continuous"
    Options = NoOptions

    def __init__(self, options: NoOptions) -> None:
        self.options = options

    def plan(self, waiting: Ordered[Sequence], running: Running, limits: Limits, pool: Pool) -> StepPlan:
        builder = PlanBuilder(limits, pool, running)
        for sequence in running.prefilling:
            if not builder.prefill(sequence):
                break
        for sequence in waiting:
            if not builder.admit(sequence):
                break
        plan = builder.plan()
        if plan.empty:
            builder.decode(running.decoding)
            plan = builder.plan()
        return plan

    def steady(self, plan: StepPlan) -> int:
        """See `musebench.core.stretch.Steady`: nobody who could not be admitted now can be later."""
        return 0 if plan.prefills else FOR_EVER
