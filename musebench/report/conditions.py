"""The conditions under which reports were made, side by side: what differs makes their numbers differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from musebench.report.codec import encode
from musebench.report.schema import Report

MOST_NAMED = 4
"""Labels that a warning names for one value."""


def condition_warnings(reports: Sequence[Report], labels: Sequence[str]) -> list[str]:
    """One line for each condition that differs, with who has what; and for code with uncommitted changes."""
    every = [conditions_of(report) for report in reports]
    names = list(dict.fromkeys(name for conditions in every for name in conditions))
    if len({(report.conditions.model.source, report.conditions.model.dtype) for report in reports}) > 1:
        names = [name for name in names if not name.startswith("model facts")]  # other models, other facts
    made = []
    for name in names:
        holders: dict[str, list[str]] = {}
        for label, conditions in zip(labels, every, strict=True):
            holders.setdefault(shown(conditions.get(name)), []).append(label)
        if len(holders) > 1:
            parts = [f"{value} ({_named(who)})" for value, who in holders.items()]
            made.append(f"{name} differs: {'; '.join(parts)}")
    dirty = [label for label, report in zip(labels, reports, strict=True) if report.conditions.dirty]
    if dirty:
        made.append(f"code with uncommitted changes: {_named(dirty)}")
    return made


def _named(labels: Sequence[str]) -> str:
    """Each once, as several reports may have one label; of many the first, and how many more there are."""
    once = list(dict.fromkeys(labels))
    more = [f"{len(once) - MOST_NAMED} more"] if len(once) > MOST_NAMED else []
    return ("; " if any("," in one for one in once) else ", ").join([*once[:MOST_NAMED], *more])


def conditions_of(report: Report) -> dict[str, Any]:
    """Every condition by name. The command is left out, it names what was chosen; and what was measured of
    the device, which differs from one time to the next."""
    values = encode(report.conditions)
    del values["command"], values["dirty"]
    values.pop("ceilings", None)
    return _flat(values)


def _flat(values: dict[str, Any], before: str = "") -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in values.items():
        made |= _flat(value, f"{before}{name} ") if isinstance(value, dict) else {before + name: value}
    return made


def shown(value: Any, missing: str = "unknown") -> str:
    """A condition or an option as a person reads it; `missing` for None."""
    if isinstance(value, dict):
        return ", ".join(f"{key}={shown(entry, missing)}" for key, entry in value.items())
    return missing if value is None else str(value)
