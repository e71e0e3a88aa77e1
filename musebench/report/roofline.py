"""How far steps are from the least time that the device could take, by kind of step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from musebench.measure.roofline import Floors, floors
from musebench.report.schema import Report, RunData
from musebench.report.table import Row, Table

KINDS = ("decode", "prefill", "mixed")
"""Of a step: decodes alone, slices of prompts alone, or both."""


@dataclass(frozen=True)
class StepKind:
    """Sums over the steps of one kind, of all runs. `device_seconds` None unless each step has one,
    `moved_bytes` and `floor_seconds` None where the report has no ceilings or no shapes."""

    steps: int
    tokens: int
    device_seconds: float | None
    gap_seconds: float | None
    moved_bytes: int | None
    floor_seconds: float | None

    @property
    def share(self) -> float | None:
        """Of the floor reached: floor over measured."""
        if self.floor_seconds is None or not self.device_seconds:
            return None
        return self.floor_seconds / self.device_seconds


def step_kinds(report: Report) -> dict[str, StepKind]:
    """By kind; kinds without a step are left out."""
    parts: dict[str, list[StepKind]] = {}
    for run in report.runs:
        for kind, part in _of_run(report, run):
            parts.setdefault(kind, []).append(part)
    return {kind: _sum(parts[kind]) for kind in KINDS if kind in parts}


def gaps(run: RunData) -> np.ndarray:
    """Seconds of each step, float64, in which the device had nothing of it to do: the time between the end of
    the step before (or its own start, where that is later) and its own end, less its device time. NaN where
    that was not measured. With overlap it is what of the host's work is not hidden."""
    steps = run.steps
    end, start = np.array(steps.end, np.float64), np.array(steps.start, np.float64)
    began = np.maximum(start, np.concatenate([[-np.inf], end[:-1]]))
    device = np.array(steps.device_seconds, np.float64)  # None becomes NaN
    return np.maximum(end - began - device, 0.0)


def table(report: Report) -> Table:
    """A column a kind: means a step, and the share of the floor reached."""
    kinds = step_kinds(report)
    notes = []
    if kinds and report.conditions.ceilings is None:
        finds = "" if report.conditions.clock == "virtual" else "; musebench doctor --measure finds them"
        notes.append(f"floor: the device's ceilings are not known{finds}")

    def row(name: str, unit: str, value: Callable[[StepKind], float | None], speed: bool = False) -> Row:
        return Row(name, unit, tuple(value(one) for one in kinds.values()), speed)

    return Table(
        "steps by kind (means)",
        tuple(kinds),
        (
            row("steps", "count", lambda one: one.steps),
            row("tokens", "count", lambda one: one.tokens / one.steps),
            row("bytes that had to move", "bytes", lambda one: _mean(one.moved_bytes, one.steps)),
            row("floor", "s", lambda one: _mean(one.floor_seconds, one.steps)),
            row("time on the device", "s", lambda one: _mean(one.device_seconds, one.steps), speed=True),
            row("share of the floor", "percent", lambda one: one.share and 100.0 * one.share, speed=True),
            row("host time not hidden", "s", lambda one: _mean(one.gap_seconds, one.steps), speed=True),
        )
        if kinds
        else (),
        notes=tuple(notes),
    )


def run_floors(report: Report, run: RunData) -> Floors | None:
    """Of every step of a run; None where the report has no ceilings, no facts or no shapes."""
    steps = run.steps
    facts, ceilings = report.conditions.model.facts, report.conditions.ceilings
    if facts is None or ceilings is None or steps.attended_cells is None:
        return None
    return floors(
        facts,
        ceilings,
        np.array(steps.decode_tokens) + np.array(steps.prefill_tokens),
        np.array(steps.logit_rows),
        np.array(steps.attended_cells),
        np.array(steps.attended_pairs),
        np.array(steps.forwards),
    )


def _of_run(report: Report, run: RunData) -> Iterator[tuple[str, StepKind]]:
    steps = run.steps
    if not len(steps):
        return
    decode, prefill = np.array(steps.decode_tokens), np.array(steps.prefill_tokens)
    device = np.array(steps.device_seconds, np.float64)
    gap = gaps(run)
    least = run_floors(report, run)
    for kind, at in (
        ("decode", (prefill == 0)),
        ("prefill", (decode == 0) & (prefill > 0)),
        ("mixed", (decode > 0) & (prefill > 0)),
    ):
        if not at.any():
            continue
        yield (
            kind,
            StepKind(
                int(at.sum()),
                int((decode + prefill)[at].sum()),
                _known(device[at]),
                _known(gap[at]),
                None if least is None else int(least.moved_bytes[at].sum()),
                None if least is None else float(least.seconds[at].sum()),
            ),
        )


def _sum(parts: list[StepKind]) -> StepKind:
    def over(name: str) -> float | None:
        values = [getattr(part, name) for part in parts]
        return None if None in values else sum(values)

    moved = over("moved_bytes")
    return StepKind(
        sum(part.steps for part in parts),
        sum(part.tokens for part in parts),
        over("device_seconds"),
        over("gap_seconds"),
        None if moved is None else int(moved),
        over("floor_seconds"),
    )


def _known(values: np.ndarray) -> float | None:
    return None if np.isnan(values).any() else float(values.sum())


def _mean(total: float | None, count: int) -> float | None:
    return None if total is None else total / count
