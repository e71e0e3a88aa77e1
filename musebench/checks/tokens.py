"""`tokens`: reports of the same work make the same tokens, whatever the executor, pool and scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from musebench.checks.divergence import Pairing, pair, rounding_bound, same_arithmetic, same_shapes
from musebench.checks.options import TokensOptions
from musebench.checks.verdicts import Judge
from musebench.report.schema import Report
from musebench.report.verdict import Verdict

EXACT = ("float32", "float64")
"""Dtypes in which a difference without a margin is taken for what it should be: a fault."""


class TokensCheck:
    """Each report against the first of the same workload, model, dtype and seed, its first run. Same padded
    shapes and kernels: ids equal. Elsewhere each request's first divergence is "same", "rounding" (its margin
    is under a bound that follows from the dtype) or "different"."""

    def __init__(self, options: TokensOptions) -> None:
        self.options = options

    def check(self, reports: Sequence[Report]) -> list[Verdict]:
        groups: dict[Any, list[Report]] = {}
        for report in reports:
            if report.runs:
                groups.setdefault(self._key(report), []).append(report)
        made = []
        for first, *others in groups.values():
            judge = Judge("tokens", first.id)
            if first.runs[0].requests.token_ids is None:
                made.append(judge.missing("same tokens", "the report holds no token ids"))
            elif not others:
                made.append(judge.missing("same tokens", "no other report of the same work to compare with"))
            made += [self._against(first, other) for other in others]
        return made

    def _key(self, report: Report) -> tuple[Any, ...]:
        conditions = report.conditions
        model = conditions.model
        weights = model.weights_sha256 or model.source
        workload = None if self.options.across_workloads else conditions.workload.sha256
        return workload, weights, model.dtype, conditions.seed, conditions.clock

    def _against(self, first: Report, other: Report) -> Verdict:
        what = f"same tokens as {first.id} ({first.choices.launched_by})"
        judge = Judge("tokens", other.id)
        one, two = first.runs[0], other.runs[0]
        paired = pair(one, two)
        if not paired.compared:
            return judge.missing(what, "no request that both answered, of one id and prompt, with its ids")
        exact = same_shapes(one, two) and same_arithmetic(first, other)
        return verdict_of(judge, what, paired, exact, other, self.options.logit_scale)


def verdict_of(
    judge: Judge,
    what: str,
    paired: Pairing,
    exact: bool,
    report: Report,
    scale: float,
    why_exact: str = "same padded shapes and kernels",
) -> Verdict:
    """Equal where `exact`, elsewhere same or rounding, with the bound printed."""
    model = report.conditions.model
    bound = None if exact else rounding_bound(model.dtype, model.facts, scale)
    if model.dtype not in EXACT and paired.unknown(bound):
        assert bound is not None
        return judge.missing(
            what,
            f"{len(paired.divergences):,} of {paired.compared:,} requests part somewhere, and no margin "
            f"there was recorded (--margins) to hold against {bound.margin:.3g} ({bound.sums})",
        )
    outcome = paired.outcome(bound)
    worst = sorted(paired.divergences, key=lambda one: one.verdict(bound))[:3]
    parts = "; ".join(one.words() for one in worst)
    measured = f"{outcome}: {paired.same:,} of {paired.compared:,} requests equal"
    limit = "ids equal" if bound is None else f"ids equal, or margins up to {bound.margin:.3g}"
    sums = why_exact if bound is None else f"other shapes or kernels: {bound.sums}"
    sums += f"; {paired.tokens:,} tokens"
    valid = outcome != "different"
    return judge.held(
        what, valid, measured, limit, f"{sums}; {parts}" if parts else sums, "" if valid else
        f"{what}: {outcome}; {parts}; the bound is {limit}",
    )  # fmt: skip
