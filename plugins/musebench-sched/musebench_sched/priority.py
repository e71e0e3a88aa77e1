"""`priority`: by a tag of the request, where waiting makes up for a lower one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from musebench.core.errors import UsageError
from musebench.core.options import option
from musebench.core.sequence import Sequence
from musebench_sched.admission import AdmissionScheduler, steps_option
from musebench_sched.ranked import RankedLine


@dataclass(frozen=True)
class PriorityOptions:
    tag: str = option("priority", "tag of a request that holds its priority, a number; higher goes first")
    default: float = option(0.0, "priority of a request without the tag")
    aging: float = option(
        10.0,
        "how long a wait makes up for a priority lower by 1; 0: first come, first served",
        unit="s",
        minimum=0,
    )
    steps: str = steps_option()


class PriorityScheduler(AdmissionScheduler):
    """Admits in order of arrival_seconds - aging x priority.

    Compared at any time, that is a priority that rises by 1 with every `aging` seconds of waiting.
    So nobody overtakes who arrives more than aging x (his priority - the other's) seconds after the other.

    Raises:
        UsageError: while it plans, for a priority that is no number.
    """

    name: ClassVar[str] = "priority"
    Options = PriorityOptions

    def __init__(self, options: PriorityOptions) -> None:
        self.options = options
        super().__init__(RankedLine(self.rank), options.steps)

    def rank(self, sequence: Sequence) -> float:
        """Seconds: its arrival, and what its priority takes off."""
        return sequence.arrival_seconds - self.options.aging * self._priority(sequence)

    def _priority(self, sequence: Sequence) -> float:
        value = sequence.request.tags.get(self.options.tag, self.options.default)
        try:
            priority = float(value)  # type: ignore[arg-type]  # whatever it is: text of a CSV is a number too
        except (TypeError, ValueError):
            priority = math.nan
        if not math.isfinite(priority):
            raise UsageError(
                f"scheduler 'priority': request {sequence.request.id!r} has {self.options.tag} {value!r}; a "
                "number is wanted"
            )
        return priority
