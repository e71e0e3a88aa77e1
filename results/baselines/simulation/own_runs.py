"""Own runs on an H200 against the same runs on `sim:h200`, step by step.

Both sides make the same steps, so that a step can be left out of both: see `compiling`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from musebench.backends.simulated.costs import costs_for
from musebench.backends.simulated.operations import PROGRAMS
from musebench.backends.simulated.profile import open_profile
from musebench.plugin.registry import Registry
from musebench.report import files
from musebench.report.schema import Report
from musebench.run import RunOptions, run

REPORTS = Path(__file__).resolve().parents[1] / "h200"
COLUMNS = ("decode_tokens", "prefill_tokens", "padded_tokens", "sequences", "forwards", "rows", "in_use",
           "generation", "waiting", "running", "programs", "attended_cells", "attended_pairs",
           "logit_rows")  # fmt: skip
COUNTERS = ("forwards", "replays", "captures", "recaptures", "fallbacks")
GROWTH = ("step", "rows", "bytes", "copied_bytes", "peak_bytes")
COMPILING = 4.0
"""Times the median of its peers that a step took longer, when it compiled a kernel."""


@dataclass(frozen=True)
class Pair:
    """A measured report and its simulation; `left_out` bool [steps] says which steps no side counts."""

    name: str
    measured: Report
    simulated: Report
    left_out: np.ndarray

    @property
    def differences(self) -> list[str]:
        """Names of the counts that are not equal; none where the simulation is exact."""
        real, made = self.measured.runs[0], self.simulated.runs[0]
        found = [
            name
            for name in COLUMNS
            if getattr(real.steps, name) and getattr(real.steps, name) != getattr(made.steps, name)
        ]
        found += [name for name in COUNTERS if real.counters.get(name, 0) != made.counters.get(name, 0)]
        assert real.pool is not None
        assert made.pool is not None
        found += [
            f"growths' {name}"
            for name in GROWTH
            if getattr(real.pool.growths, name) != getattr(made.pool.growths, name)
        ]
        for name in ("preemptions", "generated_tokens", "token_steps"):
            if getattr(real.requests, name) != getattr(made.requests, name):
                found.append(name)
        return found


@dataclass(frozen=True)
class Timings:
    """Of one side: output tokens per second, and seconds; None where too many steps are left out."""

    output_tok_s: float
    ttft_p50: float | None
    tpot_p50: float
    e2e_p50: float


def pairs() -> list[Pair]:
    """One for each report, by name."""
    reports = {path.name.removesuffix(".json.gz"): files.read(path) for path in REPORTS.glob("*.json.gz")}
    warm = _peers(reports)
    registry = Registry.installed()
    return [
        Pair(name, report, simulated(report, registry), compiling(report, warm))
        for name, report in sorted(reports.items())
    ]


def simulated(report: Report, registry: Registry) -> Report:
    """The report's run on `sim:h200`: its workload, sizes and choices."""
    conditions, choices = report.conditions, report.choices
    settings = {
        "workload": {"requests": len(report.runs[0].requests), **_changes(conditions.command)},
        "executor": dict(choices.executor.options),
        "pool": dict(choices.pool.options),
        "scheduler": dict(choices.scheduler.options),
    }
    options = RunOptions(
        workload=conditions.workload.name, model=conditions.model.source, device="sim:h200",
        dtype=conditions.model.dtype, executor=choices.executor.name, pool=choices.pool.name,
        scheduler=choices.scheduler.name, max_sessions=choices.bounds.max_sessions,
        max_context=choices.bounds.max_context, token_budget=choices.limits.most_tokens,
        seed=conditions.seed, warmup=conditions.warmup, settings=settings,
    )  # fmt: skip
    return run(options, registry)


def _changes(command: Sequence[str]) -> dict[str, str]:
    """What a command's `--set` say of the workload."""
    said = [word for flag, word in pairwise(command) if flag == "--set"]
    pairs = (word.removeprefix("workload.").partition("=") for word in said if word.startswith("workload."))
    return {name: value for name, _, value in pairs}


# -- steps that compiled a kernel ---------------------------------------------------------------------------


Peers = Mapping[tuple[str, str], list[tuple[int, float]]]


def _peers(reports: Mapping[str, Report]) -> Peers:
    """(tokens, device seconds) of every step, by model and program."""
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for report in reports.values():
        for program, tokens, seconds in _steps(report):
            found.setdefault((report.conditions.model.name, program), []).append((tokens, seconds))
    return found


def _steps(report: Report) -> list[tuple[str, int, float]]:
    """Program, tokens and device seconds of each step."""
    steps = report.runs[0].steps
    programs = {name: np.array(column) for name, column in steps.programs.items()}
    tokens = np.array(steps.decode_tokens) + np.array(steps.prefill_tokens)
    return [
        (next(name for name, column in programs.items() if column[at]), int(tokens[at]), seconds)
        for at, seconds in enumerate(steps.device_seconds)
    ]


def compiling(report: Report, peers: Peers) -> np.ndarray:
    """Which steps of a run compiled a kernel, or came just before one that did: its tokens were fetched after
    the next step's launch. A step compiled where it took more than `COMPILING` times the median of all the
    steps in the reports with its model, its program and no fewer tokens."""
    model = report.conditions.model.name
    limits: dict[tuple[str, int], float] = {}
    cold = []
    for program, tokens, seconds in _steps(report):
        if (program, tokens) not in limits:
            of = [taken for more, taken in peers[model, program] if more >= tokens]
            limits[program, tokens] = COMPILING * float(np.median(of))
        cold.append(seconds > limits[program, tokens])
    found = np.array(cold)
    return found | np.append(found[1:], False)


# -- times --------------------------------------------------------------------------------------------------


def increments(report: Report) -> np.ndarray:
    """Seconds from the end of the step before to the end of each, float64 [steps]."""
    return np.diff(np.array(report.runs[0].steps.end), prepend=0.0)


def timings(report: Report, left_out: np.ndarray) -> Timings:
    """With the steps that count, on a clock that stands still in the others."""
    requests = report.runs[0].requests
    ends = np.cumsum(np.where(left_out, 0.0, increments(report)))
    made, tokens = ends[np.array(requests.token_steps)], np.array(requests.generated_tokens)
    last = np.cumsum(tokens) - 1
    first, finished = made[last - tokens + 1], made[last]
    first_steps = np.array(requests.token_steps)[last - tokens + 1]
    return Timings(
        float(tokens.sum() / ends[-1]),
        None if left_out[first_steps].mean() > 0.5 else float(np.median(first)),
        float(np.median((finished - first) / (tokens - 1))),
        float(np.median(finished)),
    )


def spread(pair: Pair, prefilling: bool) -> float | None:
    """Of the measured steps that count, with or without prefills: the range that half of them lie in, each
    over its simulation, as a share of their median. None for less than four steps."""
    steps = pair.measured.runs[0].steps
    kind = ((np.array(steps.prefill_tokens) > 0) == prefilling) & ~pair.left_out
    made = increments(pair.simulated)[kind]
    of = increments(pair.measured)[kind][made > 0] / made[made > 0]
    if len(of) < 4:
        return None
    low, middle, high = np.percentile(of, (25, 50, 75))
    return float((high - low) / middle)


def launch(pair: Pair) -> float | None:
    """Host seconds an operation of the measured prefills that count, the profile's work of a step taken off:
    the lower quartile. None without one, and where the device bounds them by their simulation."""
    steps, facts = pair.measured.runs[0].steps, pair.measured.conditions.model.facts
    assert facts is not None
    kind = (np.array(steps.prefill_tokens) > 0) & ~pair.left_out
    if not kind.any():
        return None
    profile = open_profile("h200")
    program = "compiled" if pair.measured.choices.executor.name == "compiled" else "eager"
    costs = costs_for(facts, profile)
    operations = costs.work.launches(PROGRAMS[program])
    device = np.array(pair.simulated.runs[0].steps.device_seconds)[kind]
    if np.median(device) > 1.2 * costs.launch_seconds(program):
        return None
    quartile = float(np.percentile(np.array(steps.host_seconds)[kind], 25))
    return (quartile - profile.host.step_seconds) / operations
