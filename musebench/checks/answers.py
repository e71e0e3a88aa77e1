"""`answers`: every request ended normally and contains its expected answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from musebench.checks.verdicts import Judge
from musebench.core.options import NoOptions
from musebench.report import metrics
from musebench.report.schema import Report
from musebench.report.verdict import Verdict, check_answers, check_complete, check_success


class AnswersCheck:
    covers: ClassVar[tuple[str, ...]] = ("complete", "success", "answers")

    def __init__(self, options: NoOptions) -> None:
        self.options = options

    def check(self, reports: Sequence[Report]) -> list[Verdict]:
        return [verdict for report in reports for verdict in self._of(report)]

    def _of(self, report: Report) -> list[Verdict]:
        judge = Judge("answers", report.id, restates=True)
        outcome = metrics.outcome(report)
        broken = [*check_complete(report), *check_success(report)]
        made = [
            judge.found("the run ended", broken, f"{len(report.runs)} of {report.conditions.repeats} repeats")
        ]
        ends = [
            f"{count:,} {name}{f' ({message})' if message else ''}"
            for (name, message), count in outcome.reasons.items()
        ]
        # A request that was refused or failed is counted nowhere: the others' numbers may be believed.
        made.append(
            Judge("answers", report.id, strikes=False).held(
                "requests ended normally",
                not ends,
                f"{outcome.succeeded:,} requests",
                f"{outcome.requests:,} requests",
                "ended with a stop token or at their most tokens",
                "; ".join(ends),
            )
        )
        if outcome.expected:
            made.append(
                judge.held(
                    "answers",
                    not outcome.wrong,
                    f"{outcome.right:,} right",
                    f"{outcome.expected:,} expected",
                    "the answer's text contains what was expected",
                    "; ".join(check_answers(report)),
                )
            )
        else:
            made.append(judge.missing("answers", "the workload expects no answer"))
        return made
