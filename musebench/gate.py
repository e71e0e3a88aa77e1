"""The runs whose exact numbers a repository holds against committed baselines.

A folder has `gate.yaml`, which lists runs by name with their options as `musebench run` has them,

    runs:
      capitals-fixed: {workload: capitals, pool: fixed, set: {pool.context: 128}}

and one report a run, `NAME.json`: its baseline.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from musebench.core.errors import InputError, UsageError
from musebench.core.options import nearest
from musebench.plugin.registry import Registry, parse_settings
from musebench.report import files
from musebench.report.gate import depends_on_speed, gate
from musebench.report.verdict import judge
from musebench.run import RunOptions, run
from musebench.workload.yamlfile import read_yaml

LIST = "gate.yaml"


@dataclass(frozen=True)
class Entry:
    """One run by name, and the file of its baseline."""

    name: str
    options: RunOptions
    baseline: Path


@dataclass(frozen=True)
class Held:
    """What came of one run: `differences` from its baseline (none: it passed), or no baseline at all."""

    entry: Entry
    missing: bool
    differences: tuple[str, ...]


def entries(folder: Path) -> list[Entry]:
    """The runs that the folder's list names, in its order.

    Raises:
        InputError: no list, or one that is not what it should be; names the file and the key.
    """
    path = folder / LIST
    if not path.is_file():
        raise InputError(f"{folder} has no {LIST}, which names the runs to hold; see results/README.md")
    values = read_yaml(path)
    runs = values.get("runs") if isinstance(values, dict) else None
    if not isinstance(runs, dict) or not runs or set(values) != {"runs"}:
        raise InputError(f"{path}: one key `runs` with a mapping of names to options is wanted")
    return [Entry(name, _options(path, name, given), folder / f"{name}.json") for name, given in runs.items()]


def hold(folder: Path, registry: Registry) -> Iterator[Held]:
    """Run each entry and hold it against its baseline; raises as `entries` and `musebench.run.run`."""
    for entry in entries(folder):
        if not entry.baseline.exists():
            yield Held(entry, True, ())
            continue
        baseline = files.read(entry.baseline)
        report = run(entry.options, registry)
        reasons = judge([report])[0].reasons
        yield Held(entry, False, (*(f"INVALID: {reason}" for reason in reasons), *gate(report, baseline)))


def update(folder: Path, registry: Registry) -> Iterator[Path]:
    """Run each entry and make its report the baseline.

    Raises:
        UsageError: a run is INVALID, which can be no baseline.
    """
    for entry in entries(folder):
        report = run(entry.options, registry)
        judgement = judge([report])[0]
        if not judgement.valid:
            raise UsageError(f"{entry.name} can be no baseline, it is {judgement.line()}")
        if depends_on_speed(report):
            raise UsageError(
                f"{entry.name} can be no baseline: its requests arrive over time on a real clock, so "
                "its steps depend on the machine's speed; let all arrive at once, or take a simulated device"
            )
        yield files.write(report, entry.baseline)


def _options(path: Path, name: str, given: Any) -> RunOptions:
    known = {field.name: field for field in dataclasses.fields(RunOptions) if field.name != "settings"}
    if not isinstance(given, dict):
        raise InputError(f"{path}: {name}: a mapping of options to values is wanted")
    values = dict(given)
    settings = values.pop("set", {}) or {}
    if not isinstance(settings, dict):
        raise InputError(f"{path}: {name}.set: a mapping of KIND.NAME to values is wanted")
    for key, value in values.items():
        if key not in known:
            raise InputError(f"{path}: {name} has no option {key!r}; {nearest(key, [*known, 'set'])}")
        wanted = str(known[key].type)
        if not _fits(value, wanted):
            raise InputError(f"{path}: {name}.{key} is {value!r}; {wanted} is wanted")
    parsed = parse_settings(f"{key}={value}" for key, value in settings.items())
    return RunOptions(**values, settings=parsed)


def _fits(value: Any, wanted: str) -> bool:
    kinds = {"str": str, "int": int, "bool": bool}
    return type(value) is kinds[wanted.removesuffix(" | None")]
