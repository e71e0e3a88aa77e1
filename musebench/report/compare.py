"""Reports side by side: one column a group of them, differences against one of them, the baseline.

What differs between their conditions is said first; what was chosen differently is shown as rows. Times are
compared with their noise, counts and bytes exactly. A group with a report that is INVALID keeps its column,
its speed struck out, and is compared with nothing in speed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from musebench.core.errors import UsageError
from musebench.core.options import nearest
from musebench.report.codec import encode
from musebench.report.conditions import condition_warnings, shown
from musebench.report.difference import Difference, Measured, Samples, difference, varies
from musebench.report.groups import Group, labels_of, same_machine
from musebench.report.numbers import METRICS, Metric
from musebench.report.schema import Choice, Report
from musebench.report.table import DEFAULT_FORMAT, Row, Table, Value, require_format, text, to_csv, to_json
from musebench.report.verdict import Check, Judgement, judge

__all__ = ["Comparison", "compare", "compare_groups", "labels_of", "missing_baseline"]


@dataclass(frozen=True)
class Comparison:
    """`labels` name the columns, `baseline` is one of them; `warnings` are lines to be read first.

    `bases` holds for each group the index of the group that it is compared with (None: with nothing),
    `measured` every metric of every group by key, `judgements` one verdict a group.
    """

    labels: tuple[str, ...]
    baseline: str
    warnings: tuple[str, ...]
    judgements: tuple[Judgement, ...]
    tables: tuple[Table, ...]
    groups: tuple[Group, ...]
    bases: tuple[int | None, ...]
    measured: dict[str, tuple[Measured, ...]]

    def difference(self, metric: Metric, index: int) -> Difference | None:
        """Of group `index` against its base; None for a group that has none."""
        base = self.bases[index]
        if base is None or base == index:
            return None
        values = self.measured[metric.key]
        struck = not (self.judgements[base].valid and self.judgements[index].valid)
        judged = same_machine(self.groups[base].reports[0], self.groups[index].reports[0])
        return difference(metric, values[base], values[index], struck, judged)

    def only(self, chosen: Sequence[int]) -> Comparison:
        """The same with these groups' columns alone, in this order; what they are compared with stays."""
        if list(chosen) == list(range(len(self.groups))):
            return self
        places = {index: place for place, index in enumerate(chosen)}
        bases = [self.bases[index] for index in chosen]
        return dataclasses.replace(
            self,
            labels=tuple(self.labels[index] for index in chosen),
            judgements=tuple(self.judgements[index] for index in chosen),
            groups=tuple(self.groups[index] for index in chosen),
            bases=tuple(None if base is None else places.get(base) for base in bases),
            measured={key: tuple(all_[index] for index in chosen) for key, all_ in self.measured.items()},
            tables=tuple(table.only(chosen) for table in self.tables),
        )

    def show(self, form: str = DEFAULT_FORMAT) -> str:
        """Its text in one of `musebench.report.table.FORMATS`.

        Raises:
            UsageError: there is no such format.
        """
        require_format(form)
        if form == "json":
            return to_json(
                self.tables,
                baseline=self.baseline,
                warnings=list(self.warnings),
                verdicts=self.verdicts(),
                samples={group.label: len(group.reports) for group in self.groups},
            )
        if form == "csv":
            return to_csv(self.tables)
        lines = self.lines()
        return "\n".join([*lines, *([""] if lines else []), text(self.tables, form)])

    def verdicts(self) -> dict[str, dict[str, Any]]:
        """By label: whether it is valid, and the reasons why not."""
        return {
            label: {"valid": one.valid, "reasons": list(one.reasons)}
            for label, one in zip(self.labels, self.judgements, strict=True)
        }

    def lines(self) -> list[str]:
        """Warnings, and who is INVALID and why."""
        lines = [f"warning: {warning}" for warning in self.warnings]
        lines += [
            f"{label}: {one.line()}"
            for label, one in zip(self.labels, self.judgements, strict=True)
            if not one.valid
        ]
        return lines


def compare(
    reports: Sequence[Report],
    labels: Sequence[str],
    baseline: str | None = None,
    checks: Iterable[Check] = (),
) -> Comparison:
    """Compare reports, a column each, against the one labelled `baseline` (None: the first).

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
    groups = [Group(label, (report,)) for label, report in zip(labels, reports, strict=True)]
    base = 0 if baseline is None else labels.index(baseline)
    return compare_groups(groups, [base] * len(groups), groups[base].label, checks)


def compare_groups(
    groups: Sequence[Group],
    bases: Sequence[int | None],
    baseline: str,
    checks: Iterable[Check] = (),
    metrics: Sequence[Metric] | None = None,
) -> Comparison:
    """Compare groups, each with the one that `bases` names by index; `baseline` is what tables call it.

    `metrics` None shows those that are shown by default and have a value somewhere.
    """
    labels = tuple(group.label for group in groups)
    reports = [report for group in groups for report in group.reports]
    judged = iter(judge(reports, checks))
    judgements = tuple(_together([next(judged) for _ in group.reports]) for group in groups)
    struck = frozenset(label for label, one in zip(labels, judgements, strict=True) if not one.valid)
    unequal = len({len(report.runs) for report in reports if report.runs}) > 1
    samples = [Samples(group.reports, unequal) for group in groups]
    measured = {one.key: tuple(each.measured(one) for each in samples) for one in METRICS}
    comparison = Comparison(labels, baseline, (), judgements, (), tuple(groups), tuple(bases), measured)
    warnings = _warnings(comparison, unequal, struck)
    rows = [_row(comparison, metric) for metric in metrics or _with_values(comparison)]
    pay_off = _pay_off(comparison, samples)
    if metrics is None and any(one is not None for one in pay_off.values):
        rows.append(pay_off)
    results = Table(f"against {baseline}", labels, tuple(rows), struck=struck, notes=_notes(comparison))
    tables = (_choices(comparison), results)
    return Comparison(
        labels, baseline, tuple(warnings), judgements, tables, tuple(groups), tuple(bases), measured
    )


def missing_baseline(path: Path | str) -> str:
    """One line for when the baseline to compare with is not there yet: says so, and how to make one."""
    return (
        f"there is no baseline at {path}, so nothing was compared; to make one, copy a report of this "
        f"machine there (cp REPORT.json {path})"
    )


def _together(judgements: Sequence[Judgement]) -> Judgement:
    """Of a group: every reason of every report, once."""
    return Judgement(tuple(dict.fromkeys(reason for one in judgements for reason in one.reasons)))


def _with_values(comparison: Comparison) -> list[Metric]:
    return [
        metric
        for metric in METRICS
        if metric.shown and any(one.value is not None for one in comparison.measured[metric.key])
    ]


def _warnings(comparison: Comparison, unequal: bool, struck: frozenset[str]) -> list[str]:
    groups, labels = comparison.groups, comparison.labels
    every = [(report, group.label) for group in groups for report in group.reports]
    made = condition_warnings([report for report, _ in every], [label for _, label in every])
    if unequal:
        made.append("the numbers of repeats differ: counts and bytes are those of the first repeat")
    for base in dict.fromkeys(one for one in comparison.bases if one is not None):
        if labels[base] in struck and len(groups) > 1:
            made.append(f"the baseline {labels[base]} is INVALID: no speed is compared with it")
    for index, its in enumerate(comparison.bases):
        if its is None:
            made.append(f"{labels[index]} has no counterpart in {comparison.baseline}: compared with nothing")
        elif not same_machine(groups[its].reports[0], groups[index].reports[0]):
            made.append(
                f"{labels[index]} and its baseline {labels[its]} are from different machines: times are not "
                "judged, counts and bytes are"
            )
    return made


def _notes(comparison: Comparison) -> tuple[str, ...]:
    """How to read the differences of times: intervals, or that there are none."""
    rate = next(metric for metric in METRICS if metric.speed)
    made = [comparison.difference(rate, index) for index in range(len(comparison.groups))]
    ratios = [one.ratio for one in made if one is not None and one.ratio is not None]
    if any(one.known for one in ratios):
        lines = ["medians; in brackets the change, and where it lies in 95 of 100 cases"]
        if any(len(group.reports) == 1 and len(group.reports[0].runs) > 1 for group in comparison.groups):
            lines.append(
                "repeats inside one process: what differs from process to process is not in the intervals; "
                "several reports (musebench matrix) have it"
            )
        return tuple(lines)
    if ratios:
        return ("one sample of each: the noise is unknown; --repeat, or several reports, show it",)
    return ()


def _row(comparison: Comparison, metric: Metric) -> Row:
    values = comparison.measured[metric.key]
    made = [comparison.difference(metric, index) for index in range(len(values))]
    remarks = [
        one.remark() if one is not None
        else "" if not value.exact or value.steady
        else varies(value, metric.unit)
        for one, value in zip(made, values, strict=True)
    ]  # fmt: skip
    return Row(
        metric.name,
        metric.unit,
        tuple(value.value for value in values),
        metric.speed,
        changes=tuple(None if one is None else one.percent for one in made),
        remarks=tuple(remarks),
        intervals=tuple(None if one is None else one.interval_percent for one in made),
    )


def _pay_off(comparison: Comparison, samples: Sequence[Samples]) -> Row:
    """Output tokens after which the one-off time beyond the baseline's is earned back.

    n tokens take one-off + n / rate; equal for both at n = (more one-off seconds) / (1 / rate of the
    baseline - 1 / rate). None where either is unknown or INVALID, or where it never is: as fast, or as dear.
    """
    rates = [one.value for one in comparison.measured["output_tokens_per_second"]]
    preparation = [min(one.preparation_seconds for one in each.whole) for each in samples]
    values: list[Value] = []
    for index, base in enumerate(comparison.bases):
        made = None
        if base is not None and comparison.judgements[base].valid and comparison.judgements[index].valid:
            old, new = rates[base], rates[index]
            if isinstance(old, float) and isinstance(new, float) and new > old > 0:
                more = preparation[index] - preparation[base]
                made = math.ceil(more / (1 / old - 1 / new)) if more > 0 else None
        values.append(made)
    return Row("tokens to pay off", "count", tuple(values), speed=True)


def _choices(comparison: Comparison) -> Table:
    """Verdict and number of reports; device and components by name; then whatever of the choices differs."""
    reports = [group.reports[0] for group in comparison.groups]
    verdicts = tuple("VALID" if one.valid else "INVALID" for one in comparison.judgements)
    rows = [Row("verdict", "", verdicts)]
    counts = tuple(len(group.reports) for group in comparison.groups)
    if max(counts) > 1:
        rows.append(Row("reports", "count", counts))
    return Table("choices", comparison.labels, (*rows, *_choice_rows(reports)))


def _choice_rows(reports: Sequence[Report]) -> list[Row]:
    """Device and components by name; then limits, bounds and options, those that differ only."""
    rows = [Row("device", "", tuple(report.choices.device for report in reports))]
    kinds = ("executor", "pool", "scheduler")
    named = [report.choices.named() for report in reports]
    shown_kinds = ("engine", *kinds) if any("engine" in one for one in named) else kinds
    rows += [Row(kind, "", tuple(one.get(kind) for one in named)) for kind in shown_kinds]
    every = []
    for report in reports:
        choices: dict[str, Any] = {}
        for kind in ("backend", "engine", *kinds):
            choice: Choice | None = getattr(report.choices, kind)
            if choice is None:
                continue
            if choice.version is not None:
                choices[f"{kind} package"] = f"{choice.package} {choice.version}"
            choices |= {f"{kind}.{name}": value for name, value in choice.options.items()}
        for kind in ("limits", "bounds"):
            values = encode(getattr(report.choices, kind)) or {}
            choices |= {f"{kind}.{name}": value for name, value in values.items()}
        every.append(choices)
    for name in dict.fromkeys(name for choices in every for name in choices):
        values = tuple(shown(choices[name], "none") if name in choices else None for choices in every)
        if len(set(values)) > 1:
            rows.append(Row(name, "", values))
    return rows
