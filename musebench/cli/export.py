"""`musebench export`: compile a model ahead of time into a package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from musebench.cli.plugins import pass_registry
from musebench.plugin.registry import Registry, parse_settings


@click.command("export")
@click.option(
    "--model",
    default="bundled",
    show_default=True,
    help="bundled, a folder or hub id, a .gguf file, or random:SHAPE.",
)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The package, NAME.pt2.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda or cuda:N; it runs there only.")
@click.option("--dtype", help="float32, bfloat16 or float16. Without it: float32 on a CPU, else bfloat16.")
@click.option("--fewest", type=int, help="Fewest tokens of a prefill.  [default: 2]")
@click.option("--most", type=int, help="Most tokens of a prefill.  [default: 512]")
@click.option(
    "--most-sequences", type=int, default=64, show_default=True, help="Most sequences of a forward."
)
@click.option("--most-decodes", type=int, help="Most sequences of a decode. Without it: all of them.")
@click.option(
    "--widths",
    metavar="N,N,...",
    help="Static widths, each a method, in place of ranges: 1,2,4,8. What runs is padded to the next.",
)
@click.option(
    "--weights",
    type=click.Choice(["embed", "external"]),
    default="embed",
    show_default=True,
    help="Inside of the package, or in NAME.safetensors beside it.",
)
@click.option("--max-context", type=int, help="Most tokens of a sequence. Without it: the model's own most.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of random weights.")
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="model.NAME=VALUE",
    help="An option of the model; `musebench list model` shows them.",
)
@pass_registry
def command(
    registry: Registry,
    sets: tuple[str, ...],
    fewest: int | None,
    most: int | None,
    most_sequences: int,
    most_decodes: int | None,
    widths: str | None,
    **choices: Any,
) -> None:
    """Compile a model ahead of time into a package of methods: `decode`, one token a sequence, and `prefill`.

    What each method takes in one forward is fixed here. --executor exported runs the package, on the same
    kind of device and with the same torch, and `musebench list --program` shows what it is.

    \b
    Examples:
      musebench export --out bundled.pt2
      musebench export --model model.gguf --out model.pt2 --fewest 5 --most 256
      musebench export --out ladder.pt2 --widths 1,2,4,8,16 --weights external
      musebench run capitals --executor exported --set executor.program=bundled.pt2
      musebench run capitals --model bundled.pt2 --executor exported
    """
    from musebench.export.bounds import bounds_of
    from musebench.export.exporter import ExportOptions, export

    bounds = bounds_of(fewest, most, most_sequences, most_decodes, widths)
    options = ExportOptions(bounds=bounds, settings=parse_settings(list(sets)), **choices)
    facts = export(options, registry, lambda line: click.echo(line, err=True))
    seconds = ", ".join(f"{part} {value:.1f} s" for part, value in facts.costs.seconds.items())
    size = options.out.stat().st_size
    click.echo(f"{options.out}: {len(facts.methods)} methods, {size / 2**20:.1f} MiB; {seconds}")
