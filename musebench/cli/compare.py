"""`musebench compare`: reports side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from musebench.cli.format import format_option
from musebench.cli.plugins import pass_registry
from musebench.core.errors import InputError, UsageError
from musebench.plugin.registry import Registry

if TYPE_CHECKING:
    from musebench.report.groups import Group, Source

MOST_COLUMNS = 6
"""Groups that stand side by side in a table; more are a line each."""


@click.command("compare")
@click.argument("reports", nargs=-1, required=True, metavar="REPORT...", type=click.Path(path_type=Path))
@click.option(
    "--baseline",
    metavar="REPORT|LABEL",
    help="What the others are compared with: a report or a folder of them (always groups of their own), or "
    "the label of a group. Without it: the first.",
)
@click.option(
    "--require-baseline",
    is_flag=True,
    help="Fail when the baseline's file is not there. Without this flag it is said, and nothing is compared.",
)
@click.option(
    "--by", multiple=True, metavar="FACTOR", help="Tell groups apart by this alone, as often as needed."
)
@click.option("--filter", "filters", multiple=True, metavar="EXPRESSION", help="Show these groups only.")
@click.option("--sort", metavar="METRIC", help="The best in this first.")
@click.option(
    "--columns",
    metavar="METRIC,...",
    help="One line a group, with these columns, the best marked. Without it: for more than 6 groups.",
)
@click.option("--values", is_flag=True, help="With --columns: values alone, as a matrix shows them.")
@click.option(
    "--fail-if",
    "fail_ifs",
    multiple=True,
    metavar="EXPRESSION",
    help="Exit with 1 when this holds: x is times the baseline, % more or less than it.",
)
@format_option
@pass_registry
@click.pass_context
def command(
    context: click.Context,
    registry: Registry,
    reports: tuple[Path, ...],
    baseline: str | None,
    require_baseline: bool,
    by: tuple[str, ...],
    filters: tuple[str, ...],
    sort: str | None,
    columns: str | None,
    values: bool,
    fail_ifs: tuple[str, ...],
    form: str,
) -> None:
    """Compare reports: choices, differing conditions, and every number against a baseline.

    REPORTs are the JSON files that runs write, gzipped or not, and folders of them. Reports of the same
    choices and conditions are repeats of one group; a group's label is what tells it from the others. Times
    are medians with the interval of their ratio, and a difference within the noise says so; counts and bytes
    are compared exactly. Speed in a report that is INVALID is struck out and compared with nothing.

    An EXPRESSION is NAME OPERATOR VALUE, joined by "and" and "or": the name of a metric (as in
    output_tokens_per_second, ttft_p99, growths, memory_bytes) or, to filter, of a choice (executor,
    pool.factor); < <= > >= = !=; a number with a unit (ms, MiB, ...), or relative: 0.97x, +3%.

    \b
    Examples:
      musebench compare results/eager.json results/graph.json
      musebench compare results/matrix --baseline 'eager, fixed' --sort ttft_p50
      musebench compare results/matrix --columns output_tokens_per_second,memory_bytes --filter 'pool = fixed'
      musebench compare new.json --baseline old.json --fail-if 'output_tokens_per_second < 0.97x'
      musebench compare results/*.json --format csv > all.csv
    """
    # Reports bring numpy along; imported here, so that --help stays fast.
    from musebench.report.compare import compare_groups, missing_baseline
    from musebench.report.failing import check_expression, fail_if, keep, order
    from musebench.report.groups import make_groups, read_sources
    from musebench.report.numbers import metric
    from musebench.report.ranking import COLUMNS, rank
    from musebench.report.table import DATA_FORMATS

    for text in fail_ifs:
        check_expression(text)
    metrics = None if columns is None else [metric(name) for name in columns.split(",")]
    if sort is not None:
        metric(sort)
    if require_baseline and baseline is None:
        raise UsageError("--require-baseline needs --baseline REPORT")
    if values and columns is None:
        raise UsageError("--values needs --columns: without it a table shows changes against its baseline")
    paths, base_path = list(reports), None
    if baseline is not None:
        base_path = _baseline_path(baseline, paths)
        if base_path is not None and not base_path.exists():
            if require_baseline:
                raise InputError(missing_baseline(base_path))
            click.echo(missing_baseline(base_path), err=True)
            return
        if base_path is not None and base_path not in paths:
            paths.insert(0, base_path)
    sources = read_sources(paths)
    groups = make_groups(sources, base_path, by)
    bases, name = _bases(groups, baseline, base_path)
    checks = list(registry.made("check").values())
    comparison = compare_groups(groups, bases, name, checks)
    kept = [set(keep(comparison, text)) for text in filters]
    chosen = [index for index in range(len(groups)) if all(index in one for one in kept)]
    if not chosen:
        raise UsageError(f"--filter leaves nothing of {len(groups)} groups")
    if sort is not None:
        chosen = order(comparison, sort, chosen)
    outcomes = [fail_if(comparison, text) for text in fail_ifs]
    if metrics is None and len(chosen) > MOST_COLUMNS and form not in DATA_FORMATS:
        metrics = [metric(name) for name in COLUMNS]
    if metrics is not None:
        click.echo(rank(comparison, metrics, chosen, with_remarks=not values).show(form))
    else:
        click.echo(comparison.only(chosen).show(form))
    for outcome in outcomes:
        for line in outcome.notes:
            click.echo(f"fail-if, not held against it: {line}", err=True)
    fired = [line for outcome in outcomes for line in outcome.fired]
    for line in fired:
        click.echo(f"fail-if: {line}", err=True)
    context.exit(1 if fired else 0)


def _baseline_path(text: str, paths: list[Path]) -> Path | None:
    """The file or folder that `--baseline` names, there or not; None when it is a label."""
    path = Path(text)
    named = path in paths or path.exists() or text.endswith((".json", ".json.gz"))
    return path if named else None


def _bases(groups: list[Group], baseline: str | None, path: Path | None) -> tuple[list[int | None], str]:
    """For each group the index of its baseline, and how tables call that."""
    from musebench.report.groups import counterparts, find_group

    if path is None:
        base = 0 if baseline is None else find_group(groups, baseline)
        return [base] * len(groups), groups[base].label
    those = [index for index, group in enumerate(groups) if _is_of(group.sources, path)]
    if len(those) == 1:
        return [those[0]] * len(groups), groups[those[0]].label
    return counterparts(groups, those), path.name or str(path)


def _is_of(sources: tuple[Source, ...], path: Path) -> bool:
    return any(source.argument == path or source.path == path for source in sources)
