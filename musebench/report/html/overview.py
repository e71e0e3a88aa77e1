"""The table of all reports, a row each, and the points of the picture over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from musebench.report import metrics, roofline, series
from musebench.report.entries import Entry, facts
from musebench.report.schema import Report
from musebench.report.table import Value, change, pretty

CHOSEN = ("executor", "pool", "scheduler")
GIVEN = ("device", "model", "workload", "musebench", "torch", "transformers", "commit")
"""Facts that are a column where they differ: before the numbers what was chosen, after them the rest."""


@dataclass(frozen=True)
class Column:
    """One column: its `unit` as in `musebench.report.table.Row`, whether it is `speed`, and `value` of a
    report. `axis` says that the picture of all reports may have it as an axis, `better` whether more (1) or
    less (-1) of it is better, or neither (0)."""

    name: str
    unit: str
    value: Callable[[Report, series.Point], Value]
    speed: bool = False
    axis: bool = False
    better: int = 0


@dataclass(frozen=True)
class Cell:
    """What a cell shows; `sort` is what it is sorted by (None: last), `change` a percent against the
    baseline, `struck` the speed of an INVALID report."""

    text: str
    sort: Value = None
    change: str = ""
    struck: bool = False


@dataclass(frozen=True)
class OverviewRow:
    label: str
    valid: bool
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Overview:
    """`columns` are (name, whether it is numbers)."""

    columns: tuple[tuple[str, bool], ...]
    rows: tuple[OverviewRow, ...]


def _pool(name: str) -> Callable[[Report, series.Point], Value]:
    return lambda report, _: getattr(metrics.pool_totals(report), name, None)


def _wrong(report: Report, _: series.Point) -> Value:
    outcome = metrics.outcome(report)
    return outcome.wrong if outcome.expected else None


def _share(report: Report, _: series.Point) -> Value:
    decodes = roofline.step_kinds(report).get("decode")
    return None if decodes is None or decodes.share is None else 100.0 * decodes.share


NUMBERS: tuple[Column, ...] = (
    Column("output tokens/s", "/s", lambda _, point: point.output_tokens_per_second, True, True, 1),
    Column("TTFT p50", "s", lambda _, point: point.ttft.p50, True, True, -1),
    Column("TTFT p99", "s", lambda _, point: point.ttft.p99, True, True, -1),
    Column("TPOT p50", "s", lambda _, point: point.tpot.p50, True, True, -1),
    Column("ITL p99", "s", lambda _, point: point.itl.p99, True, True, -1),
    Column("tokens/J", "tokens/J", lambda report, _: metrics.tokens_per_joule(report), True, True, 1),
    Column("decodes: share of floor", "percent", _share, True, True, 1),
    Column("memory", "bytes", lambda _, point: point.memory_bytes, False, True, -1),
    Column("requests offered/s", "/s", lambda _, point: point.offered_per_second, False, True),
    Column("steps", "count", lambda report, _: metrics.step_totals(report).steps, False, True),
    Column("growths", "count", _pool("growths")),
    Column("preemptions", "count", lambda report, _: metrics.outcome(report).preemptions),
    Column("succeeded", "count", lambda report, _: metrics.outcome(report).succeeded),
    Column("answers wrong", "count", _wrong),
)
"""The columns of numbers, in order; those that no report has are left out."""


Numbers = list[tuple[Column, list[Value]]]
"""Columns with a value a report."""


def numbers(entries: Sequence[Entry]) -> Numbers:
    """Those of `NUMBERS` that a report has a value in."""
    every = [(entry.report, series.point(entry.report)) for entry in entries]
    made = [(column, [column.value(report, point) for report, point in every]) for column in NUMBERS]
    return [(column, values) for column, values in made if any(value is not None for value in values)]


def table(entries: Sequence[Entry], columns_of_numbers: Numbers, baseline: int) -> Overview:
    """Speed of an INVALID report is struck out, sorted last and compared with nothing; a report of another
    model or workload is not compared at all, one of another device not in speed."""
    every = [facts(entry.report) for entry in entries]
    differing = {name for name in (*CHOSEN, *GIVEN) if len({one.get(name) for one in every}) > 1}
    chosen = [name for name in CHOSEN if name in differing]
    given = [name for name in GIVEN if name in differing]
    columns = (
        ("report", False),
        ("verdict", False),
        *((name, False) for name in chosen),
        *((column.name, True) for column, _ in columns_of_numbers),
        *((name, False) for name in given),
    )
    rows = []
    for place, entry in enumerate(entries):
        verdict = "VALID" if entry.judgement.valid else "INVALID"
        cells = [Cell(verdict, verdict), *(_fact(every[place], name) for name in chosen)]
        for column, values in columns_of_numbers:
            value, start = values[place], values[baseline]
            struck = column.speed and not entry.judgement.valid
            compared = place != baseline and _same(every[place], every[baseline], ("model", "workload"))
            if column.speed:
                both_valid = entry.judgement.valid and entries[baseline].judgement.valid
                compared &= both_valid and _same(every[place], every[baseline], ("device",))
            cells.append(
                Cell(
                    pretty(value, column.unit),
                    None if struck else value,
                    _change(start, value) if compared else "",
                    struck and value is not None,
                )
            )
        cells += [_fact(every[place], name) for name in given]
        rows.append(OverviewRow(entry.label, entry.judgement.valid, tuple(cells)))
    return Overview(columns, tuple(rows))


def axes(columns_of_numbers: Numbers) -> list[str]:
    """Names of the columns that a point of the picture can have."""
    return [column.name for column, _ in columns_of_numbers if column.axis]


def points(entries: Sequence[Entry], columns_of_numbers: Numbers) -> dict[str, Any]:
    """For the picture: labels, verdicts, and by axis its unit and a value a report (null: no point)."""
    made: dict[str, Any] = {
        "labels": [entry.label for entry in entries],
        "valid": [entry.judgement.valid for entry in entries],
        "axes": {},
    }
    for column, values in columns_of_numbers:
        if column.axis:
            kept = [
                None if column.speed and not entry.judgement.valid else value
                for entry, value in zip(entries, values, strict=True)
            ]
            made["axes"][column.name] = {"unit": column.unit, "values": kept, "better": column.better}
    return made


def _fact(facts_of_one: dict[str, str], name: str) -> Cell:
    shown = facts_of_one.get(name, "").removeprefix(f"{name} ")
    return Cell(shown, shown)


def _same(one: dict[str, str], other: dict[str, str], names: Sequence[str]) -> bool:
    return all(one[name] == other[name] for name in names)


def _change(start: Value, value: Value) -> str:
    if not isinstance(start, int | float) or not isinstance(value, int | float) or not start:
        return ""
    percent = 100.0 * (value - start) / abs(start)
    return change(percent) if abs(percent) >= 0.05 else "same"
