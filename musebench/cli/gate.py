"""`musebench gate`: exact numbers against committed baselines."""

from __future__ import annotations

from pathlib import Path

import click

from musebench.cli.plugins import pass_registry
from musebench.core.errors import InputError
from musebench.plugin.registry import Registry

LINES = 20


@click.command("gate")
@click.argument("folder", default="results/baselines/gate", type=click.Path(path_type=Path))
@click.option("--update", is_flag=True, help="Make what comes out now the baselines.")
@click.option("--require-baseline", is_flag=True, help="Fail where a run has no baseline yet.")
@pass_registry
@click.pass_context
def command(
    context: click.Context, registry: Registry, folder: Path, update: bool, require_baseline: bool
) -> None:
    """Run what FOLDER's gate.yaml lists, and hold everything exact against the baselines beside it.

    Exact are steps, forwards, growths, bytes, how requests ended, and on a simulated device every time. Times
    of a real clock are not judged, so that the answer is the same on every machine and every time. Exits with
    1 when anything differs.

    \b
    Examples:
      musebench gate
      musebench gate --update
    """
    # torch comes with these; imported here, so that --help stays fast.
    from musebench.gate import hold
    from musebench.gate import update as make

    if update:
        for path in make(folder, registry):
            click.echo(f"baseline: {path}")
        return
    failed = missing = False
    for held in hold(folder, registry):
        if held.missing:
            missing = True
            click.echo(
                f"{held.entry.name}: there is no baseline at {held.entry.baseline}, so nothing was compared; "
                f"to make one: musebench gate {folder} --update"
            )
        elif held.differences:
            failed = True
            more = len(held.differences) - LINES
            lines = [*held.differences[:LINES], *([f"and {more:,} more"] if more > 0 else [])]
            click.echo(f"{held.entry.name}: differs from its baseline")
            click.echo("\n".join(f"  {line}" for line in lines))
        else:
            click.echo(f"{held.entry.name}: the same as its baseline")
    if missing and require_baseline:
        raise InputError("a baseline is missing, and --require-baseline was given")
    context.exit(1 if failed else 0)
