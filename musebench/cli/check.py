"""`musebench check`: reports, or a workload's neighbours, held to the checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from musebench.cli.format import format_option
from musebench.cli.plugins import pass_registry
from musebench.core.errors import UsageError
from musebench.core.options import describe, nearest
from musebench.plugin.registry import Registry

# The options' own module is free of numpy and torch, so that --help stays fast.
from musebench.checks import options as thresholds  # isort: skip

FLAGS: dict[str, tuple[str, ...]] = {}
"""By a threshold's name, the checks that have it."""

_CLASSES = {
    "tokens": thresholds.TokensOptions,
    "reference": thresholds.ReferenceOptions,
    "weights": thresholds.WeightsOptions,
    "pool": thresholds.PoolOptions,
    "determinism": thresholds.TokensOptions,
    "bound": thresholds.BoundOptions,
    "honest": thresholds.HonestOptions,
}


def _threshold_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """A flag for every threshold of the built-in checks; checks that share one get it together."""
    shown = {}
    for check, kind in _CLASSES.items():
        for info in describe(kind):
            FLAGS[info.name] = (*FLAGS.get(info.name, ()), check)
            shown[info.name] = info
    for info in reversed(shown.values()):
        flag = f"--{info.name.replace('_', '-')}"
        unit = f" ({info.unit})" if info.unit else ""
        who = ", ".join(FLAGS[info.name])
        if info.default is False:
            command = click.option(flag, info.name, is_flag=True, default=None, help=f"{who}: {info.help}.")(
                command
            )
            continue
        command = click.option(
            flag, info.name, metavar="NUMBER", help=f"{who}: {info.help}{unit}. [default: {info.default:,}]"
        )(command)
    return command


def settings_by_check(
    registry: Registry, flags: Mapping[str, Any], sets: tuple[str, ...]
) -> dict[str, dict[str, Any]]:
    """Option values by check, from the flags that were given and from `--set CHECK.OPTION=VALUE`.

    Raises:
        UsageError: there is no such check, or a text of another form.
    """
    known = [component.name for component in registry.components("check")]
    made: dict[str, dict[str, Any]] = {}
    for name, value in flags.items():
        if value is not None:
            for check in FLAGS[name]:
                made.setdefault(check, {})[name] = value
    for text in sets:
        target, equals, value = text.partition("=")
        check, dot, option = target.strip().partition(".")
        if not (equals and dot and option):
            raise UsageError(
                f"--set {text!r} is not CHECK.OPTION=VALUE, as in --set weights.weights-factor=1.5"
            )
        if check not in known:
            raise UsageError(f"--set {text!r}: there is no check {check!r}; {nearest(check, known)}")
        made.setdefault(check, {})[option] = value.strip()
    return made


def checks_of(
    registry: Registry, settings: Mapping[str, Mapping[str, Any]], only: tuple[str, ...] = ()
) -> list[Any]:
    """The checks, all or those named, with their settings.

    Raises:
        UsageError: a name that is none, or an option or value that a check does not take.
    """
    names = only or tuple(component.name for component in registry.components("check"))
    return [registry.get("check", name).make(settings.get(name, {})) for name in names]


@click.command("check")
@click.argument("reports", nargs=-1, metavar="[REPORT]...", type=click.Path(path_type=Path))
@click.option("--only", multiple=True, metavar="CHECK", help="This check alone; as often as needed.")
@click.option(
    "--neighbours",
    metavar="WORKLOAD",
    help="Run WORKLOAD twice, the contents of all requests but the first changed, and hold the logits of the "
    "first bit for bit.",
)
@click.option("--model", default="bundled", show_default=True, help="For --neighbours, as in musebench run.")
@click.option("--device", default="cpu", show_default=True, help="For --neighbours: cpu, cuda or cuda:N.")
@click.option("--dtype", help="For --neighbours: float32, bfloat16 or float16.")
@click.option("--executor", default="eager", show_default=True, help="For --neighbours: eager or compiled.")
@click.option("--junit", type=click.Path(path_type=Path), help="Write the verdicts as JUnit's XML too.")
@click.option("--set", "sets", multiple=True, metavar="CHECK.OPTION=VALUE", help="An option of any check.")
@_threshold_options
@format_option
@pass_registry
@click.pass_context
def command(
    context: click.Context,
    registry: Registry,
    reports: tuple[Path, ...],
    only: tuple[str, ...],
    neighbours: str | None,
    model: str,
    device: str,
    dtype: str | None,
    executor: str,
    junit: Path | None,
    sets: tuple[str, ...],
    form: str,
    **flags: Any,
) -> None:
    """Hold REPORTs, alone and against each other, to every check, with the sums shown.

    Each verdict names what was measured, its bound, and how both came about. What a report does not hold is
    said as "not judged". Exits with 0 when nothing failed, 1 when something did, 2 for a mistake.

    \b
    Examples:
      musebench check results/eager.json results/compiled.json
      musebench check results/*.json --only pool --activation-allowance 1073741824 --junit checks.xml
      musebench check --neighbours capitals --model bundled
    """
    # Reports bring numpy along, and --neighbours torch; imported here, so that --help stays fast.
    from musebench.cli import verdicts
    from musebench.report.files import read
    from musebench.report.junit import write_junit
    from musebench.report.verdict import verdicts_of

    if not reports and neighbours is None:
        raise UsageError("there is nothing to check; name a report, or --neighbours WORKLOAD")
    checks = checks_of(registry, settings_by_check(registry, flags, sets), only)
    made = verdicts_of([read(path) for path in reports], checks) if reports else []
    if neighbours is not None:
        from musebench.neighbours import check_neighbours
        from musebench.run import RunOptions

        options = RunOptions(neighbours, model=model, device=device, dtype=dtype, executor=executor)
        made.append(check_neighbours(options, registry))
    if junit is not None:
        write_junit(made, junit)
    click.echo(verdicts.show(made, form))
    context.exit(0 if verdicts.passed(made) else 1)
