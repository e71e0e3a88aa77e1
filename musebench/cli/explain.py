"""`musebench explain`: where the time of one step goes on a simulated device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from musebench.cli.format import format_option, render
from musebench.core.errors import UsageError

if TYPE_CHECKING:
    from musebench.backends.simulated.explain import ExplainedRow

PREFIX = "sim:"
MOST_DECODES = 1 << 20
MOST_TOKENS = 1 << 24
"""Of one sequence; pairs of query and cell are counted in 64 bits."""
COLUMNS = ("operation", "side", "count", "bytes", "flops", "seconds", "share", "bound")


@click.command("explain")
@click.option(
    "--device", default="sim:h200", show_default=True, help="sim:PROFILE, a profile's name or its file."
)
@click.option("--model", required=True, help="A shape's name, such as llama-3.1-8b.")
@click.option("--dtype", default="bfloat16", show_default=True, help="Of weights and cells.")
@click.option(
    "--decodes",
    type=click.IntRange(0, MOST_DECODES),
    default=1,
    show_default=True,
    help="Sequences that decode.",
)
@click.option(
    "--context", type=click.IntRange(1, MOST_TOKENS), default=1024, show_default=True,
    help="Cells that each of them attends to, the new one included.",
)  # fmt: skip
@click.option(
    "--prefill",
    type=click.IntRange(0, MOST_TOKENS),
    default=0,
    help="Tokens of one more sequence that prefills.",
)
@click.option(
    "--prefilled",
    type=click.IntRange(0, MOST_TOKENS),
    default=0,
    help="Its tokens that are computed already.",
)
@click.option(
    "--executor", default="eager", show_default=True,
    help="eager, graph, compiled, or 'compiled graph' (what serving engines do).",
)  # fmt: skip
@click.option("--tensor-parallel", type=click.IntRange(1), default=1, show_default=True, help="Devices.")
@click.option("--weights", help="Format of the weights, such as float8 or int4. Without it: the dtype.")
@format_option
def command(
    device: str,
    model: str,
    dtype: str,
    decodes: int,
    context: int,
    prefill: int,
    prefilled: int,
    executor: str,
    tensor_parallel: int,
    weights: str | None,
    form: str,
) -> None:
    """Show where the time of one step goes on a simulated device, and what bounds it.

    Rows of the side `device` add up to the step's time on the device; those of the side `host` are what the
    host does for it. Bytes, operations and seconds are those of all kernels of a row.

    \b
    Examples:
      musebench explain --model llama-3.1-8b --decodes 64 --context 1024 --executor graph
      musebench explain --device sim:a100-80g --model llama-3.1-70b --tensor-parallel 4 --prefill 2048
      musebench explain --device sim:my-profile.json --model qwen3-30b-a3b --weights int4 --format json
    """
    import numpy as np

    from musebench.backends.simulated.costs import costs_for
    from musebench.backends.simulated.explain import explain_step
    from musebench.backends.simulated.operations import PROGRAMS
    from musebench.backends.simulated.profile import open_profile
    from musebench.backends.simulated.shape import StepShape
    from musebench.core.options import nearest
    from musebench.models.shapes import shape as known_shape

    if not device.startswith(PREFIX):
        raise UsageError(f"--device {device!r} is not simulated; sim:PROFILE is wanted, such as sim:h200")
    if executor not in PROGRAMS:
        raise UsageError(f"there is no program {executor!r}; {nearest(executor, PROGRAMS)}")
    if not decodes and not prefill:
        raise UsageError("a step without a token; --decodes or --prefill of at least 1 is wanted")
    profile = open_profile(device.removeprefix(PREFIX))
    facts = known_shape(model.removeprefix("random:")).facts(dtype)
    costs = costs_for(facts, profile, tensor_parallel, weights)
    queries = np.array([1] * decodes + [prefill] * (prefill > 0), np.int64)
    contexts = np.array([context] * decodes + [prefilled + prefill] * (prefill > 0), np.int64)
    explained = explain_step(costs, StepShape(queries, contexts, len(queries)), executor)
    title = f"{facts.name} in {weights or dtype} on {tensor_parallel} x {profile.label}, {executor}"
    click.echo(shown(title, explained, form))


def shown(title: str, explained: Sequence[ExplainedRow], form: str) -> str:
    """The rows of one step as text: plain numbers in json and csv, else a table between its title and what
    bounds the step."""
    from musebench.backends.simulated.explain import DEVICE, step_bound

    if form in ("json", "csv"):
        rows = [{column: getattr(row, column) for column in COLUMNS} for row in explained]
        return render(COLUMNS, rows, form)
    cells = [
        {
            "operation": row.operation, "side": row.side, "count": f"{row.count:,}",
            "bytes": _scaled(row.bytes, "B"), "flops": _scaled(row.flops, ""),
            "seconds": _scaled(row.seconds, "s"), "share": f"{row.share:.1%}", "bound": row.bound,
        }
        for row in explained
    ]  # fmt: skip
    on_device = sum(row.seconds for row in explained if row.side == DEVICE)
    on_host = sum(row.seconds for row in explained if row.side != DEVICE)
    sides = f"device {_scaled(on_device, 's')}, host {_scaled(on_host, 's')}"
    return f"{title}\n{render(COLUMNS, cells, form)}\n{sides}: bound by {step_bound(explained)}"


def _scaled(value: float, unit: str) -> str:
    """Four digits and a decimal prefix; "-" for zero."""
    if value == 0:
        return "-"
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m")):
        if value >= factor:
            return f"{value / factor:.4g} {prefix}{unit}".strip()
    return f"{value * 1e6:.4g} µ{unit}"
