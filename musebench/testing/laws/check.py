"""The laws of checks, held over reports of a simulated run: sound, lacking parts, and one that must fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from musebench.plugin.registry import Registry
from musebench.report.files import dumps
from musebench.report.schema import Memory, Report
from musebench.report.verdict import Check, Verdict
from musebench.run import RunOptions, run
from musebench.testing.laws.law import Finding, History, Law, listed
from musebench.testing.laws.search import search, strategies

VERDICTS = Law("verdicts", "each verdict names a report and its check, and a reason of one line if it fails")
SOUND = Law("sound", "a sound report is not failed")
FAILS = Law("fails", "a report that it must fail is failed")
SAME = Law("same", "the same reports get the same verdicts again")
READS = Law("reads", "checking changes no report")
NONE = Law("none", "no reports get no verdict")

CHECK_LAWS = (VERDICTS, SOUND, FAILS, SAME, READS, NONE)

Change = Callable[[Report], Report]


@cache
def sound_report(pool: str = "geometric") -> Report:
    """Of a small run on a simulated device."""
    options = RunOptions("mixed-small", model="smollm2-135m", device="sim:h200", pool=pool)
    return run(options, Registry.installed())


LACKING: dict[str, Change] = {
    "complete": lambda report: report,
    "without runs": lambda report: replace(report, runs=[]),
    "incomplete": lambda report: replace(
        report, status="incomplete", message="cut off", runs=report.runs[:0]
    ),
    "without memory": lambda report: replace(report, memory=Memory()),
    "without facts of its model": lambda report: replace(
        report,
        conditions=replace(report.conditions, model=replace(report.conditions.model, facts=None)),
    ),
}
"""Reports that lack what a check may want."""


def hold_check(
    make: Callable[[], Check], broken: Change | None = None, *, examples: int = 30, seed: int = 0
) -> list[Finding]:
    """A finding a law for the checks that `make()` makes; `broken` makes a sound report one to fail."""
    st = strategies()
    drawn = st.lists(st.tuples(st.sampled_from(["geometric", "fixed"]), st.sampled_from(list(LACKING))))

    def play(drawn: list[tuple[str, str]], history: History) -> None:
        check, hold = make(), history.hold
        hold(NONE, list(check.check([])) == [], "no reports got a verdict")
        _fails(check, broken, history)
        reports = [LACKING[what](sound_report(pool)) for pool, what in drawn]
        reports = [replace(one, id=f"{one.id}-{place}") for place, one in enumerate(reports)]
        history.doing(f"checking {listed(f'a report of {pool}, {what}' for pool, what in drawn)}")
        before = [dumps(report) for report in reports]
        made = list(check.check(reports))
        hold(READS, [dumps(report) for report in reports] == before, "a report was changed")
        _verdicts(made, {report.id for report in reports}, history)
        hold(SAME, list(make().check(reports)) == made, "the second time the verdicts are others")
        if all(what == "complete" for _, what in drawn):
            failed = [verdict.reason for verdict in made if not verdict.valid]
            hold(SOUND, not failed, f"a sound report is failed: {failed[0] if failed else ''}")

    return search(CHECK_LAWS, drawn, play, examples, seed)


def _fails(check: Check, broken: Change | None, history: History) -> None:
    if broken is None:
        history.cannot_judge(FAILS, "nobody gave a report that it must fail; CheckConformance takes one")
        return
    history.doing("checking the report that must fail")
    made = check.check([broken(sound_report())])
    failed = any(not verdict.valid for verdict in made)
    history.hold(FAILS, failed, f"none of its {len(made)} verdicts fails the report that must fail")
    history.steps.pop()


def _verdicts(made: list[Verdict], ids: set[str], history: History) -> None:
    hold = history.hold
    for verdict in made:
        hold(VERDICTS, isinstance(verdict, Verdict), f"{verdict!r} is no Verdict")
        hold(VERDICTS, verdict.report in ids, f"a verdict names {verdict.report!r}, none of the reports")
        hold(VERDICTS, bool(verdict.check), "a verdict names no check")
        said = bool(verdict.reason) or (verdict.valid and verdict.judged)
        hold(VERDICTS, said, f"{verdict.check!r} fails {verdict.what!r} without a reason")
        one = "\n" not in verdict.reason
        hold(VERDICTS, one, f"the reason of {verdict.check!r} has several lines: {verdict.reason!r}")
    history.judged[VERDICTS.name] += 1
