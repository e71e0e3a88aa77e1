"""`sjf`: the shortest job first, where waiting makes a job shorter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from musebench.core.options import option
from musebench.core.sequence import Sequence
from musebench_sched.admission import AdmissionScheduler, steps_option
from musebench_sched.ranked import RankedLine


@dataclass(frozen=True)
class SjfOptions:
    size: str = option(
        "all",
        "tokens that make a job long: of its prompt, of its output, or all",
        choices=("all", "prompt", "output"),
    )
    aging: float = option(
        0.02, "how long a head start a token less is worth; 0: first come, first served", unit="s", minimum=0
    )
    steps: str = steps_option()


class SjfScheduler(AdmissionScheduler):
    """Admits in order of arrival_seconds + aging x tokens.

    So a job of `tokens` is overtaken by nobody who arrives more than aging x tokens seconds after it: what
    waits is served in the end, whatever the load. `output` and `all` take the most tokens that a request may
    make for those that it will: what a trace records, and a server does not know.
    """

    name: ClassVar[str] = "sjf"
    Options = SjfOptions

    def __init__(self, options: SjfOptions) -> None:
        self.options = options
        super().__init__(RankedLine(self.rank), options.steps)

    def rank(self, sequence: Sequence) -> float:
        """Seconds: its arrival, and what its length adds."""
        prompt, output = sequence.prompt_tokens, sequence.request.max_new_tokens
        tokens = {"all": prompt + output, "prompt": prompt, "output": output}[self.options.size]
        return sequence.arrival_seconds + self.options.aging * tokens
