"""`reference`: tokens equal those of another program on the same weights, where the report holds them."""

from __future__ import annotations

from collections.abc import Sequence

from musebench.checks.divergence import Divergence, Pairing, parting, token_rows
from musebench.checks.options import ReferenceOptions
from musebench.checks.tokens import EXACT, verdict_of
from musebench.checks.verdicts import Judge, runs
from musebench.report.schema import Report, RunData
from musebench.report.verdict import Verdict


class ReferenceCheck:
    """Against what `musebench run --reference transformers` stored: equal in float32, elsewhere as `tokens`
    holds other shapes."""

    def __init__(self, options: ReferenceOptions) -> None:
        self.options = options

    def check(self, reports: Sequence[Report]) -> list[Verdict]:
        return [verdict for report in reports for verdict in self._of(report)]

    def _of(self, report: Report) -> list[Verdict]:
        judge = Judge("reference", report.id)
        reference = report.reference
        if reference is None:
            return [judge.missing("reference", "none stored; musebench run --reference transformers does")]
        exact = report.conditions.model.dtype in EXACT
        made = []
        for where, run in runs(report):
            what = f"same tokens as {reference.by}, one prompt at a time{where}"
            paired = _paired(reference.tokens(), run)
            if not paired.compared:
                made.append(judge.missing(what, "no request that both answered"))
                continue
            why = f"in {report.conditions.model.dtype}, by the same weights"
            scale = self.options.reference_logit_scale
            made.append(verdict_of(judge, what, paired, exact, report, scale, why))
        return made


def _paired(reference: dict[str, list[int]], run: RunData) -> Pairing:
    rows = token_rows(run.requests)
    parted, compared, tokens = [], 0, 0
    for name, (made, margins) in rows.items():
        if name not in reference:
            continue
        compared += 1
        tokens += len(made)
        at = parting(reference[name], made)
        if at is not None:
            parted.append(Divergence(name, at, margins[at] if at < len(margins) else None))
    return Pairing(compared, compared - len(parted), tokens, tuple(parted))
