"""Reports side by side: one column a report, differences in percent against one of them, the baseline.

What differs between their conditions is said first; what was chosen differently is shown as rows. A report
that is INVALID keeps its column, its speed struck out, and is compared with nothing in speed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

from musebench.core.errors import UsageError
from musebench.core.options import nearest
from musebench.report import metrics
from musebench.report.codec import encode
from musebench.report.conditions import condition_warnings, shown
from musebench.report.schema import Choice, Report
from musebench.report.table import DEFAULT_FORMAT, Row, Table, Value, require_format, text, to_csv, to_json
from musebench.report.verdict import Check, Judgement, judge

COMMON_COSTS = ("import", "load")
"""One-off costs that do not depend on the executor."""


@dataclass(frozen=True)
class Comparison:
    """`labels` name the columns, `baseline` is one of them; `warnings` are lines to be read first."""

    labels: tuple[str, ...]
    baseline: str
    warnings: tuple[str, ...]
    judgements: tuple[Judgement, ...]
    tables: tuple[Table, ...]

    def show(self, form: str = DEFAULT_FORMAT) -> str:
        """Its text in one of `musebench.report.table.FORMATS`.

        Raises:
            UsageError: there is no such format.
        """
        require_format(form)
        if form == "json":
            verdicts = {
                label: {"valid": one.valid, "reasons": list(one.reasons)}
                for label, one in zip(self.labels, self.judgements, strict=True)
            }
            return to_json(
                self.tables, baseline=self.baseline, warnings=list(self.warnings), verdicts=verdicts
            )
        if form == "csv":
            return to_csv(self.tables)
        lines = [f"warning: {warning}" for warning in self.warnings]
        lines += [
            f"{label}: {one.line()}"
            for label, one in zip(self.labels, self.judgements, strict=True)
            if not one.valid
        ]
        return "\n".join([*lines, *([""] if lines else []), text(self.tables, form)])


def compare(
    reports: Sequence[Report],
    labels: Sequence[str],
    baseline: str | None = None,
    checks: Iterable[Check] = (),
) -> Comparison:
    """Compare reports, a label each, against the one labelled `baseline` (None: the first).

    Raises:
        UsageError: no report, two of one label, or a baseline that is none of them.
    """
    labels = tuple(labels)
    if not reports:
        raise UsageError("there is nothing to compare; name at least one report")
    if len(set(labels)) != len(labels):
        raise UsageError(f"two reports have one label: {', '.join(labels)}")
    if baseline is not None and baseline not in labels:
        raise UsageError(f"baseline {baseline!r} is none of the reports; {nearest(baseline, labels)}")
    base = 0 if baseline is None else labels.index(baseline)
    judgements = judge(reports, checks)
    struck = frozenset(label for label, one in zip(labels, judgements, strict=True) if not one.valid)
    warnings = condition_warnings(reports, labels)
    if labels[base] in struck and len(reports) > 1:
        warnings.append(f"the baseline {labels[base]} is INVALID: no speed is compared with it")
    verdicts = tuple("VALID" if one.valid else "INVALID" for one in judgements)
    choices = Table("choices", labels, (Row("verdict", "", verdicts), *_choice_rows(reports)))
    rows, numbers = [], [_Numbers(report) for report in reports]
    for name, unit, speed, value in METRICS:
        values = tuple(value(one) for one in numbers)
        if any(one is not None for one in values):
            rows.append(_with_changes(Row(name, unit, values, speed), labels, base, struck))
    pay_off = _pay_off(numbers, labels, base, struck)
    if any(one is not None for one in pay_off.values):
        rows.append(pay_off)
    results = Table(f"against {labels[base]}", labels, tuple(rows), struck=struck)
    return Comparison(labels, labels[base], tuple(warnings), tuple(judgements), (choices, results))


def labels_of(paths: Sequence[Path | str]) -> tuple[str, ...]:
    """A label for each file, all different: its name without suffixes, else the whole path, else numbered."""
    names = [Path(path).name.removesuffix(".gz").removesuffix(".json") for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    if len(set(names)) < len(names):
        names = [f"{name} ({index})" for index, name in enumerate(names, 1)]
    return tuple(names)


def missing_baseline(path: Path | str) -> str:
    """One line for when the baseline to compare with is not there yet: says so, and how to make one."""
    return (
        f"there is no baseline at {path}, so nothing was compared; to make one, copy a report of this "
        f"machine there (cp REPORT.json {path})"
    )


class _Numbers:
    """All numbers of one report, each kind computed once."""

    def __init__(self, report: Report) -> None:
        self.report = report

    throughput = cached_property(lambda self: metrics.throughput(self.report))
    latencies = cached_property(lambda self: metrics.latencies(self.report))
    steps = cached_property(lambda self: metrics.step_totals(self.report))
    pool = cached_property(lambda self: metrics.pool_totals(self.report))
    outcome = cached_property(lambda self: metrics.outcome(self.report))

    @cached_property
    def tokens_per_joule(self) -> float | None:
        return metrics.tokens_per_joule(self.report)

    @cached_property
    def right(self) -> int | None:
        return self.outcome.right if self.outcome.expected else None

    @cached_property
    def wrong(self) -> int | None:
        return self.outcome.wrong if self.outcome.expected else None

    @cached_property
    def one_off_seconds(self) -> float | None:
        return sum(self.report.costs.seconds.values()) if self.report.costs.seconds else None

    @cached_property
    def preparation_seconds(self) -> float:
        """One-off time without import and load, which every executor has alike."""
        return sum(value for name, value in self.report.costs.seconds.items() if name not in COMMON_COSTS)

    @cached_property
    def device_peak(self) -> int | None:
        snapshot = self.report.memory.snapshots.get("peak")
        return None if snapshot is None else snapshot.peak


def _latency(name: str, field: str) -> Callable[[_Numbers], Any]:
    return lambda numbers: getattr(numbers.latencies[name], field)


def _pool(field: str) -> Callable[[_Numbers], Any]:
    return lambda numbers: getattr(numbers.pool, field, None)


METRICS: tuple[tuple[str, str, bool, Callable[[_Numbers], Any]], ...] = (
    ("output tokens/s", "/s", True, attrgetter("throughput.output_tokens_per_second")),
    ("prompt tokens/s", "/s", True, attrgetter("throughput.prompt_tokens_per_second")),
    ("requests/s", "/s", True, attrgetter("throughput.requests_per_second")),
    *((f"{name} {at}", "s", True, _latency(name, at)) for name in metrics.LATENCIES for at in ("p50", "p99")),
    ("output tokens/J", "tokens/J", True, attrgetter("tokens_per_joule")),
    ("device time", "s", True, attrgetter("steps.device_seconds")),
    ("host time", "s", True, attrgetter("steps.host_seconds")),
    ("one-off time", "s", True, attrgetter("one_off_seconds")),
    ("requests", "count", False, attrgetter("outcome.requests")),
    ("succeeded", "count", False, attrgetter("outcome.succeeded")),
    ("answers right", "count", False, attrgetter("right")),
    ("answers wrong", "count", False, attrgetter("wrong")),
    ("generated tokens", "count", False, attrgetter("outcome.generated_tokens")),
    ("steps", "count", False, attrgetter("steps.steps")),
    ("forwards", "count", False, attrgetter("steps.forwards")),
    ("padded tokens", "count", False, attrgetter("steps.padded_tokens")),
    ("preemptions", "count", False, attrgetter("outcome.preemptions")),
    ("pool bytes", "bytes", False, _pool("bytes")),
    ("pool passing peak", "bytes", False, _pool("peak_bytes")),
    ("most cells in use", "count", False, _pool("most_in_use")),
    ("growths", "count", False, _pool("growths")),
    ("bytes copied", "bytes", False, _pool("copied_bytes")),
    ("device peak", "bytes", False, attrgetter("device_peak")),
)
"""Rows of a comparison: name, unit, whether it is speed, and the value of one report."""


def _with_changes(row: Row, labels: Sequence[str], base: int, struck: frozenset[str]) -> Row:
    start = row.values[base]
    changes: list[float | None] = []
    for index, (label, value) in enumerate(zip(labels, row.values, strict=True)):
        judged = not (row.speed and (label in struck or labels[base] in struck))
        changes.append(_percent(start, value) if judged and index != base else None)
    return dataclasses.replace(row, changes=tuple(changes))


def _pay_off(numbers: Sequence[_Numbers], labels: Sequence[str], base: int, struck: frozenset[str]) -> Row:
    """Output tokens after which the one-off time beyond the baseline's is earned back.

    n tokens take one-off + n / rate; equal for both at n = (more one-off seconds) / (1 / rate of the
    baseline - 1 / rate). None where either is unknown or INVALID, or where it never is: as fast, or as dear.
    """
    start, values = numbers[base], list[Value]()
    for label, one in zip(labels, numbers, strict=True):
        made = None
        rates = start.throughput.output_tokens_per_second, one.throughput.output_tokens_per_second
        if rates[0] and rates[1] and rates[1] > rates[0] and not {label, labels[base]} & struck:
            more = one.preparation_seconds - start.preparation_seconds
            made = math.ceil(more / (1 / rates[0] - 1 / rates[1])) if more > 0 else None
        values.append(made)
    return Row("tokens to pay off", "count", tuple(values), speed=True)


def _percent(start: Value, value: Value) -> float | None:
    if not isinstance(start, int | float) or not isinstance(value, int | float) or not start:
        return None
    made = 100.0 * (value - start) / abs(start)
    return made if math.isfinite(made) else None


def _choice_rows(reports: Sequence[Report]) -> list[Row]:
    """Device and components by name; then limits, bounds and options, those that differ only."""
    rows = [Row("device", "", tuple(report.choices.device for report in reports))]
    kinds = ("executor", "pool", "scheduler")
    rows += [Row(kind, "", tuple(getattr(report.choices, kind).name for report in reports)) for kind in kinds]
    every = []
    for report in reports:
        choices: dict[str, Any] = {}
        for kind in ("backend", *kinds):
            choice: Choice = getattr(report.choices, kind)
            if choice.version is not None:
                choices[f"{kind} package"] = f"{choice.package} {choice.version}"
            choices |= {f"{kind}.{name}": value for name, value in choice.options.items()}
        for kind in ("limits", "bounds"):
            values = encode(getattr(report.choices, kind))
            choices |= {f"{kind}.{name}": value for name, value in values.items()}
        every.append(choices)
    for name in dict.fromkeys(name for choices in every for name in choices):
        values = tuple(shown(choices[name], "none") if name in choices else None for choices in every)
        if len(set(values)) > 1:
            rows.append(Row(name, "", values))
    return rows
