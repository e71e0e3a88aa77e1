"""The engine's steps in bulk: what `Engine.step` does one by one, for a stretch of equal decodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from musebench.core.flight import Flight
from musebench.core.packing import Packed
from musebench.core.plan import StepPlan
from musebench.core.protocols import Forward
from musebench.core.stretch import Stretch, StretchOutput

if TYPE_CHECKING:
    from musebench.core.engine import Engine


def advance(engine: Engine, plan: StepPlan) -> bool:
    """Launch as many steps of a plan of decodes as nothing changes, and commit all that is due.

    Leaves everything as that many calls of `Engine.step` would; False when nothing was done because the plan
    has to be stepped.
    """
    made = _launch(engine, plan)
    if made is None:
        return False
    forward, output, left = made
    steps = output.steps
    table, slots, first = engine.table, plan.decode_slots, engine.table.length[plan.decode_slots]
    waiting, running = len(engine.waiting), len(engine.running)
    in_flight = engine._flights.popleft() if engine._flights else None
    apart = in_flight is not None and bool(engine.running.draining)
    engine.pool.reserve_steps(plan, 1 if apart else steps)  # type: ignore[attr-defined]
    in_use = [engine.pool.in_use - (steps - 1) * len(slots) if not apart else engine.pool.in_use]
    if in_flight is not None:
        engine._commit(in_flight, output.returned[0])  # who ends there gives cells back after the first step
    if apart and steps > 1:
        engine.pool.reserve_steps(plan, steps - 1)  # type: ignore[attr-defined]
    last_in_use = engine.pool.in_use
    in_use += [last_in_use - ahead * len(slots) for ahead in range(steps - 2, -1, -1)]
    runnings = [running] + [len(engine.running)] * (steps - 1)

    # Its sums are still those of the first of these steps.
    flight = Flight(plan, engine._steps + steps - 1, output.starts[-1], waiting, runnings[-1])
    if steps > 1:
        table.land_steps(slots, first, steps - 1, output.token, len(engine.recorder.steps))
        _record(engine, forward, output, in_use, waiting, runnings, flight.attended_cells)
    table.computed[slots] += steps
    table.length[slots] += steps
    positions = first + (steps - 1)
    table.expect(slots, positions)
    flight.computed, flight.lengths = flight.computed + (steps - 1), positions
    flight.launched, flight.rows, flight.in_use = output.launched[-1], engine.pool.rows + 1, in_use[-1]
    flight.generation = engine.pool.generation
    flight.attended_cells += (steps - 1) * len(slots)
    flight.add(Packed(forward.outline(), slots, positions), output.last)
    flight.close()
    flight.attended_pairs = flight.attended_cells
    engine._steps += steps
    if steps == left:
        engine._drain_full(flight)
    engine._flights.append(flight)
    if not engine.overlap:
        engine._commit(engine._flights.popleft())
    elif engine.on_step is not None:
        engine.on_step(engine)
    return True


def _launch(engine: Engine, plan: StepPlan) -> tuple[Forward, StretchOutput, int] | None:
    """What was launched, and after how many steps somebody has the last token."""
    if plan.prefills or not plan.decodes:
        return None
    if engine.running.draining and (engine.waiting or engine._followers):
        return None  # who waits may come in, and who follows arrives, once the step in flight has come back
    table, slots = engine.table, plan.decode_slots
    left = int((table.limit[slots] - table.length[slots]).min())
    steps = min(
        engine.scheduler.steady(plan),  # type: ignore[attr-defined]
        engine.pool.lasting(plan),  # type: ignore[attr-defined]
        left,
    )
    if steps < 1:
        return None
    forwards = engine.executor.cut(plan)
    if len(forwards) != 1 or forwards[0].plan is not plan:
        return None
    output = engine.executor.stretch(  # type: ignore[attr-defined]
        Stretch(
            forward=forwards[0],
            generation=engine.pool.generation,
            contexts=(table.computed[slots] + 1).astype(np.int64),
            steps=steps,
            arrival=engine._future[0][0] if engine._future else float("inf"),
            origin=engine._origin,
            overlap=engine.overlap,
            in_flight=bool(engine._flights),
        )
    )
    return None if output is None else (forwards[0], output, left)


def _record(
    engine: Engine,
    forward: Forward,
    output: StretchOutput,
    in_use: list[int],
    waiting: int,
    running: list[int],
    attended_cells: int,
) -> None:
    """The steps of a stretch but its last, which is committed as any other."""
    origin, steps = engine._origin, output.steps - 1
    starts, launched = output.starts[:steps], output.launched[:steps]
    # With overlap a step's tokens are there when the host has waited after launching the next one.
    ends = output.returned[1:] if engine.overlap else output.returned[:steps]
    sequences = len(forward.plan.decodes)
    # Every sequence attends to one cell more each step.
    attended = [attended_cells + ahead * sequences for ahead in range(steps)]
    engine.recorder.steps.extend(
        {forward.program: 1},
        {
            "start": [start - origin for start in starts],
            "end": [end - origin for end in ends],
            "device_seconds": output.device_seconds[:steps],
            "host_seconds": [end - start for start, end in zip(starts, launched, strict=True)],
        },
        {
            "decode_tokens": sequences,
            "prefill_tokens": 0,
            "padded_tokens": forward.padded_tokens,
            "sequences": sequences,
            "rows": engine.pool.rows + 1,
            "in_use": in_use[:steps],
            "generation": engine.pool.generation,
            "waiting": waiting,
            "running": running[:steps],
            "attended_cells": attended,
            "attended_pairs": attended,
            "logit_rows": sequences,
        },
    )
