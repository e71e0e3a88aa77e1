"""`musebench doctor`: what this machine has, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator

import click

from musebench.cli.format import format_option, render
from musebench.cli.plugins import pass_registry
from musebench.plugin.hookspecs import KINDS
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

    facts = [*(fact.row for fact in diagnose()), *plugin_rows(registry)]
    rows = [dict(zip(COLUMNS, fact, strict=True)) for fact in facts]
    click.echo(render(COLUMNS, rows, form))


def plugin_rows(registry: Registry) -> Iterator[tuple[str, str, str]]:
    """A line a package with what it registered, then what is wrong with packages and names."""
    packages: dict[str, list[str]] = {}
    for kind in KINDS:
        for component in registry.components(kind):
            packages.setdefault(component.origin, []).append(f"{kind} {component.name}")
        for conflict in registry.conflicts(kind):
            yield "plugin", "broken", conflict
    for origin, components in packages.items():
        yield "plugin", "ok", f"{origin}: {', '.join(components)}"
    for problem in registry.problems:
        yield "plugin", "broken", problem.line
