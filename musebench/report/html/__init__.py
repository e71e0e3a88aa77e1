"""One self-contained HTML page of reports: nothing is fetched, no script or style from elsewhere.

`page` makes its text, `write` saves it. The parts: `overview` (a row a report), `data` (what the pictures of
a report draw, thinned), a template, a style sheet and two scripts beside this file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from musebench import __version__
from musebench.core.errors import UsageError
from musebench.core.whole import write_whole
from musebench.report.conditions import condition_warnings
from musebench.report.entries import Entry, common_facts
from musebench.report.html import data, overview

FOLDED_WARNINGS = 6
"""With more differing conditions than this, they are folded away behind their number."""

LONG_WARNING = 240
"""Letters of a condition that are shown at once: with many reports it names many of them."""


def page(entries: Sequence[Entry], baseline: int = 0) -> str:
    """The page's text; changes in the table are against the report at place `baseline`.

    Raises:
        UsageError: there is no report.
    """
    if not entries:
        raise UsageError("there is nothing to show; name at least one report")
    reports = [entry.report for entry in entries]
    numbers = overview.numbers(entries)
    budget = data.Budget.of(len(entries))
    details = [data.details(entry, budget) for entry in entries]
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(_part("page.html.j2"))
    return template.render(
        version=__version__,
        entries=entries,
        baseline=entries[baseline],
        common=common_facts(reports),
        warnings=condition_warnings(reports, [entry.label for entry in entries]),
        folded=FOLDED_WARNINGS,
        long=LONG_WARNING,
        table=overview.table(entries, numbers, baseline),
        axes=overview.axes(numbers),
        thinned=budget.note(reports),
        details=[_embedded(one) for one in details],
        points=_embedded(overview.points(entries, numbers)),
        style=Markup(_part("style.css")),
        script=Markup(_part("chart.js") + _part("page.js")),
    )


def write(entries: Sequence[Entry], path: Path, baseline: int = 0) -> Path:
    """Save the page.

    Raises:
        UsageError: as `page`.
        InputError: the place cannot be written.
    """
    return write_whole(path, page(entries, baseline).encode(), "the page")


def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _embedded(value: Any) -> Markup:
    """JSON that may stand inside a script element, whatever its texts say: no "<" is left in it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))
