"""Lets the engine run a history with a scheduler, and holds every plan against the laws."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from typing import Any

from musebench.core.engine import Engine
from musebench.core.options import NoOptions
from musebench.core.plan import Limits, StepPlan
from musebench.core.protocols import Pool, PoolBounds, Running, Scheduler
from musebench.core.request import FinishReason, Request
from musebench.core.sequence import Phase, Sequence
from musebench.core.stretch import Steady
from musebench.executors.eager import EagerExecutor
from musebench.pools.fixed import FixedOptions, FixedPool
from musebench.pools.geometric import GeometricOptions, GeometricPool
from musebench.testing.fake_backend import FakeBackend, reference
from musebench.testing.laws import scheduler_laws as laws
from musebench.testing.laws.law import History, counted, listed
from musebench.testing.laws.scheduler_histories import RUNNING, STREAM, WAITING, SchedulerHistory

FIRST = 8
"""Of those who wait, so many are held against what planning may change."""

MakeScheduler = Callable[[], Scheduler]


def scheduler_play(make: MakeScheduler) -> Callable[[SchedulerHistory, History], None]:
    """A play of the schedulers that `make()` makes."""

    def play(drawn: SchedulerHistory, history: History) -> None:
        requests = drawn.requests()
        _tell(requests, drawn, history)
        first = _run(make(), drawn, requests, history)
        again = _run(make(), drawn, requests, History())
        same = first.plans == again.plans
        place = next(
            (n for n, pair in enumerate(zip(first.plans, again.plans, strict=False)) if pair[0] != pair[1]), 0
        )
        history.hold(laws.SAME, same, f"plan {place + 1} of the same run is another the second time")

    return play


def _tell(requests: list[Request], drawn: SchedulerHistory, history: History) -> None:
    crowd = drawn.crowd in (WAITING, RUNNING)
    for one in requests[:1] if crowd else requests:
        what = f"{counted(len(one.prompt), 'token')} and {one.max_new_tokens} to make"
        at = f" at {one.arrival_seconds:g} s" if one.arrival_seconds else ""
        history.doing(f"submitting {one.id} with {what}{at}")
    if crowd:
        history.doing(f"submitting {STREAM} short requests, one a second, {drawn.slots} at a time")


def _run(
    scheduler: Scheduler, drawn: SchedulerHistory, requests: list[Request], history: History
) -> _Watched:
    most = max(request.cells_needed for request in requests)
    limits = drawn.limits
    capacity = None if drawn.cells is None else most + drawn.cells
    bounds = PoolBounds(drawn.slots, most, capacity)
    backend: Any = FakeBackend(bounds)
    pool: Pool
    if drawn.pool == "fixed" and capacity is None:
        pool = FixedPool(FixedOptions(), bounds, backend.storage())
    else:
        pool = GeometricPool(GeometricOptions(start=4), bounds, backend.storage())
    watched: Any = _Watched(scheduler, history, len(requests), drawn.slots * most)

    def on_step(engine: Engine) -> None:
        for step, which in drawn.cancels:
            if len(engine.recorder.steps) == step and which < len(requests):
                engine.cancel(requests[which].id)

    executor = EagerExecutor(NoOptions(), backend, limits)
    engine = Engine(watched, pool, executor, backend.clock, limits, drawn.slots, most, drawn.overlap, on_step)
    watched.engine = engine
    engine.run(requests)
    watched.over()
    return watched


@dataclass
class _Promise:
    """What `steady` said of the last plan, and what must not have changed."""

    steps: int
    decodes: tuple[Sequence, ...]
    waiting: tuple[int, ...]
    running: int


class _Watched:
    """A scheduler as the engine sees it."""

    def __init__(self, inner: Scheduler, history: History, requests: int, others: int) -> None:
        self.inner = inner
        self.name = inner.name
        self.history = history
        self.engine: Any = None
        self.plans: list[Any] = []
        self._requests = requests
        self._most_gap = 2 * others
        self._gap: dict[Sequence, int] = {}
        self._started: list[Sequence] = []
        self._overtaken: dict[Sequence, int] = {}
        self._patience: int | None = getattr(inner, "patience", laws.PATIENCE)
        self._promise: _Promise | None = None
        self._preemptions = 0

    def plan(self, waiting: Ordered[Sequence], running: Running, limits: Limits, pool: Pool) -> StepPlan:
        hold, those = self.history.hold, [*running.decoding, *running.prefilling, *waiting[:FIRST]]
        before = _digest(those, running, pool)
        made = self.inner.plan(waiting, running, limits, pool)
        changed = before != _digest(those, running, pool)
        told = self._words(made)
        if made.empty and not self._blocked(running, those):
            hold(laws.PROGRESS, False, f"nothing is planned, and {_names(those)} could run")
        self.history.doing(told)
        hold(laws.READS, not changed, "planning changed a sequence or the pool")
        self._known(made, waiting, running)
        self._limits(made, waiting, running, limits)
        hold(laws.PROGRESS, True, "")
        self._circle()
        self._starving(made, running)
        self._overtaking(made, waiting)
        self._keep(made, waiting, running)
        self.plans.append(self._told(made))
        return made

    # -- one plan -------------------------------------------------------------------------------------

    def _blocked(self, running: Running, those: list[Sequence]) -> bool:
        """Whether an empty plan is right: nobody can run, or a step that is in flight has to land first."""
        return not those or len(running) > len(running.decoding) + len(running.prefilling)

    def _known(self, plan: StepPlan, waiting: Ordered[Sequence], running: Running) -> None:
        hold, planned = self.history.hold, plan.sequences()
        finished = [one for one in planned if one.phase is Phase.FINISHED]
        hold(laws.KNOWN, not finished, f"{_names(finished)} is planned, and has ended")
        twice = [one for one in planned if planned.count(one) > 1]
        hold(laws.KNOWN, not twice, f"{_names(twice[:1])} is planned twice")
        decoding = set(running.decoding)
        wrong = [one for one in plan.decodes if one not in decoding]
        hold(laws.KNOWN, not wrong, f"{_names(wrong)} is planned to decode, and does not decode now")
        there = {*waiting, *running.prefilling, *decoding}
        strange = [one for one in planned if one not in there]
        hold(laws.KNOWN, not strange, f"{_names(strange)} is planned, and neither waits nor can run now")
        for piece in plan.prefills:
            left = piece.sequence.remaining
            fault = f"a slice of {piece.count} tokens of {_names([piece.sequence])}, which has {left} left"
            hold(laws.KNOWN, 1 <= piece.count <= left, fault)

    def _limits(self, plan: StepPlan, waiting: Ordered[Sequence], running: Running, limits: Limits) -> None:
        hold = self.history.hold
        lengths = [piece.count for piece in plan.prefills]
        admitted = sum(piece.sequence in waiting for piece in plan.prefills)
        for what, value, most in (
            ("tokens in a plan", plan.tokens, limits.most_tokens),
            ("sequences in a plan", plan.slices, limits.most_sequences),
            ("sequences running", len(running) + admitted, limits.most_sequences),
            ("tokens of a prefill", max(lengths, default=0), limits.most_prefill),
        ):
            hold(laws.LIMITS, value <= most, f"{value} {what}; at most {most} are allowed")
        for piece in plan.prefills:
            one = piece.sequence
            whole = one.computed == 0 and piece.count == one.remaining
            rest = one.remaining - piece.count
            short = piece.count < limits.fewest_prefill and not whole
            below = f"the fewest of a prefill is {limits.fewest_prefill}"
            hold(laws.FEWEST, not short, f"a slice of {piece.count} tokens of {_names([one])}; {below}")
            hold(
                laws.FEWEST,
                not 0 < rest < limits.fewest_prefill,
                f"a slice of {_names([one])} leaves {rest}; {below}",
            )

    # -- over plans -----------------------------------------------------------------------------------

    def _circle(self) -> None:
        made = self.engine.recorder.preemptions
        most = self._requests * (self._requests - 1)
        self.history.hold(
            laws.PREEMPTIONS, made <= most, f"{made} preemptions of {self._requests} requests; at most {most}"
        )

    def _starving(self, plan: StepPlan, running: Running) -> None:
        served = set(plan.sequences())
        gaps = {}
        for one in (*running.decoding, *running.prefilling):
            gap = gaps[one] = 0 if one in served else self._gap.get(one, 0) + plan.tokens
            fault = f"{_names([one])} runs and was not planned while others computed {gap} tokens"
            self.history.hold(laws.RUNNING, gap <= self._most_gap, f"{fault}; at most {self._most_gap}")
        self._gap = gaps

    def _overtaking(self, plan: StepPlan, waiting: Ordered[Sequence]) -> None:
        starting = [piece.sequence for piece in plan.prefills if piece.sequence.admitted < 0]
        starting = [one for one in starting if one in waiting]
        for one in starting:
            for other in waiting:
                if other.session > one.session and other.admitted < 0:
                    break  # fresh ones wait in the order in which they came
                if other in starting or other.admitted >= 0:
                    continue
                first, later = _names([other]), _names([one])
                fault = f"{later} starts before {first}, which came earlier and differs in nothing else"
                self.history.hold(laws.ORDER, not _alike(one, other), fault)
                self._overtaken[other] = self._overtaken.get(other, 0) + 1
                count = self._overtaken[other]
                if self._patience is None:
                    continue
                fault = f"{first} waits and was overtaken by {count} later requests; at most {self._patience}"
                self.history.hold(laws.WAITING, count <= self._patience, fault)
        if self._patience is None:
            self.history.cannot_judge(laws.WAITING, "its patience is None: any number may overtake")
        elif starting:
            self.history.judged[laws.WAITING.name] += 1
        if starting:
            self.history.judged[laws.ORDER.name] += 1

    def _keep(self, plan: StepPlan, waiting: Ordered[Sequence], running: Running) -> None:
        """What `steady` promised of the plan before, and promises of this one."""
        if not isinstance(self.inner, Steady):
            self.history.cannot_judge(laws.STEADY, "it has no steady, and is asked for every plan")
            return
        ids, promise = tuple(one.session for one in waiting), self._promise
        if promise and promise.steps > 1 and self.plans:
            same = (promise.decodes, promise.waiting, promise.running) == (
                running.decoding,
                ids,
                len(running),
            )
            if same:
                kept = plan.decodes == promise.decodes and not plan.prefills
                fault = f"steady promised {promise.steps} plans like the one before; only the plan changed"
                self.history.hold(laws.STEADY, kept, fault)
        steps = self.inner.steady(plan)
        own = plan.decodes == running.decoding and not plan.prefills
        if promise and promise.steps > 1 and promise.decodes == plan.decodes and own:
            steps = max(steps, promise.steps - 1)
        self._promise = _Promise(steps, plan.decodes, ids, len(running)) if own else None

    # -- the end --------------------------------------------------------------------------------------

    def over(self) -> None:
        hold = self.history.hold
        for sequence in self.engine.recorder.sequences:
            made, wanted = sequence.generated_tokens(), reference(sequence.request)
            if sequence.finish_reason is FinishReason.CANCELLED:
                continue
            right = sequence.finish_reason is not None and sequence.finish_reason.succeeded and made == wanted
            why = sequence.message or f"its tokens are {made}; {wanted} are its own"
            hold(laws.ENDS, right, f"{_names([sequence])} did not end as it should: {why}")
        left = self.engine.pool.in_use
        hold(laws.ENDS, left == 0, f"all requests ended, and {counted(left, 'cell')} are in use")

    def steady(self, plan: StepPlan) -> int:
        return 0

    def _told(self, plan: StepPlan) -> Any:
        return [one.session for one in plan.decodes], [(p.sequence.session, p.count) for p in plan.prefills]

    def _words(self, plan: StepPlan) -> str:
        said = [f"decoding {_names(plan.decodes)}"] if plan.decodes else []
        said += [f"{counted(piece.count, 'token')} of {_names([piece.sequence])}" for piece in plan.prefills]
        return f"planning {listed(said)}"


def _names(sequences: Iterable[Sequence]) -> str:
    return listed(one.request.id for one in sequences)


def _alike(one: Sequence, other: Sequence) -> bool:
    mine, its = one.request, other.request
    return (
        len(mine.prompt) == len(its.prompt)
        and mine.max_new_tokens == its.max_new_tokens
        and mine.tags == its.tags
        and mine.sampling == its.sampling
    )


def _digest(sequences: list[Sequence], running: Running, pool: Pool) -> Any:
    """All that planning must leave alone."""
    those = [(one.session, one.slot, one.phase, one.length, one.computed, one.admitted) for one in sequences]
    counts = pool.rows, pool.in_use, pool.room, pool.generation, len(pool.resizes)
    return those, counts, running.decoding, running.prefilling, len(running)
