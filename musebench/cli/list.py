"""`musebench list`: the components there are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from musebench.cli.format import format_option, render
from musebench.cli.plugins import pass_registry
from musebench.cli.program import show_program
from musebench.core.errors import MusebenchError, UsageError
from musebench.core.options import OptionInfo
from musebench.plugin.component import Component
from musebench.plugin.hookspecs import KINDS
from musebench.plugin.registry import Registry

COLUMNS = ("kind", "name", "option", "default", "what", "package", "version")


@click.command("list")
@click.argument("kind", required=False)
@click.option(
    "--program",
    type=click.Path(path_type=Path),
    help="Show what is in a package of musebench export instead.",
)
@format_option
@pass_registry
def command(registry: Registry, kind: str | None, program: Path | None, form: str) -> None:
    """Show the components there are, their options and the packages they come from.

    KIND is one of executor, pool, scheduler, router, backend, engine, model, workload, trace, check, command
    and launcher; without it all are shown. --set KIND.OPTION=VALUE sets an option where a command runs
    components. Names that two packages claim, and components that cannot be loaded, come last, on standard
    error.

    \b
    Examples:
      musebench list
      musebench list pool
      musebench list --format json
      musebench list --program model.pt2
    """
    if program is not None:
        if kind is not None:
            raise UsageError(f"list shows components of kind {kind!r} or the package of --program; give one")
        click.echo(show_program(program, form))
        return
    kinds = [kind] if kind else list(KINDS)
    components = [component for each in kinds for component in registry.components(each)]
    described, warnings = _described(components)
    if form == "json":
        click.echo(json.dumps([_entry(*one) for one in described], indent=2))
    else:
        rows = [row for one in described for row in _rows(*one)]
        click.echo(render(COLUMNS, rows, form))
    for line in [*warnings, *(line for each in kinds for line in registry.conflicts(each))]:
        click.echo(f"musebench: warning: {line}", err=True)


def _described(components: list[Component]) -> tuple[list[tuple[Component, list[OptionInfo]]], list[str]]:
    """Each with its options, and one line for each whose options cannot be loaded."""
    described, warnings = [], []
    for component in components:
        options: list[OptionInfo] = []
        try:
            options = component.describe()
        except MusebenchError as error:
            warnings.append(str(error))
        described.append((component, options))
    return described, warnings


def _entry(component: Component, options: list[OptionInfo]) -> dict[str, Any]:
    return {
        "kind": component.kind,
        "name": component.name,
        "summary": component.summary,
        "package": component.package,
        "version": component.version,
        "options": [
            {
                "name": option.name,
                "type": option.type,
                "default": option.default,
                "unit": option.unit or None,
                "help": option.help,
            }
            for option in options
        ],
    }


def _rows(component: Component, options: list[OptionInfo]) -> Iterator[dict[str, Any]]:
    """One row for the component, then one for each of its options."""
    row = {
        "kind": component.kind,
        "name": component.name,
        "option": None,
        "default": None,
        "what": component.summary,
        "package": component.package,
        "version": component.version,
    }
    yield row
    for option in options:
        unit = f" ({option.unit})" if option.unit else ""
        yield {
            **row,
            "option": option.name,
            "default": _setting(option.default),
            "what": f"{option.help}{unit}",
        }


def _setting(default: Any) -> str:
    """A default as `--set` takes it."""
    if isinstance(default, tuple):
        return ",".join(_setting(part) for part in default)
    return str(default).lower() if default is None or isinstance(default, bool) else str(default)
