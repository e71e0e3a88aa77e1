"""Going through a matrix: what is missing is run, a cell that fails is given up, the rest goes on."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from musebench.core.errors import InputError
from musebench.matrix.launch import Ended, Launch, Launcher
from musebench.matrix.plan import Cell, Matrix, Task
from musebench.matrix.state import Failure, Folder
from musebench.report.files import read
from musebench.report.schema import Report

EXIT_DONE = (0, 1)
"""Of `musebench run`: it wrote a report, VALID or INVALID."""

EXIT_REFUSED = 2
ERROR = "musebench: error: "


@dataclass
class CellResult:
    """What there is of one cell: its reports in order of repeat, and why it was given up, if it was."""

    cell: Cell
    reports: list[Report] = field(default_factory=list)
    paths: list[Path] = field(default_factory=list)
    failure: Failure | None = None


@dataclass(frozen=True)
class Finished:
    """One run ended; `left` more are to come as far as known. `failure` None: it has a report."""

    task: Task
    seconds: float
    left: int
    failure: Failure | None


def missing_tasks(matrix: Matrix, folder: Folder) -> list[Task]:
    """Runs without a report, of cells that were not given up, in order."""
    given_up = {task.cell for task in matrix.tasks if not folder.done(task) and folder.failure(task)}
    return [task for task in matrix.tasks if task.cell not in given_up and not folder.done(task)]


def drive(
    matrix: Matrix,
    folder: Folder,
    launcher: Launcher,
    held: int,
    timeout_seconds: float | None = None,
    on_finished: Callable[[Finished], None] = lambda finished: None,
) -> None:
    """Run what is missing; every run leaves a report or a failure in the folder."""
    waiting = missing_tasks(matrix, folder)
    by_name = {task.name: task for task in waiting}
    given_up: set[Cell] = set()
    under_way: set[str] = set()

    def launches() -> Iterator[Launch]:
        while waiting:
            task = waiting.pop(0)
            if task.cell in given_up:
                continue
            folder.note_start(task)
            under_way.add(task.name)
            report = folder.report(task)
            arguments = (*task.arguments, "--out", str(report), "--no-progress", "--format", "json")
            yield Launch(task.name, arguments, report)

    for ended in launcher.launch(launches(), timeout_seconds, held):
        task = by_name[ended.launch.name]
        under_way.discard(task.name)
        failure = _failure(ended, timeout_seconds)
        if failure is not None:
            given_up.add(task.cell)
            folder.keep_failure(task, failure)
        left = len(under_way) + sum(one.cell not in given_up for one in waiting)
        on_finished(Finished(task, ended.seconds, left, failure))


def results(matrix: Matrix, folder: Folder) -> list[CellResult]:
    """What the folder holds of each cell, in order of the cross product."""
    made = {cell: CellResult(cell) for cell in matrix.cells}
    for task in matrix.tasks:
        result = made[task.cell]
        if folder.done(task):
            path = folder.report(task)
            result.reports.append(_read(path))
            result.paths.append(path)
        elif (failure := folder.failure(task)) is not None and result.failure is None:
            result.failure = failure
    return list(made.values())


def _read(path: Path) -> Report:
    try:
        return read(path)
    except InputError as error:
        raise InputError(f"{error}; remove the file, and the matrix runs it again") from error


def _failure(ended: Ended, timeout_seconds: float | None) -> Failure | None:
    """None where it has a report."""
    lines = [line.strip() for line in ended.errors.splitlines() if line.strip()]
    last = lines[-1] if lines else "it said nothing"
    if ended.code is None:
        return Failure(f"stopped after {timeout_seconds:g} s, it took too long")
    if ended.code in EXIT_DONE and ended.launch.report.exists():
        return None
    if ended.code == EXIT_REFUSED:
        said = next((line for line in reversed(lines) if line.startswith(ERROR)), last)
        return Failure(said.removeprefix(ERROR), impossible=True)
    if ended.code < 0:
        return Failure(f"crashed, killed by {_signal(-ended.code)}: {last}")
    return Failure(f"crashed with exit code {ended.code}: {last}")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
