"""`musebench trace`: a report as trace events."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("trace")
@click.argument("report", metavar="REPORT", type=click.Path(path_type=Path))
@click.option(
    "--out",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The trace's file; gzipped when its name ends in .gz.",
)
def command(report: Path, out: Path) -> None:
    """Turn REPORT into Chrome trace events, which ui.perfetto.dev and chrome://tracing open.

    Lanes of host and device show every step, lanes of requests what each was doing, and counters the rows and
    the cells in use. `musebench run --trace-out FILE --profile` adds the kernels of one more run.

    \b
    Examples:
      musebench trace results/eager.json --out trace.json
      musebench trace results/eager.json --out trace.json.gz
    """
    # Reports bring numpy along; imported here, so that --help stays fast.
    from musebench.report.chrome_trace import write
    from musebench.report.files import read

    click.echo(write(read(report), out))
