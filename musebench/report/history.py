"""One metric over commits: series of runs that chose the same, a point a commit, change points marked."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tabulate import tabulate

from musebench.report.changepoints import change_points
from musebench.report.difference import Measured, Samples, difference
from musebench.report.groups import KINDS, Source, factors, make_groups
from musebench.report.numbers import Metric
from musebench.report.schema import Report
from musebench.report.table import MISSING, pretty, require_format
from musebench.report.verdict import Check, judge

ALIKE = (
    *KINDS, "device", "model", "dtype", "workload", "workload sha256", "seed", "warmup", "clock",
    "device name", "cpu", "cores",
)  # fmt: skip
"""Factors that, with the components' options, make reports one series: all but versions and commits."""

CHANGE = "<- change"
BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Point:
    """The reports of one commit in one series. `when` is the earliest report's time, `valid` False where one
    of them is INVALID (a speed then has no value)."""

    commit: str | None
    when: str
    reports: int
    valid: bool
    measured: Measured
    remark: str
    change: bool


@dataclass(frozen=True)
class Series:
    """Points of runs that chose the same on one machine, the oldest first."""

    label: str
    points: tuple[Point, ...]

    def sparkline(self) -> str:
        """One character a point, the lowest value "▁" and the highest "█"; a space where there is none."""
        values = [point.measured.value for point in self.points]
        known = [value for value in values if isinstance(value, int | float)]
        low, high = min(known, default=0), max(known, default=0)
        scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
        return "".join(
            BARS[round((value - low) * scale)] if isinstance(value, int | float) else " " for value in values
        )


@dataclass(frozen=True)
class History:
    """All series of one metric."""

    metric: Metric
    series: tuple[Series, ...]
    warnings: tuple[str, ...] = ()

    def show(self, form: str) -> str:
        """Its text in one of `musebench.report.table.FORMATS`; json and csv hold the numbers in SI units."""
        require_format(form)
        rows = [self._row(one, point) for one in self.series for point in one.points]
        if form == "json":
            series = [
                {"label": one.label, "points": [_plain(point) for point in one.points]} for one in self.series
            ]
            values = {"metric": self.metric.key, "unit": self.metric.unit, "series": series}
            return json.dumps({**values, "warnings": list(self.warnings)}, allow_nan=False, indent=2)
        if form == "csv":
            out = io.StringIO()
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(["series", *_CELLS])
            for one in self.series:
                writer.writerows([one.label, *map(_plain(point).get, _CELLS)] for point in one.points)
            return out.getvalue().rstrip("\n")
        header = ["series", "commit", "when", "reports", self.metric.name, "against the one before", ""]
        align = ("left", "left", "left", "right", "right", "left", "left")
        table = tabulate(rows, header, tablefmt=form, disable_numparse=True, colalign=align if rows else None)
        lines = [f"warning: {warning}" for warning in self.warnings]
        lines += ["", *(f"{one.sparkline()}  {one.label}" for one in self.series)]
        return "\n".join([table, *lines])

    def _row(self, one: Series, point: Point) -> list[str]:
        shown = pretty(point.measured.value, self.metric.unit)
        return [
            one.label,
            (point.commit or MISSING)[:10],
            point.when[:16].replace("T", " "),
            str(point.reports),
            shown if point.valid else f"{shown} INVALID".removeprefix(f"{MISSING} "),
            point.remark,
            CHANGE if point.change else "",
        ]


_CELLS = ("commit", "when", "reports", "value", "change")


def make_history(
    sources: Sequence[Source], metric: Metric, order: dict[str, int], checks: Sequence[Check] = ()
) -> History:
    """The history of one metric. A report that is there several times (by id) counts once.

    `order` gives the place of commits; series with a commit that is not in it go by date alone.
    """
    once = list({source.report.id: source for source in reversed(sources)}.values())
    options = dict.fromkeys(
        name
        for source in once
        for name in factors(source.report)
        if name.partition(".")[0] in (*KINDS, "backend", "engine") and "." in name
    )
    known = {name for source in once for name in factors(source.report)}
    groups = make_groups(once, by=[name for name in (*ALIKE, *options) if name in known]) if once else []
    series = [Series(one.label, _points(one.reports, metric, order, checks)) for one in groups]
    return History(metric, tuple(series))


def _points(
    reports: Sequence[Report], metric: Metric, order: dict[str, int], checks: Sequence[Check]
) -> tuple[Point, ...]:
    by_commit: dict[str | None, list[Report]] = {}
    for report in sorted(reports, key=lambda one: one.created):
        by_commit.setdefault(report.conditions.commit, []).append(report)
    commits = list(by_commit)
    if all(commit in order for commit in commits):
        commits.sort(key=lambda commit: order[commit or ""])
    unequal = len({len(report.runs) for report in reports if report.runs}) > 1
    valid = [all(one.valid for one in judge(by_commit[commit], checks)) for commit in commits]
    measured = []
    for commit, right in zip(commits, valid, strict=True):
        made = Samples(by_commit[commit], unequal).measured(metric)
        measured.append(made if right or not metric.speed else Measured((), made.exact))
    exact = all(one.exact for one in measured)
    changes = change_points([one.samples for one in measured], exact)
    points = []
    for index, commit in enumerate(commits):
        before = next((one for one in reversed(measured[:index]) if one.samples), None)
        remark = ""
        if before is not None and measured[index].samples:
            remark = difference(metric, before, measured[index], struck=False, judged=True).remark()
        points.append(
            Point(
                commit,
                by_commit[commit][0].created,
                len(by_commit[commit]),
                valid[index],
                measured[index],
                remark,
                index in changes,
            )
        )
    return tuple(points)


def _plain(point: Point) -> dict[str, Any]:
    return {
        "commit": point.commit,
        "when": point.when,
        "reports": point.reports,
        "valid": point.valid,
        "value": point.measured.value,
        "samples": list(point.measured.samples),
        "change": point.change,
    }
