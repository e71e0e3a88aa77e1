"""The acceptance of a model on a device: three runs, each in a process of its own, and what they must pass.

One prompt eagerly; the same prompt with every other executor that the device has; five prompts in one batch,
of which the last is longer than a forward. Then the checks of answers, tokens, weights and pool.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from musebench.core.errors import UsageError
from musebench.plugin.registry import Registry
from musebench.report import files
from musebench.report.schema import Report
from musebench.report.verdict import Verdict, verdicts_of

CHECKS = ("answers", "tokens", "weights", "pool")
ONE, FIVE = "single", "capitals"
"""Workloads that ship: one prompt, and five of which the last is longer than a forward."""

EXIT_MISTAKE = 2


@dataclass(frozen=True)
class Accepted:
    """The runs' reports by label, what was left out and why, and all verdicts."""

    reports: dict[str, Report]
    left_out: dict[str, str]
    verdicts: tuple[Verdict, ...]


def accept(
    model: str,
    device: str,
    dtype: str | None,
    folder: Path,
    registry: Registry,
    say: Callable[[str], None] = lambda line: None,
    executors: Sequence[str] = (),
    jobs: int = 1,
    program: Path | None = None,
) -> Accepted:
    """Run, write the reports into `folder`, and check them; `say` gets a line before each run.

    `executors` are those that answer the one prompt beside eager; none named: all that there are. `jobs` runs
    go side by side: what is checked here are tokens and each process's own memory, never times. `program` is
    the package of this model that the executor `exported` runs.

    Raises:
        UsageError: the eager run cannot be made, in its own words; or there is no such executor.
    """
    others = [component.name for component in registry.components("executor")]
    if executors:
        others = [registry.get("executor", name).name for name in executors]
    others = [name for name in dict.fromkeys(others) if name != "eager"]
    plan = [(f"one prompt, {name}", ONE, name) for name in ("eager", *others)]
    plan.append(("five prompts, eager", FIVE, "eager"))

    def made(run: tuple[str, str, str]) -> str | None:
        label, workload, executor = run
        say(label)
        arguments = [workload, "--model", model, "--device", device, "--executor", executor]
        if program is not None and executor == "exported":
            arguments += ["--set", f"executor.program={program}"]
        error = _run(arguments, dtype, _path(folder, run), processes)
        if error is not None and executor == "eager":
            raise UsageError(f"the run {label!r} cannot be made: {error}")
        return error

    processes: list[subprocess.Popen[str]] = []
    with ThreadPoolExecutor(jobs) as threads:
        try:
            errors = dict(zip((label for label, _, _ in plan), threads.map(made, plan), strict=True))
        except BaseException:  # an interrupt too: nobody waits for what the others would say
            threads.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()
            raise
    reports = {run[0]: files.read(_path(folder, run)) for run in plan if errors[run[0]] is None}
    left_out = {label: error for label, error in errors.items() if error is not None}
    checks = [
        registry.get("check", name).make({"across_workloads": True} if name == "tokens" else {})
        for name in CHECKS
    ]
    verdicts = verdicts_of(list(reports.values()), checks)
    verdicts.append(_longer_than_a_forward(reports["five prompts, eager"]))
    verdicts.append(_with_graphs(reports))
    return Accepted(reports, left_out, tuple(verdicts))


def _path(folder: Path, run: tuple[str, str, str]) -> Path:
    _, workload, executor = run
    return folder / f"{workload}-{executor}.json"


def _run(
    arguments: Sequence[str], dtype: str | None, path: Path, processes: list[subprocess.Popen[str]]
) -> str | None:
    """One run in a process of its own, added to `processes`; None, or why it could not be made. A run that
    is INVALID is one."""
    command = [sys.executable, "-m", "musebench", "run", *arguments, "--margins", "--no-progress"]
    command += ["--out", str(path), *(["--dtype", dtype] if dtype else [])]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as done:
        processes.append(done)
        _, errors = done.communicate()
    if done.returncode in (0, 1) and path.is_file():
        return None
    lines = [line for line in errors.splitlines() if line.startswith("musebench: error: ")]
    if done.returncode == EXIT_MISTAKE and lines:
        return lines[-1].removeprefix("musebench: error: ")
    tail = errors.strip().splitlines()[-1:] or ["nothing on standard error"]
    raise UsageError(f"{' '.join(command[2:6])} ended with {done.returncode}: {tail[0]}")


def _longer_than_a_forward(report: Report) -> Verdict:
    longest = report.runs[0].requests.prompt_tokens[-1] if report.runs else 0
    limits = report.choices.limits
    if limits is None:
        raise UsageError("a whole engine states no most tokens of a forward, which acceptance goes by")
    most = limits.most_prefill
    valid = longest > most
    reason = "" if valid else f"the last prompt has {longest:,} tokens, and a forward takes {most:,}"
    return Verdict(
        report.id, "accept", valid, reason, "the last prompt is longer than a forward",
        f"{longest:,} tokens", f"more than {most:,}", "prompt of the last request; most tokens of a prefill",
    )  # fmt: skip


def _with_graphs(reports: dict[str, Report]) -> Verdict:
    """Whether a run replayed graphs; on a device without them that is said, not failed."""
    first = reports["one prompt, eager"]
    what = "the same prompt with graphs"
    replays = {
        label: sum(int(run.counters.get("replays", 0)) for run in one.runs) for label, one in reports.items()
    }
    replayed = {label: count for label, count in replays.items() if count}
    if first.choices.backend.name != "cuda":
        ran = [label for label in reports if label not in ("one prompt, eager", "five prompts, eager")]
        reason = f"device {first.choices.device} has no graphs; run instead: {', '.join(ran) or 'nothing'}"
        return Verdict(first.id, "accept", True, reason, what, judged=False)
    return Verdict(
        first.id, "accept", bool(replayed), "" if replayed else "no run replayed a graph", what,
        f"{sum(replayed.values()):,} replays", "at least 1", ", ".join(replayed) or "no run",
    )  # fmt: skip
