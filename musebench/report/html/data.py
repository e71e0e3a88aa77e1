"""What the pictures and the step explorer of one report draw: plain JSON values, thinned to a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from musebench.report import series, tables
from musebench.report.columns import RunData
from musebench.report.entries import Entry
from musebench.report.roofline import KINDS
from musebench.report.schema import Report
from musebench.report.table import pretty

STEPS_OF_A_PAGE = 40_000
REQUESTS_OF_A_PAGE = 20_000
SHARES = 120
"""Points of a curve of shares."""

DIGITS = 6
"""Significant digits of a number that is only drawn."""

STEP_COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("start", "start", "s"),
    ("end", "end", "s"),
    ("device_seconds", "device time", "s"),
    ("host_seconds", "host time", "s"),
    ("decode_tokens", "decode tokens", "count"),
    ("prefill_tokens", "prefill tokens", "count"),
    ("padded_tokens", "padded tokens", "count"),
    ("sequences", "sequences", "count"),
    ("forwards", "forwards", "count"),
    ("rows", "rows of the pool", "count"),
    ("in_use", "cells in use", "count"),
    ("generation", "generation of the pool", "count"),
    ("waiting", "waiting before it", "count"),
    ("running", "running before it", "count"),
)
"""Of a step: the report's column, the words for it, its unit."""


@dataclass(frozen=True)
class Budget:
    """Most steps and most requests of one report on a page."""

    steps: int
    requests: int

    @classmethod
    def of(cls, reports: int) -> Budget:
        """For a page of so many reports, so that it opens as fast with 200 as with two."""
        return cls(
            min(max(STEPS_OF_A_PAGE // reports, 100), 4000),
            min(max(REQUESTS_OF_A_PAGE // reports, 60), 1000),
        )

    def note(self, reports: Sequence[Report]) -> str:
        """One sentence on what was left out of the pictures; "" for nothing."""
        runs = [report.runs[0] for report in reports if report.runs]
        steps = max((len(run.steps) for run in runs), default=0)
        requests = max((len(run.requests) for run in runs), default=0)
        parts = []
        if steps > self.steps:
            parts.append(
                f"about {self.steps:,} of up to {steps:,} steps (growths and the slowest among them)"
            )
        if requests > self.requests:
            parts.append(f"about {self.requests:,} of up to {requests:,} requests")
        several = max((len(report.runs) for report in reports), default=0)
        if several > 1:
            parts.append(f"the first of up to {several:,} runs")
        return f"Pictures of a report show {' and '.join(parts)}; the tables count all." if parts else ""


def details(entry: Entry, budget: Budget) -> dict[str, Any]:
    """Everything that is shown of one report when it is chosen."""
    report = entry.report
    made: dict[str, Any] = {
        "label": entry.label,
        "headline": tables.headline(report),
        "valid": entry.judgement.valid,
        "reasons": list(entry.judgement.reasons),
        "facts": _facts(report),
        "tables": _tables(entry),
        "latency": {name: _shares(report, name) for name in ("ITL", "TTFT")},
    }
    if report.runs:
        run = report.runs[0]
        made |= {
            "steps": _steps(report, run, budget),
            "growths": _growths(run),
            "requests": _requests(run, budget),
        }
    return made


def _facts(report: Report) -> list[list[str]]:
    conditions = report.conditions
    rows = [
        ("device", conditions.device),
        ("driver", conditions.driver),
        ("processor", conditions.cpu),
        ("commit", conditions.commit),
        (
            "versions",
            ", ".join(f"{name} {version}" for name, version in conditions.versions.items() if version),
        ),
        ("command", " ".join(conditions.command)),
        ("warm-up, repeats", f"{conditions.warmup}, {conditions.repeats}"),
        ("made", report.created),
    ]
    return [[name, value] for name, value in rows if value]


def _tables(entry: Entry) -> list[dict[str, Any]]:
    made = []
    for table in tables.tables(entry.report, entry.judgement):
        if not table.rows:
            continue
        rows = []
        for row in table.rows:
            cells = []
            for column, value in zip(table.columns, row.values, strict=True):
                struck = table.is_struck(row, column) and value is not None
                cells.append([pretty(value, table.unit(row, column)), struck])
            rows.append([row.name, cells])
        columns = list(table.columns)
        made.append({"title": table.title, "columns": columns, "rows": rows, "notes": list(table.notes)})
    return made


def _steps(report: Report, run: RunData, budget: Budget) -> dict[str, Any]:
    steps = run.steps
    floor = series.floor_seconds(report, run)
    seconds, what = series.step_seconds(run)
    slowest = np.argsort(-seconds, kind="stable")[:10].tolist()
    places = series.thinned(
        len(steps), budget.steps, [*(run.pool.growths.step if run.pool is not None else ()), *slowest]
    )
    columns = {name: _picked(getattr(steps, name), places) for name, _, _ in STEP_COLUMNS}
    return {
        "row": places.tolist(),
        "count": len(steps),
        "what": what,
        "seconds": _picked(seconds.tolist(), places),
        "kind": series.step_kinds(run)[places].tolist(),
        "kinds": list(KINDS),
        "floor": None if floor is None else _picked(floor.tolist(), places),
        "columns": columns,
        "words": [list(words) for words in STEP_COLUMNS],
        "programs": {name: _picked(column, places) for name, column in steps.programs.items()},
        "slowest": [place for place in slowest if place in places],
    }


def _growths(run: RunData) -> list[list[Any]]:
    return [
        [_short(growth.seconds), growth.rows, growth.bytes, growth.copied_bytes, _short(growth.took_seconds)]
        for growth in series.growths(run)
        if not growth.first
    ]


def _requests(run: RunData, budget: Budget) -> dict[str, Any]:
    requests = run.requests
    order = sorted(range(len(requests)), key=lambda row: (requests.arrival_seconds[row], row))
    drawn = [order[place] for place in series.thinned(len(order), budget.requests)]
    line = {row: place for place, row in enumerate(drawn)}
    spans = [
        [line[span.row], series.PHASES.index(span.phase), _short(span.start), _short(span.end)]
        for span in series.spans(run)
        if span.row in line
    ]
    ends = [reason.value if reason is not None else "unfinished" for reason in requests.finish_reason]
    return {
        "ids": [requests.id[row] for row in drawn],
        "tokens": [[requests.prompt_tokens[row], requests.generated_tokens[row]] for row in drawn],
        "ends": [ends[row] for row in drawn],
        "messages": [requests.message[row] for row in drawn],
        "phases": list(series.PHASES),
        "spans": spans,
        "count": len(requests),
    }


def _shares(report: Report, name: str) -> list[list[float | None]]:
    values = series.samples(report, name)
    places = series.thinned(len(values), SHARES)
    return [[_short(values[place]), _short((place + 1) / len(values))] for place in places.tolist()]


def _picked(column: Sequence[Any], places: np.ndarray) -> list[Any]:
    return [_short(column[place]) for place in places.tolist()]


def _short(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
