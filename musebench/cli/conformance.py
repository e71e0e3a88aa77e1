"""`musebench conformance`: a component held to the laws of its kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from musebench.cli.format import format_option, render
from musebench.cli.plugins import pass_registry
from musebench.core.errors import UsageError
from musebench.core.options import nearest
from musebench.plugin.component import Component
from musebench.plugin.registry import Registry

COLUMNS = ("kind", "name", "law", "outcome", "what")


@click.command("conformance")
@click.argument("names", nargs=-1, required=True, metavar="NAME")
@click.option("--kind", help="Its kind, where a name has several: executor, pool, scheduler, ...")
@click.option("--set", "sets", multiple=True, metavar="OPTION=VALUE", help="An option of the component.")
@click.option("--seed", default=0, show_default=True, help="Of the histories that are drawn.")
@click.option("--examples", type=click.IntRange(1), help="Histories a component; none: as its kind needs.")
@click.option(
    "--file", type=click.Path(path_type=Path), help="A right file of its format, for a reader of traces."
)
@format_option
@pass_registry
@click.pass_context
def command(
    context: click.Context,
    registry: Registry,
    names: tuple[str, ...],
    kind: str | None,
    sets: tuple[str, ...],
    seed: int,
    examples: int | None,
    file: Path | None,
    form: str,
) -> None:
    """Hold the component NAME to every law of its kind, over random histories on the CPU.

    One line a law; one that is broken is told in words, with the shortest history that breaks it. The same
    laws are pytest classes in musebench.testing. Exits with 0 when none is broken, 1 when one is, 2 for a
    mistake.

    \b
    Examples:
      musebench conformance geometric
      musebench conformance fixed --kind pool --set context=64 --examples 1000
      musebench conformance chunked --seed 7
      musebench conformance azure --file trace.csv
    """
    # The kit brings numpy and the engine along; imported here, so that --help stays fast.
    from musebench.testing.kit import HOLD, Trial

    values = dict(_pair(text) for text in sets)
    rows: list[dict[str, Any]] = []
    broken = []
    for component in _components(registry, _one(names, tuple(HOLD)), kind, tuple(HOLD)):
        findings = HOLD[component.kind](Trial(component, values, examples, seed, file))
        broken += [(component, finding) for finding in findings if finding.outcome == "broken"]
        rows += [
            {
                "kind": component.kind,
                "name": component.name,
                "law": finding.law.name,
                "outcome": finding.outcome,
                "what": finding.sentence(),
                "history": list(finding.history),
            }
            for finding in findings
        ]
    if form == "json":
        click.echo(json.dumps(rows, indent=2))
    else:
        click.echo(render(COLUMNS, [{key: row[key] for key in COLUMNS} for row in rows], form))
        for component, finding in broken:
            click.echo(f"\n{component.where} breaks {finding.text()}")
    context.exit(1 if broken else 0)


def _pair(text: str) -> tuple[str, str]:
    option, equals, value = text.partition("=")
    if not (equals and option.strip()):
        raise UsageError(f"--set {text!r} is not OPTION=VALUE, as in --set factor=1.5")
    return option.strip().replace("-", "_"), value.strip()


def _one(names: tuple[str, ...], kinds: tuple[str, ...]) -> str:
    """The one name; a kind before it, as `list` and `show` take it, is answered with its option."""
    if len(names) == 1:
        return names[0]
    if len(names) == 2 and names[0] in kinds:
        way = f"say: musebench conformance {names[1]} --kind {names[0]}"
    else:
        way = "run it once for each"
    raise UsageError(f"conformance takes one NAME, not {len(names)} ({', '.join(names)}); {way}")


def _components(registry: Registry, name: str, kind: str | None, kinds: tuple[str, ...]) -> list[Component]:
    """Those of that name, of one kind or of all that have laws."""
    if kind is not None:
        if kind not in kinds:
            raise UsageError(f"there are no laws for kind {kind!r}; {nearest(kind, kinds)}")
        return [registry.get(kind, name)]
    known = [component.name for each in kinds for component in registry.components(each)]
    if name not in known:
        raise UsageError(f"nothing that has laws is named {name!r}; {nearest(name, known)}")
    return [
        registry.get(each, name) for each in kinds if any(c.name == name for c in registry.components(each))
    ]
