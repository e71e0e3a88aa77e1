"""`musebench history`: one metric over commits."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from musebench.cli.format import format_option
from musebench.cli.plugins import pass_registry
from musebench.core.errors import InputError
from musebench.plugin.registry import Registry

if TYPE_CHECKING:
    from musebench.report.groups import Source


@click.command("history")
@click.argument(
    "folders", nargs=-1, metavar="RESULTS...", type=click.Path(path_type=Path, exists=False, file_okay=False)
)
@click.option(
    "--metric", "name", default="output_tokens_per_second", show_default=True, help="What to follow."
)
@click.option(
    "--committed/--files-only",
    "with_git",
    default=True,
    show_default=True,
    help="Read earlier versions of the files from git's history too.",
)
@click.option("--plot", type=click.Path(path_type=Path), help="Draw it: a file ending with .png or .svg.")
@format_option
@pass_registry
def command(
    registry: Registry,
    folders: tuple[Path, ...],
    name: str,
    with_git: bool,
    plot: Path | None,
    form: str,
) -> None:
    """Show a metric over the commits that reports were made on, and where it changed for good.

    Reports below RESULTS (without any: results/baselines) of the same choices, workload and machine are a
    series, those of one commit a point. A change of times is marked where the levels before and after it
    differ by more than their noise, counts and bytes wherever they change. Commits are in git's order where
    git knows them, and by date otherwise.

    \b
    Examples:
      musebench history results/baselines
      musebench history results --metric ttft_p50 --plot ttft.svg
      musebench history results --metric growths --format csv
    """
    # Reports bring numpy along; imported here, so that --help stays fast.
    from musebench.report.committed import commit_order, committed
    from musebench.report.groups import read_sources
    from musebench.report.history import make_history
    from musebench.report.history_plot import draw
    from musebench.report.numbers import metric

    what = metric(name)
    places = folders or (Path("results/baselines"),)
    sources: list[Source] = []
    skipped: list[str] = []
    order: dict[str, int] = {}
    for folder in places:
        if not folder.is_dir():
            raise InputError(f"{folder} is no folder; name one that holds reports")
        found = committed(folder) if with_git else None
        if found is not None:
            sources += found.sources
            skipped += [f"left out: {line}" for line in found.skipped]
            order |= commit_order(folder)
        if found is None or not found.sources or _has_reports(folder):
            sources += read_sources([folder])
    checks = list(registry.made("check").values())
    history = make_history(sources, what, order, checks)
    history = dataclasses.replace(history, warnings=tuple(skipped))
    click.echo(history.show(form))
    if plot is not None:
        click.echo(f"plot: {draw(history, plot)}", err=True)


def _has_reports(folder: Path) -> bool:
    return any(path.name.endswith((".json", ".json.gz")) for path in folder.rglob("*.json*"))
