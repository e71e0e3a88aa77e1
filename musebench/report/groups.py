"""Reports that belong together: repeats of one thing, told from the others by what differs.

Reports are one group when everything that they chose and every condition is the same (the command line, the
number of repeats and uncommitted changes aside). A group's label is made of the fewest factors that tell all
groups apart. Folders that hold the same things (before/ and after/) are told apart by the folder, and a
baseline is always a group of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from musebench.core.errors import InputError, UsageError
from musebench.core.options import nearest
from musebench.report.codec import encode
from musebench.report.conditions import conditions_of, shown
from musebench.report.files import read
from musebench.report.schema import Choice, Report

KINDS = ("executor", "pool", "scheduler")
PLAIN = (*KINDS, "device", "model", "dtype", "workload")
"""Factors whose value says what it is; in a label, others are NAME=VALUE."""

SUFFIXES = (".json", ".json.gz")
NOT_TOLD_APART = ("repeats",)
"""Conditions that differ within a group: warned of, and nothing else."""


@dataclass(frozen=True)
class Source:
    """A report, the file it was read from, and the argument (that file, or a folder) that named it."""

    report: Report
    path: Path
    argument: Path


@dataclass(frozen=True)
class Group:
    """Repeats of one thing under a label that no other group has."""

    label: str
    reports: tuple[Report, ...]
    sources: tuple[Source, ...] = ()


def read_sources(arguments: Sequence[Path]) -> list[Source]:
    """All reports that files and folders (with everything below them) hold, in order of name.

    Raises:
        InputError: a file that is no report, by name; a folder without one.
    """
    made = []
    for argument in arguments:
        if argument.is_dir():
            files = sorted(
                path
                for path in argument.rglob("*")
                if path.name.endswith(SUFFIXES) and not path.name.startswith(".") and path.is_file()
            )
            if not files:
                raise InputError(f"{argument} holds no report; `musebench run --out FILE` writes one")
            made += [Source(read(path), path, argument) for path in files]
        else:
            made.append(Source(read(argument), argument, argument))
    return made


def factors(report: Report) -> dict[str, str]:
    """Everything that was chosen and every condition, by name, as text; names as `--set` and tables have."""
    choices, conditions = report.choices, conditions_of(report)
    made: dict[str, Any] = {kind: choices.named().get(kind) for kind in KINDS}
    # A whole engine stands where an executor does: its name is what a row of a table is called by.
    made["executor"] = choices.launched_by
    made |= {"device": choices.device, "model": conditions.pop("model source")}
    made |= {"dtype": conditions.pop("model dtype"), "workload": conditions.pop("workload name")}
    for kind in (*KINDS, "backend", "engine"):
        choice: Choice | None = getattr(choices, kind)
        if choice is None:
            continue
        made |= {f"{kind}.{name}": value for name, value in choice.options.items()}
        made[f"{kind} package"] = f"{choice.package} {choice.version}"
    made |= {"replicas": choices.replicas, "router": choices.router and choices.router.name}
    if choices.router:
        made |= {f"router.{name}": value for name, value in choices.router.options.items()}
    for kind in ("bounds", "limits"):
        made |= {f"{kind}.{name}": value for name, value in (encode(getattr(choices, kind)) or {}).items()}
    made["device name"] = conditions.pop("device", None)
    made |= {name: value for name, value in conditions.items() if name not in NOT_TOLD_APART}
    return {name: shown(value, "none") for name, value in made.items()}


def machine(report: Report) -> tuple[Any, ...] | None:
    """What makes times comparable: processor, cores, device; None on a virtual clock, where none matters."""
    conditions = report.conditions
    if conditions.clock == "virtual":
        return None
    return conditions.cpu, conditions.cores, report.choices.device, conditions.device


def same_machine(one: Report, other: Report) -> bool:
    """Whether times of the two may be judged: other hardware was chosen on purpose (--device), or none is."""
    machines = machine(one), machine(other)
    return one.choices.device != other.choices.device or None in machines or machines[0] == machines[1]


def make_groups(
    sources: Sequence[Source], baseline: Path | None = None, by: Sequence[str] = ()
) -> list[Group]:
    """Groups in order of first report; `by` (names of factors) leaves all other differences inside them.

    Reports under the argument `baseline`, a file or a folder, are never in a group with others.

    Raises:
        UsageError: a factor in `by` that no report has.
    """
    every = [factors(source.report) for source in sources]
    names = list(dict.fromkeys(name for one in every for name in one))
    for name in by:
        if name not in names:
            raise UsageError(f"--by {name!r}: there is no such factor; {nearest(name, names)}")
    kept = list(by) or names
    keys = [tuple(one.get(name, "none") for name in kept) for one in every]
    place = [source.argument == baseline for source in sources]
    apart = _folders_hold_the_same(sources, keys) or _all_the_same(sources, keys)
    buckets: dict[Any, list[int]] = {}
    for index, (source, key) in enumerate(zip(sources, keys, strict=True)):
        where = str(source.argument) if apart or place[index] else ""
        buckets.setdefault((place[index], where, key), []).append(index)
    members = list(buckets.values())
    labels = _labels([[sources[i] for i in one] for one in members], [every[one[0]] for one in members], kept)
    return [
        Group(label, tuple(sources[i].report for i in one), tuple(sources[i] for i in one))
        for label, one in zip(labels, members, strict=True)
    ]


def labels_of(paths: Sequence[Path | str]) -> tuple[str, ...]:
    """A label for each file, all different: its name without suffixes, else the whole path, else numbered."""
    names = [Path(path).name.removesuffix(".gz").removesuffix(".json") for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    if len(set(names)) < len(names):
        names = [f"{name} ({index})" for index, name in enumerate(names, 1)]
    return tuple(names)


def _folders_hold_the_same(sources: Sequence[Source], keys: Sequence[Any]) -> bool:
    """Whether two folders were named that hold reports of one key: then it is the folders that differ."""
    where: dict[Any, set[Path]] = {}
    for source, key in zip(sources, keys, strict=True):
        if source.argument != source.path:
            where.setdefault(key, set()).add(source.argument)
    return any(len(folders) > 1 for folders in where.values())


def _all_the_same(sources: Sequence[Source], keys: Sequence[Any]) -> bool:
    """Whether nothing but the arguments differs: one that named several things wants them compared."""
    return len(set(keys)) == 1 and len({source.argument for source in sources}) > 1


def _labels(
    members: Sequence[Sequence[Source]], values: Sequence[dict[str, str]], names: Sequence[str]
) -> Sequence[str]:
    if all(len(one) == 1 and one[0].argument == one[0].path for one in members):
        return labels_of([one[0].path for one in members])
    chosen: list[str] = []
    told_apart = 1
    for name in names:
        kinds = len({tuple(one.get(each, "none") for each in [*chosen, name]) for one in values})
        if kinds > told_apart:
            chosen.append(name)
            told_apart = kinds
    for name in reversed(chosen):  # what a later one tells apart too is not needed
        others = [other for other in chosen if other != name]
        if len({tuple(one.get(each, "none") for each in others) for one in values}) == told_apart:
            chosen = others
    labels = [
        ", ".join(_shown_factor(name, one.get(name, "none")) for name in chosen) or "all" for one in values
    ]
    if told_apart < len(members):
        places = labels_of([one[0].argument for one in members])
        folders = [one[0].argument.name or str(one[0].argument) for one in members]
        used = folders if len(set(zip(labels, folders, strict=True))) == len(members) else places
        labels = [f"{place}: {label}" if chosen else place for place, label in zip(used, labels, strict=True)]
    return labels


def _shown_factor(name: str, value: str) -> str:
    short = value[:10] if name == "commit" or name.endswith("sha256") else value
    return short if name in PLAIN else f"{name}={short}"


def find_group(groups: Sequence[Group], label: str) -> int:
    """The index of the group with that label.

    Raises:
        UsageError: there is none; names the nearest.
    """
    labels = [group.label for group in groups]
    if label not in labels:
        raise UsageError(f"baseline {label!r} is none of the reports; {nearest(label, labels)}")
    return labels.index(label)


def counterparts(groups: Sequence[Group], baselines: Sequence[int]) -> list[int | None]:
    """For each group the one among `baselines` that chose the same; None where none did.

    The same: components and their options, device, model, dtype and workload. What a component is dimensioned
    by (limits, bounds) follows from these, and conditions may differ: they are what is compared.
    """
    where = {_choice_of(groups[index]): index for index in reversed(baselines)}
    return [where.get(_choice_of(group)) for group in groups]


def _choice_of(group: Group) -> tuple[tuple[str, str], ...]:
    kept = factors(group.reports[0])
    return tuple(
        (name, value)
        for name, value in kept.items()
        if name in PLAIN or name.partition(".")[0] in (*KINDS, "backend", "engine")
    )
