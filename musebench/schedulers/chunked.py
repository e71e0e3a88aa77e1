"""`chunked`: decodes first, then prompts in slices within the step's token budget, rotating."""

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
class ChunkedOptions:
    slice: int | None = option(
        None, "most tokens of one slice; none: what is left of the budget", unit="tokens", minimum=1
    )


class ChunkedScheduler:
    """Every running sequence decodes in every step; what is left of the budget goes to prompts in slices.

    The prompts take turns: each step starts with the one after the first that the step before served, so
    that one long prompt starves nobody.
    """

    name: ClassVar[str] = "chunked"
    Options = ChunkedOptions

    def __init__(self, options: ChunkedOptions) -> None:
        self.options = options
        self._served = -1  # session whose slice came first in the last step

    def plan(self, waiting: Ordered[Sequence], running: Running, limits: Limits, pool: Pool) -> StepPlan:
        if self.options.slice is not None:
            most = max(min(self.options.slice, limits.most_prefill), 2 * limits.fewest_prefill - 1)
            limits = Limits(limits.fewest_prefill, most, limits.most_sequences, limits.most_tokens)
        builder = PlanBuilder(limits, pool, running)
        builder.decode(running.decoding)
        prefilling = running.prefilling
        if prefilling:
            turn = (
                [one.session for one in prefilling].index(self._served) + 1 if self._serving(running) else 0
            )
            order = (*prefilling[turn:], *prefilling[:turn])
            served = [sequence for sequence in order if builder.prefill(sequence)]
            self._served = served[0].session if served else self._served
        for sequence in waiting:
            if not builder.admit(sequence):
                break
        return builder.plan()

    def steady(self, plan: StepPlan) -> int:
        """See `musebench.core.stretch.Steady`: without a prompt under way only room lets anybody in."""
        return 0 if plan.prefills else FOR_EVER

    def _serving(self, running: Running) -> bool:
        return any(sequence.session == self._served for sequence in running.prefilling)
