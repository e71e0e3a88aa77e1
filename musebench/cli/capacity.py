"""`musebench capacity`: the highest rate at which a simulated device keeps its objectives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from musebench.cli.format import format_option, render
from musebench.cli.load import Load
from musebench.cli.plugins import pass_registry
from musebench.plugin.registry import Registry, parse_settings

COLUMNS = ("rate", "share", "goodput", "output tokens/s", "kept")
REQUESTS = 2000


@click.command("capacity")
@click.argument("workload", required=False)
@click.option("--device", default="sim:h200", show_default=True, help="sim:PROFILE.")
@click.option("--model", required=True, help="A shape's name, such as llama-3.1-8b.")
@click.option("--trace", metavar="FILE", help="A recorded trace instead of WORKLOAD.")
@click.option(
    "--requests",
    type=click.IntRange(1),
    default=REQUESTS,
    show_default=True,
    help="Most requests of each trial.",
)
@click.option(
    "--slo", multiple=True, required=True, metavar="NAME=LIMIT", help="ttft, tpot or e2e, as ttft=500ms."
)
@click.option(
    "--share",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.99,
    show_default=True,
    help="Of the requests, that has to meet all objectives.",
)
@click.option(
    "--precision",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.01,
    show_default=True,
    help="How near the rate that fails is to the one that holds, as a share of it.",
)
@click.option(
    "--arrivals",
    type=click.Choice(["poisson", "constant", "gamma", "recorded"]),
    default="poisson",
    show_default=True,
    help="recorded: a trace's own times, scaled to each rate.",
)
@click.option(
    "--burstiness", type=click.FloatRange(0, min_open=True), metavar="CV", help="Of gamma arrivals."
)
@click.option("--dtype", help="Without it: bfloat16.")
@click.option("--executor", default="graph", show_default=True, help="How a step is launched.")
@click.option("--pool", default="geometric", show_default=True, help="How many rows there are.")
@click.option("--scheduler", default="chunked", show_default=True, help="Who runs in the next step.")
@click.option("--max-sessions", type=int, help="Most sequences at a time.")
@click.option("--max-context", type=int, help="Most tokens of a sequence.")
@click.option("--token-budget", type=int, help="Most tokens of a step.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of arrivals and lengths.")
@click.option("--set", "sets", multiple=True, metavar="KIND.NAME=VALUE", help="An option of a component.")
@format_option
@pass_registry
def command(
    registry: Registry,
    workload: str | None,
    slo: tuple[str, ...],
    sets: tuple[str, ...],
    form: str,
    trace: str | None,
    requests: int,
    share: float,
    precision: float,
    arrivals: str,
    burstiness: float | None,
    **choices: Any,
) -> None:
    """Find the highest rate at which a simulated device keeps its objectives, and what gives out above it.

    \b
    Examples:
      musebench capacity mixed --model llama-3.1-8b --slo ttft=500ms --slo tpot=50ms
      musebench capacity --trace trace.csv --model llama-3.1-8b --device sim:h100 --slo e2e=20s --share 0.95
    """  # fmt: skip
    from musebench.capacity import find_capacity
    from musebench.core.errors import UsageError
    from musebench.report.slo import parse
    from musebench.run import RunOptions

    def arriving(rate: float) -> Mapping[str, Any]:
        return Load(arrivals=arrivals, rate=rate, burstiness=burstiness).settings()["arrivals"]

    arriving(1.0)  # a mistake is said before anything runs
    settings: dict[str, dict[str, Any]] = {**parse_settings(list(sets))}
    settings["workload"] = {**settings.get("workload", {}), "requests": requests}
    named = Load(trace=trace).workload(workload)
    if named is None:
        raise UsageError("there is no load; name a workload, or give --trace FILE")
    # Graphs are captured and the pool has grown before the run that counts.
    options = RunOptions(named, settings=settings, slo=parse(slo), warmup=1, **choices)
    found = find_capacity(options, registry, arriving, share, precision)
    rows = [
        {
            "rate": trial.rate if form == "json" else f"{trial.rate:.4g}/s",
            "share": trial.share if form == "json" else f"{trial.share:.2%}",
            "goodput": trial.attainment.goodput if form == "json" else _short(trial.attainment.goodput),
            "output tokens/s": trial.output_tokens_per_second
            if form == "json" else _short(trial.output_tokens_per_second),
            "kept": trial.share >= share if form == "json" else "yes" if trial.share >= share else "no",
        }
        for trial in sorted(found.trials, key=lambda trial: trial.rate)
    ]  # fmt: skip
    click.echo(render(COLUMNS, rows, form))
    if form in ("json", "csv"):
        return
    if found.best is None:
        click.echo(f"no rate keeps {share:.2%}: requests miss it even alone")
    elif found.worse is None:
        click.echo(f"{requests:,} requests keep {share:.2%} at every rate up to {found.best.rate:.4g}/s")
    else:
        click.echo(
            f"{found.best.rate:.4g} requests/s keep {share:.2%}; at {found.worse.rate:.4g} "
            f"{found.worse.share:.2%} do, and what gives out is {found.gave_out}"
        )


def _short(value: float | None) -> str | None:
    return None if value is None else f"{value:,.4g}"
