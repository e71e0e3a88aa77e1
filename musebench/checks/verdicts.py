"""What all built-in checks share: verdicts with their sums, and the words that name a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from musebench.report.replicas import parts
from musebench.report.schema import Report, RunData
from musebench.report.verdict import Verdict

MOST_REASONS = 3
"""Findings named in one reason; the others are counted."""


@dataclass(frozen=True)
class Judge:
    """Makes the verdicts of the check named `check` on the report with the id `report`."""

    check: str
    report: str
    strikes: bool = True
    restates: bool = False

    def held(
        self, what: str, valid: bool, measured: str, bound: str, sums: str = "", reason: str = ""
    ) -> Verdict:
        """A verdict that could be judged; without a `reason` one is made of measured value and bound."""
        why = "" if valid else reason or f"{what}: {measured}; the bound is {bound} ({sums})"
        return Verdict(
            self.report,
            self.check,
            valid,
            why,
            what,
            measured,
            bound,
            sums,
            strikes=self.strikes,
            restates=self.restates,
        )

    def found(self, what: str, reasons: Sequence[str], sums: str) -> Verdict:
        """A verdict over findings, of which there should be none."""
        named = "; ".join(reasons[:MOST_REASONS])
        more = f"; and {len(reasons) - MOST_REASONS:,} more" if len(reasons) > MOST_REASONS else ""
        return self.held(what, not reasons, f"{len(reasons):,} findings", "0 findings", sums, named + more)

    def missing(self, what: str, reason: str) -> Verdict:
        """A verdict that could not be judged, and why."""
        return Verdict(self.report, self.check, True, reason, what, judged=False)


def runs(report: Report) -> Iterator[tuple[str, RunData]]:
    """Each run, or each of its replicas, with the words that name it: none when there is one only."""
    for index, run in enumerate(report.runs):
        where = f", run {index + 1}" if len(report.runs) > 1 else ""
        for place, part in enumerate(parts(run)):
            yield (f"{where}, replica {place}" if run.replicas else where), part
