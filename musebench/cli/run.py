"""`musebench run`: one workload, one choice of components, one report."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from musebench.cli.format import format_option
from musebench.cli.load import Load, load_options
from musebench.cli.peers import refuse_step_options
from musebench.cli.plugins import pass_registry
from musebench.plugin.registry import Registry, parse_settings

if TYPE_CHECKING:
    from musebench.report.schema import Report
    from musebench.run import Profile


@click.command("run")
@click.argument("workload", required=False)
@load_options
@click.option(
    "--model",
    default="bundled",
    show_default=True,
    help="bundled, a folder or hub id, a .gguf file, or random:SHAPE.",
)
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, cuda:N or sim:PROFILE.")
@click.option("--dtype", help="float32, bfloat16 or float16. Without it: float32 on a CPU, else bfloat16.")
@click.option(
    "--engine",
    default="musebench",
    show_default=True,
    help="A whole engine, which brings its own executor, pool and scheduler.",
)
@click.option("--executor", default="eager", show_default=True, help="How a step is launched.")
@click.option(
    "--pool", default="geometric", show_default=True, help="How many rows there are, and when they grow."
)
@click.option("--scheduler", default="chunked", show_default=True, help="Who runs in the next step.")
@click.option(
    "--replicas",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="How many simulated devices serve the requests, each with a pool and a scheduler of its own.",
)
@click.option("--router", help="Which of several replicas serves a request.  [default: round-robin]")
@click.option("--max-sessions", type=int, help="Most sequences at a time.")
@click.option("--max-context", type=int, help="Most tokens of a sequence.")
@click.option("--token-budget", type=int, help="Most tokens of a step.")
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Of random weights, prompts and lengths."
)
@click.option("--warmup", type=int, default=0, show_default=True, help="Runs before the measured ones.")
@click.option("--repeat", type=int, default=1, show_default=True, help="Measured runs.")
@click.option(
    "--overlap/--no-overlap", default=None, help="Plan a step while the one before runs. Without it: on CUDA."
)
@click.option(
    "--margins", is_flag=True, help="Record the difference of the two largest logits of every token."
)
@click.option(
    "--slo",
    multiple=True,
    metavar="NAME=LIMIT",
    help="An objective: ttft, tpot or e2e of a request at most 500ms, say. Shows who meets all, and goodput.",
)
@click.option("--explain-step", is_flag=True, help="Show where the time of a simulated run's mean step goes.")
@click.option(
    "--stepwise",
    is_flag=True,
    help="Simulate every step by itself; the report is the same, and takes longer.",
)
@click.option(
    "--reference",
    metavar="transformers",
    help="Generate the same prompts one at a time with plain transformers first, and hold the tokens to it.",
)
@click.option("--bound", is_flag=True, help="Print the memory that this may use before the first step.")
@click.option("--check", is_flag=True, help="Print every check with its sums, as `musebench check` does.")
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="KIND.NAME=VALUE",
    help="An option of a component; `musebench list` shows them.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The report's file; its folder is made. Without it: results/ID.json.",
)
@click.option(
    "--progress/--no-progress", default=None, help="Show a progress bar. Without it: on a terminal."
)
@click.option(
    "--step-timeout",
    type=float,
    metavar="SECONDS",
    help="End a run in which a step takes longer (compilation and capture included), with an incomplete "
    "report.",
)
@click.option(
    "--on-oom",
    default="fail",
    show_default=True,
    metavar="fail|shrink",
    help="Out of memory: fail the requests of the step, or go on with half of what a step may hold.",
)
@click.option(
    "--journal/--no-journal",
    default=None,
    help="Write what has ended to REPORT.journal during the run, for `musebench recover`. Without it: on a "
    "real device.",
)
@click.option("--trust-remote-code", is_flag=True, help="Run the code that a model's folder brings along.")
@click.option(
    "--trace-out",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write Chrome trace events of the runs too, as `musebench trace` does.",
)
@click.option(
    "--profile",
    "profiled",
    is_flag=True,
    help="Run once more under torch's profiler, outside of the report, and add the kernels to --trace-out.",
)
@click.option(
    "--profile-steps",
    type=click.IntRange(min=1),
    default=None,
    help="How many steps of that run are recorded.  [default: 200]",
)
@format_option
@pass_registry
@click.pass_context
def command(
    context: click.Context,
    registry: Registry,
    sets: tuple[str, ...],
    out: Path | None,
    trace_out: Path | None,
    profiled: bool,
    profile_steps: int | None,
    progress: bool | None,
    journal: bool | None,
    trust_remote_code: bool,
    bound: bool,
    check: bool,
    form: str,
    engine: str,
    workload: str | None,
    slo: tuple[str, ...],
    explain_step: bool,
    **choices: Any,
) -> None:
    """Run WORKLOAD (a name, a YAML file or a trace) and show what it cost and whether its tokens are right.
    Without it: capitals.

    Exits with 0 when every answer is right, 1 when one is not or nothing succeeded, 2 for a mistake.

    \b
    Examples:
      musebench run
      musebench run capitals --pool fixed --scheduler static
      musebench run mixed-small --set pool.factor=1.5 --set workload.requests=8
      musebench run mixed --model random:llama-3.2-1b --device cuda --dtype bfloat16
      musebench run capitals --trace-out trace.json --profile
      musebench run --device sim:h200 --model llama-3.1-8b --trace trace.csv --arrivals poisson --rate 4
      musebench run mixed --device sim:h200 --model llama-3.1-8b --replicas 4 --router least-tokens
      musebench run capitals --reference transformers --bound --check
    """
    # torch comes with these; imported here, so that --help stays fast.
    from musebench.cli import verdicts
    from musebench.cli.keeping import FileKeeper
    from musebench.cli.progress import shown
    from musebench.core.errors import UsageError
    from musebench.core.peer import BUILT_IN
    from musebench.peers import run_peer
    from musebench.report import files, tables
    from musebench.report.bound import bound_table
    from musebench.report.slo import parse as parse_slo
    from musebench.report.table import DEFAULT_FORMAT, TEXT_FORMATS, text
    from musebench.report.verdict import judge, verdicts_of
    from musebench.run import Parts, Profile, RunOptions, run
    from musebench.workload.load import load_workload

    if out is not None and out.is_dir():
        raise UsageError(f"--out {out} is a folder; name a file in it")
    if journal and choices["replicas"] > 1:
        raise UsageError("--journal is for one replica; a simulated run can be had again")
    if profile_steps is not None and not profiled:
        raise UsageError(f"--profile-steps {profile_steps} is of a profiled run; add --profile")
    if profiled and trace_out is None:
        raise UsageError("--profile records kernels for a trace; say where it goes: --trace-out FILE")
    if explain_step:
        from musebench.report.mean_step import explanation

        if not str(choices["device"]).startswith("sim:"):
            raise UsageError(f"--explain-step is for simulated devices, not for {choices['device']}")
    if trust_remote_code and str(choices["device"]).startswith("sim:"):
        raise UsageError(f"--trust-remote-code: {choices['device']} runs no code of a model; leave it out")
    if trust_remote_code:
        sets = (*sets, "model.trust_remote_code=true")
    load = Load(**{entry.name: choices.pop(entry.name) for entry in fields(Load)})
    settings: dict[str, dict[str, Any]] = {**parse_settings(list(sets))}
    if changes := load.settings():
        settings["workload"] = {**settings.get("workload", {}), **changes}
    named = load.workload(workload) or RunOptions.workload
    load.require_times(load_workload(named))
    options = RunOptions(named, settings=settings, slo=parse_slo(slo), **choices)
    if engine != BUILT_IN:
        registry.get("engine", engine)
        refuse_step_options(context, engine)
    checks = list(registry.made("check").values())
    profile = Profile(*(() if profile_steps is None else (profile_steps,))) if profiled else None

    def finish(report: Report, path: Path) -> int:
        files.write(report, path)
        (judgement,) = judge([report], checks)
        more = [explanation(report)] if explain_step else []
        click.echo(tables.show_judged(report, judgement, form, more))
        click.echo(f"report: {path}", err=True)
        if trace_out is not None:
            _write_trace(report, trace_out, profile)
        if not check:
            return 0 if judgement.valid else 1
        made = verdicts_of([report], checks)
        click.echo(f"\n{verdicts.show(made, form)}")
        return 0 if verdicts.passed(made) else 1

    def say_bound(parts: Parts) -> None:
        shape = form if form in TEXT_FORMATS else DEFAULT_FORMAT
        click.echo(text([bound_table(parts.bound)], shape), err=True)

    keeper = FileKeeper(out, journal, finish)
    with keeper:
        with shown(progress) as callback:
            if engine == BUILT_IN:
                report = run(options, registry, callback, keeper, profile, say_bound if bound else None)
            else:
                report = run_peer(engine, options, registry, callback)
        code = keeper.end(report)
    context.exit(code)


def _write_trace(report: Report, path: Path, profile: Profile | None) -> None:
    from musebench.report import chrome_trace

    recorded = None if profile is None or profile.run is None else (profile.run, profile.activities)
    if profile is not None and profile.trouble is not None:
        click.echo(f"musebench: warning: --profile: {profile.trouble}", err=True)
    click.echo(f"trace: {chrome_trace.write(report, path, recorded)}", err=True)
