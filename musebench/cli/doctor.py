"""`musebench doctor`: what this machine has, and what is missing."""

from __future__ import annotations

import click

from musebench.cli.format import format_option, render
from musebench.cli.plugins import pass_registry
from musebench.plugin.registry import Registry

COLUMNS = ("what", "state", "detail")


@click.command("doctor")
@format_option
@pass_registry
def command(registry: Registry, form: str) -> None:
    """Show what this machine has, what works on it, and what does not and why.

    The state of each line is ok, missing (with what to do about it), broken, or info. Plugin packages stand
    at the end. The exit code is 0 whatever was found: the states are for reading, or for --format json.

    \b
    Examples:
      musebench doctor
      musebench doctor --format json
    """
    # Probing imports torch and transformers; imported here, so that --help stays fast.
    from musebench.measure.doctor import diagnose

    rows = [dict(zip(COLUMNS, fact.row, strict=True)) for fact in diagnose(registry)]
    click.echo(render(COLUMNS, rows, form))
