"""A table of numbers with their units, and its text in any format.

Numbers stay as they are (SI units) until a text format shows them: "-" for missing, prefixes, separators.
`json` and `csv` keep the raw numbers. What an INVALID report says about speed is struck out in every text.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tabulate as tabulate_package

from musebench.core.errors import UsageError
from musebench.core.options import nearest

Value = int | float | str | bool | None

DATA_FORMATS = ("json", "csv")
TEXT_FORMATS = tuple(tabulate_package.tabulate_formats)
FORMATS = (*TEXT_FORMATS, *DATA_FORMATS)
DEFAULT_FORMAT = "github"

MISSING = "-"


@dataclass(frozen=True)
class Row:
    """One line of a table: `values` by column, all in `unit`.

    `unit` is one of "s", "bytes", "J", "W", "percent", "count", "/s" (a rate), "tokens/J", "x",
    "share" (of 1) and "" (text).
    `speed` says that an INVALID report's values in it are struck out. `changes`, where there are any, are
    percents against the baseline, a value each; `intervals` those that hold the true one, and `remarks` what
    a text shows of them behind each value ("" for nothing). What is not finite (a sum of numbers near the
    largest there are) is missing: None.
    """

    name: str
    unit: str
    values: tuple[Value, ...]
    speed: bool = False
    changes: tuple[float | None, ...] = ()
    remarks: tuple[str, ...] = ()
    intervals: tuple[tuple[float, float] | None, ...] = ()

    def __post_init__(self) -> None:
        if any(isinstance(value, float) and not math.isfinite(value) for value in self.values):
            finite = (None if isinstance(v, float) and not math.isfinite(v) else v for v in self.values)
            object.__setattr__(self, "values", tuple(finite))


@dataclass(frozen=True)
class Table:
    """Rows under `columns` (the column of names not counted). `struck` names the columns of INVALID reports;
    `counts` those columns whose values are counts, whatever the row's unit."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    struck: frozenset[str] = frozenset()
    counts: frozenset[str] = frozenset()
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.values) != len(self.columns):
                raise ValueError(f"row {row.name!r}: {len(row.values)} values, {len(self.columns)} columns")

    def only(self, chosen: Sequence[int]) -> Table:
        """The same with these columns alone, by index, in this order."""

        def some(cells: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(cells[index] for index in chosen) if cells else ()

        rows = tuple(
            dataclasses.replace(
                row,
                values=some(row.values),
                changes=some(row.changes),
                remarks=some(row.remarks),
                intervals=some(row.intervals),
            )
            for row in self.rows
        )
        return dataclasses.replace(self, columns=some(self.columns), rows=rows)

    def unit(self, row: Row, column: str) -> str:
        return "count" if column in self.counts else row.unit

    def is_struck(self, row: Row, column: str) -> bool:
        return row.speed and column in self.struck and column not in self.counts


def require_format(name: str) -> str:
    """The name, if it is a format.

    Raises:
        UsageError: it is none; names the nearest.
    """
    if name not in FORMATS:
        raise UsageError(f"there is no table format {name!r}; {nearest(name, FORMATS)}")
    return name


def pretty(value: Value, unit: str) -> str:
    """A value as a person reads it: "-" for None, "1.50 GiB", "2.34 ms", "1,234"."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return _one_line(value)
    if unit == "bytes":
        return _prefixed(value, ("B", "KiB", "MiB", "GiB", "TiB"), 1024)
    if unit == "s":
        return _seconds(value)
    if unit == "count":
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"
    if unit == "share":
        return f"{100 * value:.2f} %"
    if unit == "percent":
        return f"{value:.1f} %"
    if unit in ("J", "W", "x"):
        return f"{_digits(value)} {unit}"
    return _digits(value) if isinstance(value, float) else f"{value:,}"


def change(percent: float) -> str:
    """A difference as a person reads it: "+3.2 %"."""
    return f"{percent:+.1f} %"


def text(tables: Sequence[Table], form: str) -> str:
    """Tables one after another, in one of `TEXT_FORMATS`; a title over each, its notes below it."""
    blocks = []
    for table in tables:
        if not table.rows:
            continue
        places = range(len(table.columns))
        grid = [[table.title, *(_one_line(column) for column in table.columns)]]
        grid += [[_one_line(row.name), *(_cell(table, row, place) for place in places)] for row in table.rows]
        grid = [[_escaped(cell, form) for cell in line] for line in grid]
        lines = tabulate_package.tabulate(
            grid[1:],
            headers=grid[0],
            tablefmt=form,
            disable_numparse=True,
            colalign=("left", *["right"] * len(table.columns)),
        )
        blocks.append("\n".join([lines, *table.notes]))
    return "\n\n".join(blocks)


def to_json(tables: Sequence[Table], **more: Any) -> str:
    """One JSON object: `more`, and "tables" with raw values by row and column; null for missing."""
    return json.dumps({**more, "tables": [_plain(table) for table in tables]}, allow_nan=False, indent=2)


def to_csv(tables: Sequence[Table]) -> str:
    """One line a value: table, row, column, value, unit, valid, change_percent; empty for missing."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["table", "row", "column", "value", "unit", "valid", "change_percent"])
    for table in tables:
        for row in table.rows:
            for index, (column, value) in enumerate(zip(table.columns, row.values, strict=True)):
                valid = "no" if table.is_struck(row, column) else "yes"
                percent = row.changes[index] if row.changes else None
                writer.writerow(
                    [table.title, row.name, column, value, table.unit(row, column), valid, percent]
                )
    return out.getvalue().rstrip("\n")


def _plain(table: Table) -> dict[str, Any]:
    rows = []
    for row in table.rows:
        made: dict[str, Any] = {"name": row.name, "unit": row.unit}
        made["values"] = dict(zip(table.columns, row.values, strict=True))
        if row.changes:
            made["change_percent"] = dict(zip(table.columns, row.changes, strict=True))
        if any(row.intervals):
            made["interval_percent"] = dict(zip(table.columns, row.intervals, strict=True))
        if struck := [column for column in table.columns if table.is_struck(row, column)]:
            made["invalid"] = struck
        rows.append(made)
    return {"title": table.title, "rows": rows, "notes": list(table.notes)}


def _cell(table: Table, row: Row, index: int) -> str:
    column, value = table.columns[index], row.values[index]
    shown = pretty(value, table.unit(row, column))
    if table.is_struck(row, column):
        return shown if value is None else f"~~{shown}~~"
    if row.remarks:
        return f"{shown} ({row.remarks[index]})" if row.remarks[index] else shown
    percent = row.changes[index] if row.changes else None
    return shown if percent is None else f"{shown} ({change(percent)})"


def _seconds(value: float) -> str:
    if value == 0:
        return "0 s"
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if abs(value) * factor >= 1:
            return f"{_digits(value * factor)} {unit}"
    return f"{_digits(value * 1e9)} ns"


def _prefixed(value: float, units: Sequence[str], base: int) -> str:
    power = 0
    while abs(value) >= base ** (power + 1) and power < len(units) - 1:
        power += 1
    return f"{value / base**power:,.2f} {units[power]}" if power else f"{value:,} {units[0]}"


def _digits(value: float) -> str:
    """Three digits after the point below 10, two below 100, one below 1000, else none."""
    size = abs(value)
    if 0 < size < 0.01:
        return f"{value:.3g}"
    places = 3 if size < 10 else 2 if size < 100 else 1 if size < 1000 else 0
    return f"{value:,.{places}f}"


def _one_line(value: str) -> str:
    spaced = " ".join(value.split())
    return "".join(letter if letter.isprintable() else "?" for letter in spaced) or MISSING


def _escaped(cell: str, form: str) -> str:
    return cell.replace("|", "\\|") if form in ("pipe", "github") else cell
