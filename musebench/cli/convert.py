"""`musebench convert`: reports to other tools' files, and back."""

from __future__ import annotations

import json
from pathlib import Path

import click

from musebench.core.errors import InputError, UsageError
from musebench.core.whole import write_whole

TO = ("pytest-benchmark", "musebench")


@click.command("convert")
@click.argument("inputs", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option("--to", type=click.Choice(TO), default=TO[0], show_default=True, help="What to make.")
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="The JSON file of pytest-benchmark; or the folder in which reports are written, by their ids.",
)
def command(inputs: tuple[Path, ...], to: str, out: Path) -> None:
    """Convert reports to pytest-benchmark's JSON, or such a file back to reports.

    Repeats become rounds, a round's time is the span of the repeat. Files in .benchmarks/ are found by
    `pytest-benchmark compare` and --benchmark-compare-fail. Only benchmarks that hold musebench reports come
    back: those of this command and of the pytest fixture `musebench`.

    \b
    Examples:
      musebench convert results/a.json results/b.json --out .benchmarks/0001_mine.json
      musebench convert .benchmarks/0001_mine.json --to musebench --out results/
    """
    # Reports bring numpy along; imported here, so that --help stays fast.
    from musebench.report import files
    from musebench.report.benchmark_json import from_benchmarks, to_benchmarks
    from musebench.report.groups import make_groups, read_sources

    if to == "pytest-benchmark":
        if out.is_dir():
            raise UsageError(f"--out {out} is a folder; name a file in it")
        made = to_benchmarks(make_groups(read_sources(inputs)))
        text = json.dumps(made, allow_nan=False, indent=2) + "\n"
        write_whole(out, text.encode(), "the benchmarks")
        click.echo(f"{len(made['benchmarks'])} benchmarks: {out}", err=True)
        return
    reports = []
    for path in inputs:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path}: cannot read it: {error.strerror or error}") from error
        reports += from_benchmarks(data, str(path))
    for report in reports:
        click.echo(f"report: {files.write(report, out / f'{report.id}.json')}", err=True)
