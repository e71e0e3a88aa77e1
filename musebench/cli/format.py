"""How commands print: one `--format` for all of them, and rows of plain facts as text."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click
from tabulate import multiline_formats, tabulate

from musebench.report.table import DEFAULT_FORMAT, FORMATS, require_format

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

MISSING = "-"

BETWEEN = 3
"""Characters that a format puts between two columns, and around them all, at most."""

LEAST_WIDTH = 30
"""Characters of the widest column of a table, on a terminal that is too narrow for all."""


def _checked(context: click.Context, parameter: click.Parameter, value: str) -> str:
    return require_format(value)


def _completions(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    return [name for name in FORMATS if name.startswith(typed)]


format_option: Callable[[Decorated], Decorated] = click.option(
    "--format",
    "form",
    metavar="FORMAT",
    default=DEFAULT_FORMAT,
    show_default=True,
    callback=_checked,
    shell_complete=_completions,
    help="json, csv, or any table format of tabulate: plain, simple, github, grid, html, latex, rst, ...",
)
"""Decorates a command's function, which gets the format's name as `form`."""


def render(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], form: str) -> str:
    """Rows of text and counts, by column, in one of `musebench.report.table.FORMATS`.

    Missing values (None) are null in json, empty in csv and "-" in a table. Text is shown as it is: a
    version 1.10 does not become 1.1.
    """
    if form == "json":
        return json.dumps([{column: row[column] for column in columns} for row in rows], indent=2)
    if form == "csv":
        file = io.StringIO()
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return file.getvalue().rstrip("\n")
    cells = [[_cell(row[column], form) for column in columns] for row in rows]
    widths = _widths(columns, cells) if sys.stdout.isatty() and form in multiline_formats else None
    return tabulate(cells, columns, tablefmt=form, disable_numparse=True, maxcolwidths=widths)


def _widths(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    """Characters of each column, so that a row fits into the terminal: the widest gives what is too much."""
    widths = [max(len(row[place]) for row in (columns, *cells)) for place in range(len(columns))]
    widest = max(range(len(widths)), key=widths.__getitem__)
    over = sum(widths) + BETWEEN * len(widths) - shutil.get_terminal_size().columns
    widths[widest] -= min(max(over, 0), max(widths[widest] - LEAST_WIDTH, 0))
    return widths


def _cell(value: Any, form: str) -> str:
    if value is None or value == "":
        return MISSING
    text = " ".join(str(value).split())
    return text.replace("|", "\\|") if form in ("github", "pipe") else text
