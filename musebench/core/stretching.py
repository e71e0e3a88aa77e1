"""The engine's steps in bulk: what `Engine.step` does one by one, for a stretch of equal decodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from musebench.core.flight import Flight
from musebench.core.outline import outline
from musebench.core.plan import StepPlan
from musebench.core.protocols import Forward
from musebench.core.steplog import StepCounts
from musebench.core.stretch import Stretch, StretchOutput
from musebench.core.table import NOWHERE

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
    steps, count = output.steps, len(plan.decodes)
    table, pool = engine.table, engine.pool
    waiting, running = len(engine.waiting), len(engine.running)
    in_flight = engine._flights.popleft() if engine._flights else None
    # Who ends in the step in flight gives cells back after the first of these steps.
    apart = in_flight is not None and bool(engine.running.draining)
    pool.reserve_steps(plan, 1 if apart else steps)  # type: ignore[attr-defined]
    first_in_use = pool.in_use - (0 if apart else (steps - 1) * count)
    if in_flight is not None:
        engine._commit(in_flight, output.returned[0])
    if apart and steps > 1:
        pool.reserve_steps(plan, steps - 1)  # type: ignore[attr-defined]

    if steps > 1:
        cells = table.attended(plan)
        table.decoded(plan, steps - 1, output.token, len(engine.recorder.steps))
        counts = StepCounts(
            count, 0, forward.padded_tokens, count, pool.rows + 1, first_in_use, pool.generation, waiting,
            running, cells, cells, count,
        )  # fmt: skip
        _record(engine, forward, output, 0, 1 if apart else steps - 1, counts)
        if apart:
            later = counts._replace(
                in_use=pool.in_use - (steps - 2) * count,
                running=len(engine.running),
                attended_cells=cells + count,
                attended_pairs=cells + count,
            )
            _record(engine, forward, output, 1, steps - 1, later)
    last = Flight(
        plan,
        engine.launcher.steps + steps - 1,
        output.starts[-1],
        waiting,
        running if steps == 1 else len(engine.running),
    )
    last.launched, last.rows, last.generation = output.launched[-1], pool.rows + 1, pool.generation
    last.in_use = pool.in_use if steps > 1 else first_in_use
    packed = outline(forward, table, NOWHERE, pool.generation)
    last.add(packed, output.last)
    table.launched(plan, packed)
    engine.launcher.steps += steps
    if steps == left:
        engine.admission.drain_full(last)
    engine._flights.append(last)
    if not engine.overlap:
        engine._commit(engine._flights.popleft())
    elif engine.on_step is not None:
        engine.on_step(engine)
    return True


def _launch(engine: Engine, plan: StepPlan) -> tuple[Forward, StretchOutput, int] | None:
    """What was launched, and after how many steps somebody has the last token."""
    if plan.prefills or not plan.decodes:
        return None
    if engine.running.draining and (engine.waiting or engine.brings):
        return None  # who waits may come in, and who follows arrives, once the step in flight has come back
    left = engine.table.least_left(plan)
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
            contexts=engine.table.contexts(plan),
            steps=steps,
            arrival=min(engine.intake.next_arrival, engine.horizon),
            origin=engine._origin,
            overlap=engine.overlap,
            in_flight=bool(engine._flights),
        )
    )
    return None if output is None else (forwards[0], output, left)


def _record(
    engine: Engine, forward: Forward, output: StretchOutput, first: int, end: int, counts: StepCounts
) -> None:
    """The steps `first` to before `end` of a stretch, never its last, which is committed as any other."""
    origin = engine._origin
    starts, launched = output.starts[first:end], output.launched[first:end]
    # With overlap a step's tokens are there when the host has waited after launching the next one.
    ahead = 1 if engine.overlap else 0
    ends = output.returned[first + ahead : end + ahead]
    engine.recorder.steps.extend(
        [start - origin for start in starts],
        [end - origin for end in ends],
        output.device_seconds[first:end],
        [end - start for start, end in zip(starts, launched, strict=True)],
        {forward.program: 1},
        counts,
        rise=counts.decode_tokens,  # every sequence has and attends to one cell more each step
    )
