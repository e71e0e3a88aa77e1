"""The mean step of a simulated run: its shape, where its time goes, and what bounds it."""

from __future__ import annotations

import numpy as np

from musebench.backends.simulated import device as devices
from musebench.backends.simulated.device import SimulatedDevice
from musebench.backends.simulated.options import SimulatedOptions
from musebench.backends.simulated.shape import StepShape
from musebench.core.errors import UsageError
from musebench.report.schema import Report
from musebench.report.table import Row, Table, pretty


def device_of(report: Report) -> SimulatedDevice:
    """The simulated device that a report was made on.

    Raises:
        UsageError: it was not made on a simulated one.
    """
    facts = report.conditions.model.facts
    if report.conditions.clock != "virtual" or facts is None:
        raise UsageError(f"{report.choices.device} is no simulated device, whose steps can be explained")
    profile = report.choices.device.partition(":")[2]
    return devices.open_device(profile, facts, SimulatedOptions(**report.choices.backend.options))


def mean_step(report: Report) -> tuple[StepShape, str] | None:
    """The rounded means over all steps of the run: so many decodes, one slice of so many prompt tokens, and
    the cells in use shared out among them; and the program that most forwards ran. None without a step."""
    if not report.runs or not len(report.runs[-1].steps):
        return None
    steps = report.runs[-1].steps
    decodes, prefill = (
        round(float(np.mean(column))) for column in (steps.decode_tokens, steps.prefill_tokens)
    )
    queries = [1] * decodes + ([prefill] if prefill else [])
    queries = queries or [1]
    context = max(round(float(np.mean(steps.in_use)) / len(queries)), 1)
    contexts = np.maximum(np.array(queries, np.int64), context)
    program = max(steps.programs, key=lambda name: sum(steps.programs[name]))
    known = {"graph": "graph", "compiled": "compiled"}.get(program, "eager")
    if known == "graph" and report.choices.launched_by == "compiled":
        known = "compiled graph"
    return StepShape(np.array(queries, np.int64), contexts, len(queries)), known


def bound(report: Report) -> str:
    """What bounds the mean step: compute, bandwidth, launch, host or network."""
    device, step = device_of(report), mean_step(report)
    return "the device" if device.bound is None or step is None else device.bound(*step)


def explanation(report: Report) -> Table:
    """Each operation of the mean step, and what the host does beside them: seconds, share, what bounds it.

    Raises:
        UsageError: the report was not made on a simulated device.
    """
    device, step = device_of(report), mean_step(report)
    if step is None or device.explain is None:
        return Table("the mean step", ("seconds", "share", "bound"), ())
    shape, program = step
    rows = tuple(
        Row(
            f"{row.side}: {row.operation}",
            "",
            (pretty(row.seconds, "s"), pretty(row.share, "share"), row.bound),
        )
        for row in device.explain(shape, program)
    )
    prefill = int(shape.queries.max()) if int(shape.queries.max()) > 1 else 0
    decodes = len(shape.queries) - (prefill > 0)
    note = (
        f"{decodes:,} decodes and a slice of {prefill:,} tokens, {int(shape.contexts.min()):,} tokens of "
        f"context each, program {program!r}: bound by {bound(report)}"
    )
    return Table("the mean step", ("seconds", "share", "bound"), rows, notes=(note,))
