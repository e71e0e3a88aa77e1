"""Numbers with their intervals, read off the committed reports of a folder by the names of its rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from musebench.report import files
from musebench.report.numbers import Numbers, metric
from musebench.report.roofline import step_kinds
from musebench.report.schema import Report
from musebench.report.statistics import Ratio, ratio
from musebench.report.table import pretty
from musebench.report.verdict import judge

HEADLINE = "graph-geometric-chunked"
FRESH = "-fresh"
ENERGY, DECODE_SHARE = "millijoules_per_token", "decode_share"
SUFFIXES = ("tokens/s", "mJ")
UNITS = {ENERGY: SUFFIXES[1], DECODE_SHARE: "percent", "output_tokens_per_second": SUFFIXES[0]}
"""Beside the keys and units of `musebench.report.numbers`."""


class MissingReport(Exception):
    """A sentence cannot be said."""


@dataclass(frozen=True)
class Timed:
    """A number over the runs of one choice."""

    samples: tuple[float, ...]
    unit: str

    @property
    def level(self) -> Ratio:
        """Median and interval: a ratio to a one without noise.

        Raises:
            MissingReport: it was not measured.
        """
        made = ratio((1.0, 1.0), self.samples)
        if made is None:
            raise MissingReport
        return made

    def __str__(self) -> str:
        made = self.level
        if made.low is None or made.high is None:
            return f"{self._shown(made.value)} (one run)"
        within = " to ".join(pretty(value, self._bare) for value in (made.low, made.high))
        return f"{self._shown(made.value)} ({within})"

    @property
    def _bare(self) -> str:
        return "" if self.unit in SUFFIXES else self.unit

    def _shown(self, value: float) -> str:
        return pretty(value, self._bare) + (f" {self.unit}" if self.unit in SUFFIXES else "")

    def over(self, other: Timed) -> str:
        """How many times the other."""
        made = ratio(other.samples, self.samples)
        if made is None:
            raise MissingReport
        if made.low is None or made.high is None:
            return f"{made.value:.2f} times (one run)"
        return f"{made.value:.2f} times ({made.low:.2f} to {made.high:.2f})"


@dataclass(frozen=True)
class Measured:
    """The reports of one choice: one with repeats, or one a round."""

    reports: tuple[Report, ...]

    @property
    def first(self) -> Report:
        return self.reports[0]

    @property
    def model(self) -> str:
        return self.first.conditions.model.name

    @property
    def work(self) -> str:
        """The workload, and how much of it."""
        return f"`{self.first.conditions.workload.name}` of {self.requests} requests"

    @property
    def requests(self) -> str:
        return f"{len(self.first.runs[0].requests):,}"

    def timed(self, key: str) -> Timed:
        """One sample a run.

        Raises:
            MissingReport: it was not measured in one of them.
        """
        unit = UNITS.get(key) or metric(key).unit
        runs = [replace(report, runs=[run]) for report in self.reports for run in report.runs]
        return Timed(tuple(_value(report, key) for report in runs), unit)

    def exact(self, key: str) -> int:
        """A count or bytes, of the first run."""
        value = metric(key).value(Numbers(replace(self.first, runs=self.first.runs[:1])))
        if value is None:
            raise MissingReport
        return int(value)

    def shown(self, key: str) -> str:
        return pretty(self.exact(key), metric(key).unit)

    def counter(self, name: str) -> float:
        """Of the executor, over the first run."""
        return float(self.first.runs[0].counters.get(name, 0))


def _value(report: Report, key: str) -> float:
    value: float | None
    if key == ENERGY:
        tokens = Numbers(report).tokens_per_joule
        value = tokens and 1e3 / tokens
    elif key == DECODE_SHARE:
        decode = step_kinds(report).get("decode")
        value = None if decode is None or decode.share is None else 100.0 * decode.share
    else:
        value = metric(key).value(Numbers(report))
    if value is None:
        raise MissingReport
    return float(value)


class Evidence:
    """The reports of a folder, read when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, Measured] = {}

    def __call__(self, work: str, shape: str, choice: str = HEADLINE, fresh: bool = False) -> Measured:
        """The reports of one row; `fresh`: all rounds that began with an empty pool.

        Raises:
            MissingReport: there is none.
        """
        pattern = f"{work}-{shape}-{choice}{f'{FRESH}*' if fresh else ''}.json.gz"
        if pattern not in self._read:
            paths = sorted(self.folder.glob(pattern))
            if not paths:
                raise MissingReport
            reports = tuple(files.read(path) for path in paths)
            if not all(one.valid for one in judge(reports)):  # its speed says nothing
                raise MissingReport
            self._read[pattern] = Measured(reports)
        return self._read[pattern]

    def known(self, work: str, shapes: Sequence[str], choice: str = HEADLINE) -> Iterator[Measured]:
        """Those of the shapes that are there."""
        for shape in shapes:
            try:
                yield self(work, shape, choice)
            except MissingReport:
                continue


def say(template: str, **values: object) -> str:
    """The template filled.

    Raises:
        ValueError: it holds a digit of its own.
    """
    if re.search(r"\d", re.sub(r"\{[^}]*\}", "", template)):
        raise ValueError(f"a sentence's numbers come from reports: {template}")
    return template.format(**values)
