"""`musebench accept`: three runs of a model and the checks that they must pass."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from musebench.cli.format import format_option
from musebench.cli.plugins import pass_registry
from musebench.plugin.registry import Registry


@click.command("accept")
@click.option(
    "--model",
    default="bundled",
    show_default=True,
    help="bundled, a folder or hub id, or a .gguf file: one with a tokenizer and a chat template.",
)
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda or cuda:N.")
@click.option("--dtype", help="float32, bfloat16 or float16. Without it: float32 on a CPU, else bfloat16.")
@click.option(
    "--executor",
    "executors",
    multiple=True,
    help="Answers the one prompt beside eager; as often as needed. Without it: all that there are.",
)
@click.option(
    "--program",
    type=click.Path(path_type=Path),
    help="The package, from musebench export, of this model for the executor exported.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Runs side by side; nothing is timed here, but each has the model in memory.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="Folder for the reports. Without it they are not kept."
)
@click.option("--junit", type=click.Path(path_type=Path), help="Write the verdicts as JUnit's XML too.")
@format_option
@pass_registry
@click.pass_context
def command(
    context: click.Context,
    registry: Registry,
    model: str,
    device: str,
    dtype: str | None,
    executors: tuple[str, ...],
    program: Path | None,
    jobs: int,
    out: Path | None,
    junit: Path | None,
    form: str,
) -> None:
    """Accept a model on a device: one prompt eagerly, the same prompt with every other executor that the
    device has (graphs where it has them), and five prompts in one batch of which the last is longer than a
    forward; then the checks answers, tokens, weights and pool over all of them.

    Each run is a process of its own. Executors that the device does not have are named, with the reason.
    Exits with 0 when nothing failed, 1 when something did, 2 for a mistake.

    \b
    Examples:
      musebench accept
      musebench accept --model model.gguf --out results/accepted --junit accepted.xml
      musebench accept --model my/folder --device cuda
      musebench accept --model my/folder --program folder.pt2
    """
    # Reports bring numpy along; imported here, so that --help stays fast.
    from musebench.accept import accept
    from musebench.cli import verdicts
    from musebench.report.junit import write_junit

    def say(line: str) -> None:
        click.echo(f"running: {line}", err=True)

    with tempfile.TemporaryDirectory() as temporary:
        made = accept(model, device, dtype, out or Path(temporary), registry, say, executors, jobs, program)
    for label, reason in made.left_out.items():
        click.echo(f"left out: {label}: {reason}", err=True)
    for label, report in made.reports.items():
        click.echo(f"report {report.id}: {label}", err=True)
    if junit is not None:
        write_junit(made.verdicts, junit)
    click.echo(verdicts.show(made.verdicts, form))
    context.exit(0 if verdicts.passed(made.verdicts) else 1)
