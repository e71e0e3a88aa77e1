"""What repeats measured, and how two groups differ in one metric: with its noise, or exactly."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from musebench.report.numbers import Metric, Numbers
from musebench.report.schema import Report
from musebench.report.statistics import Ratio, ratio
from musebench.report.table import Value, pretty


@dataclass(frozen=True)
class Measured:
    """The values of one metric in one group, one a sample; `value` is their median (None: there is none).

    Text stays text. `exact`: it has no noise, a count, bytes, or time on a virtual clock.
    """

    samples: tuple[Any, ...]
    exact: bool

    @cached_property
    def value(self) -> Value:
        if not self.samples:
            return None
        first: Value = self.samples[0]
        if self.steady:
            return first
        return float(statistics.median(self.samples))

    @property
    def steady(self) -> bool:
        """Whether all samples are the same."""
        return len(set(self.samples)) < 2


class Samples:
    """A group's reports as samples: the reports themselves, or the repeats of a single one.

    Where a group has several reports, each is a process of its own and one sample: repeats in one process
    share what the process drew (addresses, clocks), and counting them one by one would hide noise. Counts of
    repeats are sums over them, so that reports with unequal numbers of repeats (`first_only`) are compared in
    their first.
    """

    def __init__(self, reports: Sequence[Report], first_only: bool = False) -> None:
        self.reports = tuple(reports)
        self.virtual = all(report.conditions.clock == "virtual" for report in reports)
        self.whole = [Numbers(report) for report in reports]
        self.counted = self.whole
        if first_only:
            self.counted = [Numbers(dataclasses.replace(one, runs=one.runs[:1])) for one in reports]
        self.timed = self.whole
        if len(reports) == 1 and len(reports[0].runs) > 1:
            self.timed = [Numbers(dataclasses.replace(reports[0], runs=[run])) for run in reports[0].runs]

    def measured(self, metric: Metric) -> Measured:
        """The samples of one metric, those without a value left out."""
        numbers = self.timed if metric.speed else self.counted
        if metric.of_report:
            numbers = self.whole
        values = [metric.value(one) for one in numbers]
        exact = not metric.speed or (self.virtual and not metric.host)
        return Measured(tuple(value for value in values if value is not None), exact)


@dataclass(frozen=True)
class Difference:
    """`new` against `old` in one metric.

    `ratio` None where there is none (a value is missing or 0, or exact). `struck`: it is the speed of
    something INVALID. `judged` is False where times come from different machines: the ratio is shown, and
    nothing is concluded.
    """

    metric: Metric
    old: Measured
    new: Measured
    ratio: Ratio | None
    judged: bool = True
    struck: bool = False

    @property
    def exact(self) -> bool:
        return self.old.exact and self.new.exact

    @property
    def percent(self) -> float | None:
        """Of the old value; None where that is missing or 0, and for the speed of what is INVALID."""
        old, new = self.old.value, self.new.value
        if self.struck or not isinstance(old, int | float) or not isinstance(new, int | float) or not old:
            return None
        made = 100.0 * (new - old) / abs(old)
        return made if math.isfinite(made) else None

    @property
    def interval_percent(self) -> tuple[float, float] | None:
        """The interval of `percent`; None where the noise is unknown, and where there is none."""
        if self.ratio is None or self.ratio.low is None or self.ratio.high is None:
            return None
        return 100.0 * (self.ratio.low - 1.0), 100.0 * (self.ratio.high - 1.0)

    @property
    def differs(self) -> bool | None:
        """Whether the two differ by more than their noise; None where nobody can say."""
        if self.exact:
            return set(self.old.samples) != set(self.new.samples)
        if self.ratio is None or not self.ratio.known or not self.judged:
            return None
        return self.ratio.differs

    def remark(self) -> str:
        """What stands behind a value in a table, "" for nothing."""
        if self.exact:
            return self._exactly()
        if self.percent is None:
            return ""
        if not self.judged:
            return f"{self.percent:+.1f} %, another machine"
        interval = self.interval_percent
        if interval is None:
            return f"{self.percent:+.1f} %"
        noise = f"{interval[0]:+.1f} to {interval[1]:+.1f}"
        return f"{self.percent:+.1f} %: {noise}" if self.differs else f"within noise: {noise} %"

    def _exactly(self) -> str:
        if self.struck:
            return ""
        if not (self.old.steady and self.new.steady):
            return "" if self.new.steady else varies(self.new, self.metric.unit)
        old, new = self.old.value, self.new.value
        if old == new:
            return "="
        if not isinstance(old, int | float) or not isinstance(new, int | float):
            return ""
        sign = "+" if new > old else "-"
        made = f"{sign}{pretty(abs(new - old), self.metric.unit)}"
        return made if self.percent is None else f"{made}, {self.percent:+.1f} %"


def difference(metric: Metric, old: Measured, new: Measured, struck: bool, judged: bool) -> Difference:
    """`struck`: one of the two is INVALID, which leaves no ratio of its speed."""
    struck = struck and metric.speed
    exact = old.exact and new.exact
    made = None if struck or exact else ratio(_numbers(old), _numbers(new))
    return Difference(metric, old, new, made, judged or not metric.speed, struck)


def varies(measured: Measured, unit: str) -> str:
    """That exact values are not the same in every repeat, with their range."""
    low, high = min(measured.samples), max(measured.samples)
    shown = pretty(low, unit), pretty(high, unit)
    if shown[0] == shown[1]:
        shown = f"{low:,}", f"{high:,}"
    return f"varies: {shown[0]} to {shown[1]}"


def _numbers(measured: Measured) -> list[float]:
    return [value for value in measured.samples if isinstance(value, int | float)]
