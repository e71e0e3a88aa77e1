"""`musebench compare`: reports side by side."""

from __future__ import annotations

from pathlib import Path

import click

from musebench.cli.format import format_option
from musebench.cli.plugins import pass_registry
from musebench.core.errors import InputError, UsageError
from musebench.plugin.registry import Registry


@click.command("compare")
@click.argument("reports", nargs=-1, required=True, metavar="REPORT...", type=click.Path(path_type=Path))
@click.option(
    "--baseline",
    metavar="REPORT",
    type=click.Path(path_type=Path),
    help="The report that the others are compared with; a column of its own if it is none of them. "
    "Without it: the first.",
)
@click.option(
    "--require-baseline",
    is_flag=True,
    help="Fail when the baseline's file is not there. Without this flag it is said, and nothing is compared.",
)
@format_option
@pass_registry
def command(
    registry: Registry,
    reports: tuple[Path, ...],
    baseline: Path | None,
    require_baseline: bool,
    form: str,
) -> None:
    """Compare reports: choices, differing conditions, and every number against a baseline.

    REPORTs are the JSON files that runs write, gzipped or not. Speed in a report that is INVALID is struck
    out and compared with nothing. Differences are percents of the baseline's value.

    \b
    Examples:
      musebench compare results/eager.json results/graph.json
      musebench compare --baseline results/baselines/cpu.json results/new.json --format github
      musebench compare results/*.json --format csv > all.csv
    """
    # Reports bring numpy along; imported here, so that --help stays fast.
    from musebench.report.compare import compare, labels_of, missing_baseline
    from musebench.report.files import read

    paths = list(reports)
    if require_baseline and baseline is None:
        raise UsageError("--require-baseline needs --baseline REPORT")
    if baseline is not None and not baseline.exists():
        if require_baseline:
            raise InputError(missing_baseline(baseline))
        click.echo(missing_baseline(baseline), err=True)
        return
    if baseline is not None and baseline not in paths:
        paths.insert(0, baseline)
    labels = labels_of(paths)
    checks = [component.make({}) for component in registry.components("check")]
    against = None if baseline is None else labels[paths.index(baseline)]
    comparison = compare([read(path) for path in paths], labels, against, checks)
    click.echo(comparison.show(form))
