"""`musebench profile`: measure a device for simulation, or show the profiles there are."""

from __future__ import annotations

import json
import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from musebench.cli.format import format_option, render
from musebench.cli.plugins import pass_registry
from musebench.core.errors import UsageError
from musebench.plugin.registry import Registry

if TYPE_CHECKING:
    from musebench.backends.profiler import HostLine, Keep
    from musebench.backends.simulated.profile import Profile

COLUMNS = ("name", "kind", "device", "memory", "bandwidth", "rates", "source")


@click.command("profile")
@click.option("--device", help="cpu, cuda or cuda:N to measure. Without it: show the profiles there are.")
@click.option("--out", type=click.Path(path_type=Path), help="The file to write. Needed with --device.")
@click.option("--name", help="The profile's name. Without it: the file's.")
@click.option(
    "--dtype", help="Of products, attention and steps. Without it: float32 on a CPU, else bfloat16."
)
@click.option("--links", help="A profile whose links between devices this one has; they are not measured.")
@click.option(
    "--quick", is_flag=True, help="Small sizes, as on a CPU: to try the command, not to simulate with."
)
@format_option
@pass_registry
def command(
    registry: Registry,
    device: str | None,
    out: Path | None,
    name: str | None,
    dtype: str | None,
    links: str | None,
    quick: bool,
    form: str,
) -> None:
    """Measure a device for simulation (copies, products, attention, launches, replays, captures, growths and
    the host's work between steps; under five minutes on a GPU), or show the profiles there are.

    A profile's file is taken wherever a profile's name is: --device sim:FILE. Until the end, what is measured
    so far stands in FILE.part.

    \b
    Examples:
      musebench profile
      musebench profile --device cuda --out my-gpu.json --links h100
      musebench explain --device sim:my-gpu.json --model llama-3.1-8b
    """
    if device is None:
        if out is not None:
            raise UsageError("--out without --device: say what to measure, as in --device cuda")
        click.echo(render(COLUMNS, _known(), form))
        return
    if out is None:
        raise UsageError("--device without --out: name the file to write, as in --out my-gpu.json")
    if device.startswith("sim"):
        raise UsageError(f"--device {device} is simulated; cpu, cuda or cuda:N can be measured")
    if out.is_dir() or not out.parent.is_dir():
        raise UsageError(f"--out {out} cannot be written; name a file in a folder that is there")
    from musebench.backends.simulated.profile import UNFINISHED, open_profile

    part = out.with_name(f"{out.name}.part")

    def keep(tree: dict[str, Any]) -> None:
        part.write_text(_text({**tree, "kind": UNFINISHED}), encoding="utf-8")

    tree = _measured(registry, device, dtype, name or out.stem, links, quick, keep)
    part.write_text(_text(tree), encoding="utf-8")
    part.replace(out)

    profile = open_profile(str(out))  # as it will be read
    click.echo(render(("what", "value"), _summary(profile), form))
    click.echo(f"profile: {out}", err=True)


def _summary(profile: Profile) -> list[dict[str, str]]:
    """What was measured, for people."""
    launch = profile.launch
    lines = [("copies", f"{profile.bandwidth / 1e9:,.0f} GB/s")]
    lines += [(f"products of {of}", f"{rate / 1e12:,.3g} TFLOP/s") for of, rate in profile.rates.items()]
    for rates in profile.attention:
        decode = f"{rates.decode_bandwidth / 1e9:,.0f} GB/s + {rates.decode_seconds * 1e6:,.1f} µs"
        prefill = f"{rates.prefill_rate / 1e12:,.3g} TFLOP/s + {rates.prefill_seconds * 1e6:,.1f} µs"
        lines.append((f"decodes, heads of {rates.head_dim}", decode))
        lines.append((f"prefills, heads of {rates.head_dim}", prefill))
    lines += [
        ("small kernel", f"{profile.small.seconds * 1e6:,.2f} µs"),
        ("launch, eager", f"{launch.eager_seconds * 1e6:,.1f} µs an operation"),
        ("launch, compiled", f"{launch.compiled_seconds * 1e6:,.1f} µs an operation"),
        ("replay", f"{launch.replay_seconds * 1e6:,.0f} µs"),
        ("host work of a step", f"{profile.host.step_seconds * 1e6:,.0f} µs"),
        ("growth", f"{profile.copy_seconds * 1e3:,.2f} ms, then {profile.copy_share:.0%} of copies"),
    ]
    return [{"what": what, "value": value} for what, value in lines]


def _known() -> list[dict[str, Any]]:
    from musebench.backends.simulated.profile import open_profile, profile_names

    rows = []
    for name in profile_names():
        profile = open_profile(name)
        rates = ", ".join(f"{of} {rate / 1e12:g}" for of, rate in profile.rates.items())
        rows.append(
            {
                "name": name, "kind": profile.kind, "device": profile.device,
                "memory": f"{profile.memory_bytes / 2**30:.0f} GiB",
                "bandwidth": f"{profile.bandwidth / 1e9:,.0f} GB/s", "rates": f"{rates} TFLOP/s",
                "source": profile.sources["device"],
            }
        )  # fmt: skip
    return rows


def _measured(
    registry: Registry,
    device: str,
    dtype: str | None,
    name: str,
    links: str | None,
    quick: bool,
    keep: Keep,
) -> dict[str, Any]:
    from musebench.backends.profiler import FULL, SMALL, Links, measure_device
    from musebench.backends.simulated.profile import open_profile
    from musebench.models.source import ModelSource

    on_cpu = device == "cpu"
    dtype = dtype or ("float32" if on_cpu else "bfloat16")
    small = on_cpu or quick
    given = None
    if links is not None:
        lender = open_profile(links)
        if lender.all_reduce is None:
            raise UsageError(f"--links {links}: profile {lender.label} has no links between devices")
        by_devices = {str(count): list(values) for count, values in lender.all_reduce.by_devices.items()}
        given = Links(
            {"bandwidth": lender.all_reduce.bandwidth, "by_devices": by_devices},
            f"profile {lender.label}: {lender.sources['all_reduce']}",
        )
    source: ModelSource = registry.get("model", "random").make({})
    sizes = SMALL if small else FULL
    shape = "random:smollm2-135m@vocab=512" if small else "random:llama-3.1-8b@vocab=32000"
    largest = f"{shape},layers={sizes.layers[-1]}"
    return measure_device(
        device, dtype, name, sizes,
        lambda layers: source.open(f"{shape},layers={layers}", dtype, device, 0),
        partial(_host_line, registry, device, dtype, largest, "mixed-small" if small else "mixed"), given,
        lambda line: click.echo(f"measuring {line}", err=True) if sys.stderr.isatty() else None, keep,
    )  # fmt: skip


def _host_line(
    registry: Registry, device: str, dtype: str, model: str, workload: str, launch_seconds: float
) -> HostLine:
    """From decode steps of a run: host work less the launch, over the number of sequences."""
    from musebench.backends.profiler import HostLine
    from musebench.backends.simulated.fitting import fit_line
    from musebench.run import RunOptions, run

    report = run(
        RunOptions(
            workload=workload,
            model=model,
            device=device,
            dtype=dtype,
            executor="eager" if device == "cpu" else "graph",
            overlap=False,
            warmup=1,
        ),
        registry,
    )
    steps = report.runs[-1].steps
    sequences, seconds = [], []
    for decodes, prefills, host, on_device in zip(
        steps.decode_tokens, steps.prefill_tokens, steps.host_seconds, steps.device_seconds, strict=True
    ):
        # On a CPU the launch is the forward itself.
        beside = (host or 0.0) - ((on_device or 0.0) if device == "cpu" else launch_seconds)
        if decodes and not prefills and beside > 0.0:
            sequences.append(float(decodes))
            seconds.append(beside)
    if not seconds:
        raise UsageError("no decode step took longer than its launch; measure again, with less else running")
    return HostLine(*fit_line(sequences, seconds))


def _text(tree: dict[str, Any]) -> str:
    """JSON with a measured product a line."""
    text = json.dumps(tree, indent=2)
    return (
        re.sub(r"\[\s+(\d+),\s+(\d+),\s+(\d+),\s+(\"\w+\"),\s+([^\]\s]+)\s+\]", r"[\1, \2, \3, \4, \5]", text)
        + "\n"
    )
