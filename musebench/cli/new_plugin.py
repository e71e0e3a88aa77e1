"""`musebench new-plugin`: a plugin package to start from."""

from __future__ import annotations

from pathlib import Path

import click

from musebench.cli.plugins import pass_registry
from musebench.core.errors import UsageError
from musebench.plugin.registry import Registry
from musebench.plugin.scaffold import SKETCHES, Scaffold


@click.command("new-plugin")
@click.argument("kind", type=click.Choice(list(SKETCHES)))
@click.argument("name")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path(),
    help="Folder in which the package's own folder is made; without it, here.",
)
@pass_registry
def command(registry: Registry, kind: str, name: str, out: Path) -> None:
    """Make a package musebench-NAME with one component, its tests, a README and a workflow for CI.

    It installs, and its tests pass, as it is: what it does is a first version to change.

    \b
    Examples:
      musebench new-plugin scheduler lifo
      musebench new-plugin pool segments --out plugins
    """
    for component in registry.components(kind):
        if component.name == name:
            raise UsageError(f"there is a {kind} {name!r}, of {component.origin}; choose another name")
    for line in registry.conflicts(kind):
        if line.startswith(f"{kind} {name!r} "):
            raise UsageError(f"{line}; choose another name")
    for path in Scaffold(kind, name).write(out):
        click.echo(path)
