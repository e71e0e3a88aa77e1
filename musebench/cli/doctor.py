"""`musebench doctor`: what this machine has, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import click

from musebench.cli.format import format_option, render
from musebench.cli.plugins import pass_registry
from musebench.core.errors import UsageError
from musebench.plugin.hookspecs import KINDS
from musebench.plugin.registry import Registry

COLUMNS = ("what", "state", "detail")


@click.command("doctor")
@click.option(
    "--measure",
    is_flag=True,
    help="Measure the device's copy bandwidth and matrix rate, about a second, and keep them for later runs.",
)
@click.option(
    "--device", default=None, help="What to measure: cpu, cuda or cuda:N.  [default: cuda if there]"
)
@click.option("--dtype", default=None, help="Of the product.  [default: bfloat16 on cuda, float32 on cpu]")
@format_option
@pass_registry
def command(registry: Registry, measure: bool, device: str | None, dtype: str | None, form: str) -> None:
    """Show what this machine has, what works on it, and what does not and why.

    The state of each line is ok, missing (with what to do about it), broken, or info. Plugin packages stand
    at the end. The exit code is 0 whatever was found: the states are for reading, or for --format json.

    \b
    Examples:
      musebench doctor
      musebench doctor --format json
      musebench doctor --measure --device cuda
    """
    if not measure and (device or dtype):
        raise UsageError("--device and --dtype say what to measure; add --measure")
    # Probing imports torch and transformers; imported here, so that --help stays fast.
    from musebench.measure.doctor import diagnose

    facts = [*(fact.row for fact in diagnose()), *plugin_rows(registry)]
    if measure:
        facts.append(_measured(device, dtype))
    rows = [dict(zip(COLUMNS, fact, strict=True)) for fact in facts]
    click.echo(render(COLUMNS, rows, form))


def _measured(device: str | None, dtype: str | None) -> tuple[str, str, str]:
    from musebench.backends.torch_device import open_device
    from musebench.measure.ceilings import default_device, measure_ceilings, store_ceilings
    from musebench.models.loading import torch_dtype

    device = device or default_device()
    dtype = dtype or ("float32" if device == "cpu" else "bfloat16")
    torch_dtype(dtype)
    name = str(open_device(device).conditions()["device"])
    found = measure_ceilings(device, dtype)
    store_ceilings(name, found)
    shown = (
        f"{found.copy_bytes_per_second / 1e9:,.0f} GB/s copied, {found.flops_per_second / 1e12:,.1f} TFLOP/s "
        f"in {dtype}; kept for later runs on it"
    )
    return f"ceilings of {name}", "ok", shown


def plugin_rows(registry: Registry) -> Iterator[tuple[str, str, str]]:
    """A line a package with how much it registered, then what is wrong with packages and names."""
    packages: dict[str, Counter[str]] = {}
    for kind in KINDS:
        for component in registry.components(kind):
            packages.setdefault(component.origin, Counter())[kind] += 1
        for conflict in registry.conflicts(kind):
            yield "plugin", "broken", conflict
    for origin, kinds in packages.items():
        counts = ", ".join(f"{count} {kind}{'s' * (count > 1)}" for kind, count in kinds.items())
        yield "plugin", "ok", f"{origin}: {counts}; musebench list names them"
    for problem in registry.problems:
        yield "plugin", "broken", problem.line
