"""Groups as lines and metrics as columns: who is best in what, and who is on the Pareto front.

A group that is INVALID is struck out in speed and never best; a cell that did not run has its reason.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tabulate import tabulate

from musebench.report.compare import Comparison
from musebench.report.difference import Measured
from musebench.report.numbers import BY_KEY, NEITHER, Metric
from musebench.report.statistics import ratio
from musebench.report.table import Value, pretty, require_format

COLUMNS = ("output_tokens_per_second", "ttft_p50", "tpot_p50", "memory_bytes", "growths", "steps")
FRONT = ("output_tokens_per_second", "memory_bytes", "ttft_p50")
"""What nobody may be better in all at once than a group on the front: throughput, memory, TTFT."""

BEST, TIED = "*", "~"


@dataclass(frozen=True)
class Missing:
    """A cell of which there is no report: it crashed, took too long, or its combination is impossible."""

    label: str
    reason: str


@dataclass(frozen=True)
class Line:
    """One group: its samples, whether it is VALID, on the front, and by metric its mark, "" for none."""

    label: str
    reports: int
    verdict: str
    valid: bool
    front: bool
    values: tuple[Value, ...]
    marks: tuple[str, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class Ranking:
    """Lines over `metrics`; `missing` cells come last."""

    metrics: tuple[Metric, ...]
    lines: tuple[Line, ...]
    missing: tuple[Missing, ...] = ()
    warnings: tuple[str, ...] = ()
    with_remarks: bool = False

    def show(self, form: str) -> str:
        """Its text in one of `musebench.report.table.FORMATS`; json and csv hold the numbers in SI units."""
        require_format(form)
        if form == "json":
            return json.dumps(
                {
                    "warnings": list(self.warnings),
                    "lines": [self._plain(line) for line in self.lines],
                    "missing": [{"label": one.label, "reason": one.reason} for one in self.missing],
                },
                allow_nan=False,
                indent=2,
            )
        if form == "csv":
            return self._csv()
        names = [f"{metric.name}" for metric in self.metrics]
        header = ["", *names, "reports", "front", "verdict"]
        rows = [
            [
                line.label,
                *(self._cell(line, index) for index in range(len(self.metrics))),
                str(line.reports),
                "P" if line.front else "",
                line.verdict,
            ]
            for line in self.lines
        ]
        rows += [[one.label, *["-"] * len(names), "0", "", one.reason] for one in self.missing]
        escape = form in ("github", "pipe")
        rows = [[cell.replace("|", "\\|") if escape else cell for cell in row] for row in rows]
        align = ("left", *["right"] * (len(names) + 1), "center", "left")
        shown = tabulate(rows, header, tablefmt=form, disable_numparse=True, colalign=align if rows else None)
        front = ", ".join(BY_KEY[key].name for key in FRONT)
        key = f"{BEST} best   {TIED} not told from it by its noise   P nobody is better in all of {front}"
        lines = [f"warning: {warning}" for warning in self.warnings]
        return "\n".join([*lines, *([""] if lines else []), shown, key])

    def _cell(self, line: Line, index: int) -> str:
        metric, value = self.metrics[index], line.values[index]
        shown = pretty(value, metric.unit)
        if value is None:
            return shown
        if metric.speed and not line.valid:
            return f"~~{shown}~~"
        remark = f" ({line.remarks[index]})" if self.with_remarks and line.remarks[index] else ""
        return f"{shown}{remark} {line.marks[index]}".rstrip()

    def _plain(self, line: Line) -> dict[str, Any]:
        keys = [metric.key for metric in self.metrics]
        return {
            "label": line.label,
            "reports": line.reports,
            "valid": line.valid,
            "verdict": line.verdict,
            "front": line.front,
            "values": dict(zip(keys, line.values, strict=True)),
            "best": [key for key, mark in zip(keys, line.marks, strict=True) if mark == BEST],
            "tied": [key for key, mark in zip(keys, line.marks, strict=True) if mark == TIED],
        }

    def _csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["label", *(one.key for one in self.metrics), "reports", "front", "valid", "verdict"])
        for line in self.lines:
            flags = ["yes" if flag else "no" for flag in (line.front, line.valid)]
            writer.writerow([line.label, *line.values, line.reports, *flags, line.verdict])
        for one in self.missing:
            writer.writerow([one.label, *[None] * len(self.metrics), 0, "no", "no", one.reason])
        return out.getvalue().rstrip("\n")


def rank(
    comparison: Comparison,
    metrics: Sequence[Metric],
    order: Sequence[int] | None = None,
    missing: Sequence[Missing] = (),
    with_remarks: bool = False,
) -> Ranking:
    """A line for each group of `order` (None: all); marks and front are among those of one workload and
    model: what did other work is no better for having been faster."""
    chosen = list(range(len(comparison.groups))) if order is None else list(order)
    marks: dict[int, list[str]] = {index: [] for index in chosen}
    on_front: set[int] = set()
    for alike in _same_work(comparison, chosen):
        on_front |= front(comparison, alike)
        for metric in metrics:
            for index, mark in zip(alike, _marks(comparison, metric, alike), strict=True):
                marks[index].append(mark)
    lines = []
    for index in chosen:
        judgement = comparison.judgements[index]
        differences = [comparison.difference(metric, index) for metric in metrics]
        lines.append(
            Line(
                comparison.labels[index],
                len(comparison.groups[index].reports),
                judgement.line(),
                judgement.valid,
                index in on_front,
                tuple(comparison.measured[metric.key][index].value for metric in metrics),
                tuple(marks[index]),
                tuple("" if one is None else one.remark() for one in differences),
            )
        )
    return Ranking(tuple(metrics), tuple(lines), tuple(missing), comparison.warnings, with_remarks)


def _same_work(comparison: Comparison, chosen: Sequence[int]) -> list[list[int]]:
    """`chosen` by workload and model."""
    made: dict[Any, list[int]] = {}
    for index in chosen:
        conditions = comparison.groups[index].reports[0].conditions
        work = (conditions.workload.name, conditions.workload.sha256, conditions.model.source)
        made.setdefault(work, []).append(index)
    return list(made.values())


def front(comparison: Comparison, chosen: Sequence[int]) -> set[int]:
    """The VALID groups that none dominates: no other is as good in all of `FRONT` and better in one.

    Medians are compared. A metric that some group has no value of is left out.
    """
    valid = [index for index in chosen if comparison.judgements[index].valid]
    points: dict[int, list[float]] = {index: [] for index in valid}
    for key in FRONT:
        values = [comparison.measured[key][index].value for index in valid]
        numbers = [value for value in values if isinstance(value, int | float)]
        if len(numbers) == len(valid):
            for index, value in zip(valid, numbers, strict=True):
                points[index].append(BY_KEY[key].better * value)
    return {
        index
        for index, point in points.items()
        if point and not any(_dominates(other, point) for other in points.values())
    }


def _dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    pairs = list(zip(one, other, strict=True))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def _marks(comparison: Comparison, metric: Metric, chosen: Sequence[int]) -> list[str]:
    """BEST for the best and all that equal it, TIED for those whose noise hides the difference."""
    values: list[Measured | None] = [
        comparison.measured[metric.key][index]
        if comparison.judgements[index].valid or not metric.speed
        else None
        for index in chosen
    ]
    numbers = [float(one.value) for one in values if one is not None and isinstance(one.value, int | float)]
    if metric.better == NEITHER or len(numbers) < 2 or len(set(numbers)) < 2:
        return [""] * len(chosen)
    top = max(numbers) if metric.better > 0 else min(numbers)
    best = next(one for one in values if one is not None and one.value == top)
    return [_mark(one, best) for one in values]


def _mark(one: Measured | None, best: Measured) -> str:
    if one is None or one.value is None:
        return ""
    if one.value == best.value:
        return BEST
    if one.exact and best.exact:
        return ""
    made = ratio(best.samples, one.samples)
    return TIED if made is not None and made.known and not made.differs else ""
