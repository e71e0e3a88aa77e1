"""`musebench matrix`: the cross product of choices, a process a run, and one table."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from musebench.cli.format import format_option
from musebench.cli.plugins import pass_registry
from musebench.core.errors import UsageError
from musebench.plugin.failing import foreign, naming
from musebench.plugin.registry import Registry, parse_settings

if TYPE_CHECKING:
    from musebench.matrix.drive import CellResult, Finished

LISTS = ("model", "device", "dtype", "executor", "pool", "scheduler")


@click.command("matrix")
@click.argument("workload", default="capitals")
@click.option("--model", metavar="MODEL,...", help="What to open, as in `musebench run`.")
@click.option("--device", metavar="DEVICE,...", help="cpu, cuda, cuda:N, ...")
@click.option("--dtype", metavar="DTYPE,...", help="float32, bfloat16, float16.")
@click.option("--executor", metavar="NAME,...", help="How a step is launched.")
@click.option("--pool", metavar="NAME,...", help="How many rows there are, and when they grow.")
@click.option("--scheduler", metavar="NAME,...", help="Who runs in the next step.")
@click.option("--repeat", type=int, default=3, show_default=True, help="Runs of each combination.")
@click.option("--warmup", type=int, default=1, show_default=True, help="Runs inside each process before it.")
@click.option("--max-sessions", type=int, help="Most sequences at a time.")
@click.option("--max-context", type=int, help="Most tokens of a sequence.")
@click.option("--token-budget", type=int, help="Most tokens of a step.")
@click.option("--seed", type=int, help="Of random weights, prompts and lengths.")
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="KIND.NAME=VALUE",
    help="An option of a component, in all runs; of the launcher: launcher.NAME.",
)
@click.option(
    "--timeout", type=float, metavar="SECONDS", help="Stop a run that takes longer; its cell is lost."
)
@click.option("--on", default="local", show_default=True, metavar="LAUNCHER", help="Where the runs happen.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder of reports. Without it: results/matrix-WORKLOAD.",
)
@click.option("--retry", is_flag=True, help="Run cells again that crashed or took too long before.")
@click.option("--columns", metavar="METRIC,...", help="Of the table; `musebench compare --help` names some.")
@click.option("--sort", metavar="METRIC", help="The best in this first.")
@click.option(
    "--progress/--no-progress", default=None, help="Show a progress bar. Without it: on a terminal."
)
@format_option
@pass_registry
@click.pass_context
def command(
    context: click.Context,
    registry: Registry,
    workload: str,
    repeat: int,
    warmup: int,
    sets: tuple[str, ...],
    timeout: float | None,
    on: str,
    out: Path | None,
    retry: bool,
    columns: str | None,
    sort: str | None,
    progress: bool | None,
    form: str,
    **given: Any,
) -> None:
    """Run WORKLOAD in every combination of the choices, and show all in one table with the best marked.

    Each run is a process of its own, and combinations take turns (A B A B), so that drift hits all alike. One
    that is impossible, crashes or takes too long costs its cell, shown with the reason. The folder holds one
    report a run: the same command after an interruption, even by kill -9, runs only what is missing. P marks
    combinations that no other beats in throughput, memory and TTFT together.

    Exits with 1 when a cell crashed, took too long or is INVALID; an impossible combination is no failure.

    \b
    Examples:
      musebench matrix mixed-small --pool geometric,fixed --scheduler static,continuous,chunked
      musebench matrix mixed --model random:llama-3.2-1b --device cuda --executor eager,graph --repeat 5
    """
    # Reports bring numpy along; imported here, so that --help stays fast.
    from musebench.matrix.drive import drive, missing_tasks, results
    from musebench.matrix.plan import make_matrix
    from musebench.matrix.state import Folder
    from musebench.report.numbers import metric
    from musebench.report.ranking import COLUMNS

    if timeout is not None and not timeout > 0:
        raise UsageError(f"--timeout is {timeout:g}; seconds above 0 are wanted")
    metrics = [metric(name) for name in (COLUMNS if columns is None else columns.split(","))]
    if sort is not None:
        metric(sort)
    launching = registry.get("launcher", on)
    launcher = launching.make(parse_settings(sets).get("launcher", {}))
    sets = tuple(text for text in sets if not text.lstrip().startswith("launcher."))
    axes = {axis: given[axis].split(",") for axis in LISTS if given[axis] is not None}
    matrix = make_matrix(workload, axes, repeat, _fixed(warmup, sets, given), registry)
    folder = Folder(out if out is not None else Path("results") / f"matrix-{Path(workload).stem}")
    with folder.locked(_say_waiting) as held:
        if retry:
            for task in matrix.tasks:
                folder.forget_failure(task)
        missing = len(missing_tasks(matrix, folder))
        if missing < len(matrix.tasks):
            click.echo(f"{len(matrix.tasks) - missing} of {len(matrix.tasks)} runs are there", err=True)
        with _shown(progress, missing, timeout) as on_finished, naming(foreign([launching])):
            drive(matrix, folder, launcher, held, timeout, on_finished)
        found = results(matrix, folder)
    checks = list(registry.made("check").values())
    click.echo(_table(found, metrics, sort, checks, form))
    click.echo(f"reports: {folder.path}", err=True)
    context.exit(_exit_code(found, checks))


def _fixed(warmup: int, sets: tuple[str, ...], given: dict[str, Any]) -> list[str]:
    made = ["--warmup", str(warmup)]
    for name in ("max_sessions", "max_context", "token_budget", "seed"):
        if given[name] is not None:
            made += [f"--{name.replace('_', '-')}", str(given[name])]
    return made + [text for setting in sets for text in ("--set", setting)]


def _table(
    found: list[CellResult], metrics: list[Any], sort: str | None, checks: list[Any], form: str
) -> str:
    from musebench.report.compare import compare_groups
    from musebench.report.failing import order
    from musebench.report.groups import Group
    from musebench.report.ranking import Missing, Ranking, rank

    ran = [one for one in found if one.reports]
    missing = [Missing(_given_up(one), _reason(one)) for one in found if one.failure or not one.reports]
    if not ran:
        return Ranking(tuple(metrics), (), tuple(missing)).show(form)
    groups = [Group(one.cell.label, tuple(one.reports)) for one in ran]
    comparison = compare_groups(groups, [0] * len(groups), groups[0].label, checks)
    chosen = None if sort is None else order(comparison, sort, range(len(groups)))
    return rank(comparison, metrics, chosen, missing).show(form)


def _given_up(one: CellResult) -> str:
    """Its label, and after how many runs it failed where it has some."""
    return f"{one.cell.label}, after run {len(one.reports)}" if one.reports else one.cell.label


def _reason(one: CellResult) -> str:
    if one.failure is None:
        return "not run"
    return f"impossible: {one.failure.reason}" if one.failure.impossible else one.failure.reason


def _exit_code(found: list[CellResult], checks: list[Any]) -> int:
    from musebench.report.verdict import judge

    failed = any(one.failure is not None and not one.failure.impossible for one in found)
    reports = [report for one in found for report in one.reports]
    return 1 if failed or not all(one.valid for one in judge(reports, checks)) else 0


def _say_waiting() -> None:
    click.echo("waiting for a run of this folder that is still going", err=True)


@contextmanager
def _shown(wanted: bool | None, total: int, timeout: float | None) -> Iterator[Any]:
    """A callback for each run that ends: moves a bar, or writes a line where there is no terminal."""
    if not (sys.stderr.isatty() if wanted is None else wanted):
        done = 0

        def write(finished: Finished) -> None:
            nonlocal done
            done += 1
            click.echo(_line(finished, done), err=True)

        yield write
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("runs,"),
        TimeRemainingColumn(), TextColumn("left"),
    )  # fmt: skip
    # Its default looks 30 seconds back, less than one run may take.
    with Progress(*columns, console=Console(stderr=True), speed_estimate_period=86_400) as bar:
        task = bar.add_task("matrix", total=total)

        def move(finished: Finished) -> None:
            done = int(bar.tasks[0].completed) + 1
            bar.update(task, completed=done, total=done + finished.left, description=finished.task.cell.label)
            if finished.failure is not None:
                bar.console.print(_line(finished, done), markup=False)

        yield move


def _line(finished: Finished, done: int) -> str:
    task = finished.task
    end = "" if finished.failure is None else f": {finished.failure.reason}"
    return f"{done}/{done + finished.left} {task.cell.label} ({task.repeat}), {finished.seconds:.1f} s{end}"
