"""How commands print verdicts: a table a report, its sums below it, and the failures once more at the end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from musebench.cli.format import render

if TYPE_CHECKING:
    from musebench.report.verdict import Verdict

COLUMNS = ("check", "what", "outcome", "measured", "bound")


def passed(verdicts: Sequence[Verdict]) -> bool:
    return all(verdict.valid for verdict in verdicts)


def show(verdicts: Sequence[Verdict], form: str) -> str:
    """Verdicts in one of `musebench.report.table.FORMATS`."""
    if form == "json":
        entries = [{**asdict(verdict), "outcome": verdict.outcome} for verdict in verdicts]
        return json.dumps({"passed": passed(verdicts), "verdicts": entries}, indent=2)
    rows = [{**asdict(verdict), "outcome": verdict.outcome} for verdict in verdicts]
    if form == "csv":
        return render(("report", *COLUMNS, "sums", "reason"), rows, form)
    blocks = []
    for report in dict.fromkeys(verdict.report for verdict in verdicts):
        mine = [row for row in rows if row["report"] == report]
        sums = [
            f"{row['check']}, {row['what']}: {row['sums'] if row['judged'] else row['reason']}"
            for row in mine
            if row["sums"] or not row["judged"]
        ]
        blocks.append("\n".join([f"report {report}", "", render(COLUMNS, mine, form), "", *sums]))
    failed = [verdict for verdict in verdicts if not verdict.valid]
    judged = sum(verdict.judged for verdict in verdicts)
    lines = [f"FAILED {one.check} of {one.report}: {one.reason}" for one in failed]
    lines.append(
        f"{judged - len(failed):,} passed, {len(failed):,} failed, "
        f"{len(verdicts) - judged:,} could not be judged"
    )
    return "\n\n".join([*blocks, "\n".join(lines)])
