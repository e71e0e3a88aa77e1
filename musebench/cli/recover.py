"""`musebench recover`: the report of a run that was cut off."""

from __future__ import annotations

from pathlib import Path

import click

from musebench.cli.format import format_option
from musebench.cli.plugins import pass_registry
from musebench.plugin.registry import Registry


@click.command("recover")
@click.argument("journal", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The report's file. Without it: the journal's name without .journal.",
)
@format_option
@pass_registry
def command(registry: Registry, journal: Path, out: Path | None, form: str) -> None:
    """Make a report of JOURNAL, which a run left that was killed.

    A run on a real device writes what has ended to REPORT.journal and removes it when the report is there.
    The recovered report is incomplete: it holds the requests that had ended, with their tokens but without
    their texts, the steps up to the last of them, and the other requests as unfinished. JOURNAL is removed
    once the report is written.

    \b
    Examples:
      musebench recover results/20261201-142622-ae79d9.json.journal
      musebench recover run.json.journal.1 --out first-try.json
    """
    from musebench.core.errors import UsageError
    from musebench.report import files, tables
    from musebench.report.journal import recover, report_path

    path = report_path(journal) if out is None else out
    if path.exists():
        raise UsageError(f"{path} is there already; name another with --out")
    report = recover(journal)
    files.write(report, path)
    journal.unlink(missing_ok=True)
    checks = list(registry.made("check").values())
    click.echo(tables.show(report, form, checks))
    click.echo(f"report: {path}", err=True)
