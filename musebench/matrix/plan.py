"""Which runs a matrix consists of, and in which order."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import musebench
from musebench.core.errors import UsageError
from musebench.measure import host
from musebench.plugin.registry import Registry
from musebench.workload.load import load_workload

AXES = ("model", "device", "dtype", "executor", "pool", "scheduler")
"""Choices that may have several values; the cross product varies the last fastest."""

MOST_RUNS = 100_000
"""Of one matrix; each is a process."""

COMPONENTS = ("executor", "pool", "scheduler")


@dataclass(frozen=True)
class Cell:
    """One combination: a value for each axis that was given. `label` names what varies."""

    label: str
    choices: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Task:
    """One run of a cell. `arguments` are those of `musebench`; `key` is over everything that decides its
    numbers: arguments, the workload's content, the repeat, musebench's version and commit."""

    cell: Cell
    repeat: int
    arguments: tuple[str, ...]
    key: str

    @property
    def name(self) -> str:
        """The stem of its files: readable, and different for every key."""
        readable = re.sub(r"[^\w.+-]+", "-", self.cell.label).strip("-.")[:80]
        return f"{readable}-{self.repeat}-{self.key[:12]}"


@dataclass(frozen=True)
class Matrix:
    """All cells and all tasks. Tasks go A B A B, a repeat of every cell before the next repeat of any, so
    that whatever drifts (clocks, heat, neighbours) hits all alike."""

    cells: tuple[Cell, ...]
    tasks: tuple[Task, ...]


def make_matrix(
    workload: str,
    axes: Mapping[str, Sequence[str]],
    repeats: int,
    fixed: Sequence[str],
    registry: Registry,
) -> Matrix:
    """The cross product of `axes` (of `AXES`; one that is missing keeps the run's own default).

    `fixed` are arguments of `musebench run` that all runs share.

    Raises:
        UsageError: an empty or doubled value, a component that does not exist, an unknown workload.
        InputError: a workload that cannot be read.
    """
    if repeats < 1:
        raise UsageError(f"--repeat is {repeats}; at least 1 is wanted")
    runs = repeats * math.prod(map(len, axes.values()))
    if runs > MOST_RUNS:
        raise UsageError(f"--repeat {repeats:,} makes {runs:,} runs; at most {MOST_RUNS:,} are possible")
    for axis, values in axes.items():
        _check_axis(axis, values, registry)
    opened = load_workload(workload)
    content = [opened.sha256, opened.defaults]
    given = [axis for axis in AXES if axis in axes]
    varied = [axis for axis in given if len(axes[axis]) > 1] or given[:1]
    cells = []
    for combination in itertools.product(*(axes[axis] for axis in given)):
        choices = tuple(zip(given, combination, strict=True))
        label = ", ".join(value for axis, value in choices if axis in varied) or workload
        cells.append(Cell(label, choices))
    commit = host.commit().commit
    tasks = []
    for repeat in range(1, repeats + 1):
        for cell in cells:
            chosen = [text for axis, value in cell.choices for text in (f"--{axis}", value)]
            arguments = ("run", workload, *chosen, *fixed)
            what = [arguments, repeat, content, musebench.__version__, commit]
            tasks.append(Task(cell, repeat, arguments, _hash(what)))
    return Matrix(tuple(cells), tuple(tasks))


def _check_axis(axis: str, values: Sequence[str], registry: Registry) -> None:
    if not values or not all(values):
        raise UsageError(
            f"--{axis} {','.join(values)!r}: an empty value; names, commas between them, are wanted"
        )
    if len(set(values)) < len(values):
        raise UsageError(f"--{axis} {','.join(values)!r} names a value twice; name each once")
    for value in values:
        if axis in COMPONENTS:
            registry.get(axis, value)
        elif axis == "device":
            registry.get("backend", value.partition(":")[0])


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
