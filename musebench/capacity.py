"""The highest rate of requests at which objectives are kept, by bisection over simulations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from musebench.core.errors import UsageError
from musebench.plugin.registry import Registry
from musebench.report import metrics
from musebench.report.mean_step import bound
from musebench.report.schema import Report
from musebench.report.slo import Attainment, attainment
from musebench.run import RunOptions, run

SLOWEST, FASTEST = 1e-4, 1e6
"""Requests a second between which a rate is looked for."""

BLOCKED_SHARE = 0.1
"""Of the time: where requests wait so long for cells or slots, these gave out, and not the device."""


@dataclass(frozen=True)
class Trial:
    """One simulation: requests a second, and what came of it."""

    rate: float
    attainment: Attainment
    output_tokens_per_second: float | None

    @property
    def share(self) -> float:
        return self.attainment.share or 0.0


@dataclass(frozen=True)
class Capacity:
    """`best` keeps the share and `worse`, at a slightly higher rate, does not (None: no trial did, or all);
    `gave_out` is what `worse` waited for; `trials` are all, in order."""

    best: Trial | None
    worse: Trial | None
    gave_out: str | None
    trials: tuple[Trial, ...]


def find_capacity(
    options: RunOptions,
    registry: Registry,
    arrivals: Callable[[float], Mapping[str, Any]],
    share: float = 0.99,
    precision: float = 0.01,
    progress: Callable[[Trial], None] | None = None,
) -> Capacity:
    """Double or halve the rate until the share is kept on one side only, then bisect until the two are within
    `precision` of each other. `arrivals` makes the workload's arrivals of a rate.

    Raises:
        UsageError: no objectives, or a device that is not simulated.
    """
    if not options.slo:
        raise UsageError("there is no objective; give --slo, such as --slo ttft=500ms --slo tpot=50ms")
    if options.device.partition(":")[0] != "sim":
        raise UsageError(f"--device {options.device} is not simulated; use sim:PROFILE, such as sim:h200")
    trials: list[Trial] = []

    def keeps(rate: float) -> bool:
        settings = {kind: dict(values) for kind, values in options.settings.items()}
        settings.setdefault("workload", {})["arrivals"] = arrivals(rate)
        report = run(replace(options, settings=settings), registry)
        made = metrics.throughput(report).output_tokens_per_second
        trial = Trial(rate, attainment(report), made)
        trials.append(trial)
        if trial.share < share:
            failing[:] = [(trial, report)]
        else:
            passing[:] = [trial]
        if progress is not None:
            progress(trial)
        return trial.share >= share

    passing: list[Trial] = []
    failing: list[tuple[Trial, Report]] = []
    rate = 1.0
    up = keeps(rate)
    while SLOWEST < rate < FASTEST:
        rate = rate * 2 if up else rate / 2
        if keeps(rate) != up:
            break
    if passing and failing:
        low, high = passing[0].rate, failing[0][0].rate
        while high > low * (1 + precision):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if keeps(middle) else (low, middle)
    worse = failing[0] if failing else None
    return Capacity(
        passing[0] if passing else None,
        worse[0] if worse else None,
        gave_out(worse[1]) if worse else None,
        tuple(trials),
    )


def gave_out(report: Report) -> str:
    """What the requests of a simulated run waited for: cells, sessions, or what bounds its mean step."""
    steps, limits, bounds = report.runs[-1].steps, report.choices.limits, report.choices.bounds
    if limits is None or bounds is None:
        raise UsageError("a whole engine states no limits that its requests could wait for")
    if not len(steps):
        raise UsageError(f"no request could run: {report.runs[-1].requests.message[0]}")
    start, end = np.array(steps.start), np.array(steps.end)
    sequences, waiting = np.array(steps.sequences), np.array(steps.waiting)
    tokens = np.array(steps.decode_tokens) + np.array(steps.prefill_tokens)
    left = np.append(waiting[1:], 0) > 0  # somebody waits on after the step was planned
    blocked = (waiting > 0) & left & (tokens < limits.most_tokens)
    span = np.diff(start, append=end[-1])
    total = float(span.sum())
    full = sequences >= min(limits.most_sequences, bounds.max_sessions)
    if total > 0 and float(span[blocked & ~full].sum()) > BLOCKED_SHARE * total:
        return "cells"
    if total > 0 and float(span[blocked & full].sum()) > BLOCKED_SHARE * total:
        return "sessions"
    return bound(report)
