"""`musebench plot`: pictures of reports."""

from __future__ import annotations

from pathlib import Path

import click

from musebench.cli.plugins import pass_registry
from musebench.core.errors import UsageError
from musebench.core.options import nearest
from musebench.plugin.registry import Registry

UNASKED = ("pool", "steps", "requests", "latency")


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


@click.command("plot")
@click.argument("reports", nargs=-1, required=True, metavar="REPORT...", type=click.Path(path_type=Path))
@click.option(
    "--kind",
    "kinds",
    metavar="KIND,...",
    help="pool, steps, requests, latency, rates, pareto, or all. Without it: the first four, and pareto of "
    "two reports or more.",
)
@click.option(
    "--out",
    default="pictures",
    show_default=True,
    type=click.Path(path_type=Path),
    help="The folder for KIND.svg and KIND.png.",
)
@click.option(
    "--format", "forms", metavar="FORMAT,...", default="svg,png", show_default=True, help="svg, png or both."
)
@click.option(
    "--run", "run", type=click.IntRange(min=1), default=1, show_default=True, help="Which repeat is drawn."
)
@pass_registry
def command(
    registry: Registry,
    reports: tuple[Path, ...],
    kinds: str | None,
    out: Path,
    forms: str,
    run: int,
) -> None:
    """Draw pictures of REPORTs (needs the extra `plot`), titled with the conditions they were made under.

    \b
    pool      rows of the pool against cells in use over time, and where it grew
    steps     time of a step against its tokens and its sequences, by kind, above its floor
    requests  what each request was doing when: waiting, prefill, decode, preempted
    latency   how ITL and TTFT are distributed
    rates     latency and throughput over the rate at which requests arrive
    pareto    throughput against TTFT and against memory; what nothing else beats

    \b
    Examples:
      musebench plot results/eager.json results/graph.json
      musebench plot results/rate-*.json --kind rates,pareto --format svg --out figures
    """
    # Reports bring numpy along; imported here, so that --help stays fast.
    from musebench.report.compare import labels_of
    from musebench.report.entries import entries
    from musebench.report.files import read
    from musebench.report.plots import FORMATS, KINDS, Settings, require_kind, write

    asked = _names(kinds or "")
    if not asked:
        asked = [*UNASKED, *(["pareto"] if len(reports) > 1 else [])]
    elif asked == ["all"]:
        asked = list(KINDS)
    chosen = [require_kind(name) for name in asked]
    formats = _names(forms)
    for form in formats:
        if form not in FORMATS:
            raise UsageError(f"there is no picture format {form!r}; {nearest(form, FORMATS)}")
    if not formats:
        raise UsageError(f"--format names no format; {' and '.join(FORMATS)} are there")
    checks = list(registry.made("check").values())
    shown = entries([read(path) for path in reports], labels_of(reports), checks)
    settings = Settings(run - 1)
    for kind in chosen:
        for path in write(kind, shown, out, formats, settings):
            click.echo(path)
