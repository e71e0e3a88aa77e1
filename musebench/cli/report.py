"""`musebench report`: the tables of reports, or one page of all of them."""

from __future__ import annotations

from pathlib import Path

import click

from musebench.cli.format import format_option
from musebench.cli.plugins import pass_registry
from musebench.core.errors import UsageError
from musebench.plugin.registry import Registry


@click.command("report")
@click.argument("reports", nargs=-1, required=True, metavar="REPORT...", type=click.Path(path_type=Path))
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write one self-contained page instead of printing tables.",
)
@click.option(
    "--baseline",
    metavar="REPORT",
    type=click.Path(path_type=Path),
    help="The one of the REPORTs that the page compares the others with. Without it: the first.",
)
@format_option
@pass_registry
def command(
    registry: Registry, reports: tuple[Path, ...], html: Path | None, baseline: Path | None, form: str
) -> None:
    """Show the tables of REPORTs as a run prints them, or put all of them on one page.

    The page holds verdicts, a table that sorts and filters, pictures that zoom, and every step; it loads
    nothing, works by keyboard and on a phone, and takes hundreds of reports.

    \b
    Examples:
      musebench report results/eager.json
      musebench report results/*.json --html report.html
    """
    # Reports bring numpy along; imported here, so that --help stays fast.
    from musebench.report.compare import labels_of
    from musebench.report.entries import entries
    from musebench.report.files import read
    from musebench.report.tables import show

    checks = list(registry.made("check").values())
    if html is None:
        if baseline is not None:
            raise UsageError("--baseline is for --html FILE; `musebench compare` prints a comparison")
        if form == "json" and len(reports) > 1:
            raise UsageError(f"--format json shows one report, not {len(reports)}; name one at a time")
        click.echo("\n\n".join(show(read(path), form, checks) for path in reports))
        return
    from musebench.report.html import write

    if baseline is not None and baseline not in reports:
        raise UsageError(f"--baseline {baseline} is none of the REPORTs; name it among them")
    shown = entries([read(path) for path in reports], labels_of(reports), checks)
    click.echo(write(shown, html, 0 if baseline is None else reports.index(baseline)))
