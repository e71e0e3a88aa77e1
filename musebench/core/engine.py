"""The engine: the only one that moves state forward.

A step is planned, admitted, reserved and launched (`Engine._launch`), and committed when its tokens have come
back (`Engine._commit`); with `overlap` the next step is launched in between, and its decodes read the tokens
on the device. A launch that fails is rolled back: nothing advanced, no cell lost.

Its parts: musebench.core.intake (requests until they arrive), musebench.core.admission (who waits, runs and
has which slot), musebench.core.launch (cells, execution, rollback), musebench.core.stretching (many steps at
once).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

from musebench.core.admission import Admission, entering
from musebench.core.answers import wrong
from musebench.core.clock import sleep_to
from musebench.core.errors import PoolFull, StepFailed
from musebench.core.flight import Flight
from musebench.core.intake import Intake, broken, refusal
from musebench.core.interrupt import RunInterrupted
from musebench.core.launch import Launcher, Packer
from musebench.core.packing import pack
from musebench.core.plan import Limits, StepPlan
from musebench.core.planning import check_plan
from musebench.core.protocols import Clock, Executor, Pool, Scheduler
from musebench.core.recorder import Recorder
from musebench.core.request import FinishReason, Request
from musebench.core.sequence import Phase, Sequence, SequenceTable
from musebench.core.sharing import sharing_of
from musebench.core.stretch import Lasting, Steady, Stretching
from musebench.core.stretching import advance
from musebench.core.waiting import Offered


class Engine:
    """Serves requests with one scheduler, pool and executor.

    `limits` are what a plan keeps; `max_sessions` slots are there, and no step has more sequences. `on_step`
    is called after each commit with the engine; `on_failure` with each step that failed: True means that it
    may be tried again. With `overlap` one step may be in flight while the next is planned. `packer` makes the
    batches of what `table` (of `max_sessions` slots; None: one that keeps all token ids) holds. With `bulk`
    stretches of equal decodes are taken at once where scheduler, pool and executor can
    (musebench.core.stretch); `on_step` is then called once a stretch.

    Who hands requests over while it runs (musebench.core.fleet) sets `on_finish`, called with each sequence
    that has ended, where that may bring another request, and `horizon`, the time (seconds of the run) from
    which on one may come.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        pool: Pool,
        executor: Executor,
        clock: Clock,
        limits: Limits,
        max_sessions: int,
        max_context: int | None = None,
        overlap: bool = False,
        on_step: Callable[[Engine], None] | None = None,
        on_failure: Callable[[Engine, StepFailed], bool] | None = None,
        packer: Packer = pack,
        table: SequenceTable | None = None,
        bulk: bool = False,
    ) -> None:
        self.scheduler = scheduler
        self.pool = pool
        self.executor = executor
        self.clock = clock
        self.limits = replace(limits, most_sequences=min(limits.most_sequences, max_sessions))
        self.max_context = max_context
        self.overlap = overlap
        self.on_step = on_step
        self.on_failure = on_failure
        self.bulk = (
            bulk
            and isinstance(scheduler, Steady)
            and isinstance(pool, Lasting)
            and isinstance(executor, Stretching)
        )
        self.sharing = sharing_of(pool)
        self.recorder = Recorder()
        self.table = SequenceTable(max_sessions) if table is None else table
        self.intake = Intake(self.table, self.recorder)
        self.admission = Admission(self.table, pool, self.sharing)
        self.launcher = Launcher(pool, executor, packer, self.table, self.admission, self.recorder)
        self.waiting, self.running = self.admission.waiting, self.admission.running
        self.on_finish: Callable[[Sequence], None] | None = None
        self.horizon = math.inf
        self._by_id = self.intake.by_id
        self._free_slots = self.admission.free_slots
        self._flights: deque[Flight] = deque()
        self._torn = False  # a launch failed while another step was in flight
        self._origin = 0.0
        self.interrupted = False
        self.resting = False

    # -- requests -------------------------------------------------------------------------------------

    def submit(self, request: Request) -> Sequence:
        """Take a request; what could never fit, or asks for nothing, ends at once.

        Raises:
            ValueError: an id that was submitted before, or a turn after one that was not.
        """
        return self.intake.submit(request)

    def refuse(self, request: Request, reason: FinishReason, message: str) -> None:
        """Take a request that ends at once, for a reason that lies elsewhere."""
        sequence = self.submit(replace(request, after=None))
        self.intake.withdraw(sequence)
        self._finish(sequence, reason, message)

    def cancel(self, request_id: str) -> bool:
        """End a request in whatever phase it is; False when it had ended before. Others are untouched.

        What is in flight lands first; a step that fails there ends the requests in it, as in `run`.

        Raises:
            KeyError: no request of that id was submitted.
        """
        sequence = self._by_id[request_id]
        self._settle_all()
        if sequence.phase is Phase.FINISHED:
            return False
        if not sequence.slot and sequence not in self.waiting:
            self.intake.withdraw(sequence)
        self._finish(sequence, FinishReason.CANCELLED)
        return True

    @property
    def future(self) -> Iterable[Sequence]:
        """Those that were submitted and have not arrived, in no order."""
        return self.intake.future

    @property
    def brings(self) -> bool:
        """Whether an end may bring a request."""
        return self.intake.brings or self.on_finish is not None

    @property
    def idle(self) -> bool:
        """Nothing runs, waits or will arrive."""
        return not (self.running or self.waiting or self._flights or self.intake.next_arrival < math.inf)

    def now(self) -> float:
        """Seconds since the run started."""
        return self.clock.now() - self._origin

    # -- the loop -------------------------------------------------------------------------------------

    def run(self, requests: Iterable[Request] = (), concurrency: int | None = None) -> Recorder:
        """Submit `requests` and step until all have ended. A step that fails ends the requests in it, with
        the error as their message; the others go on. With `concurrency` so many are submitted at first, and
        the next one arrives when one has ended."""
        self.intake.take(requests, concurrency)
        self.begin()
        while not self.idle:
            self.go_on()
        return self.recorder

    def begin(self) -> None:
        """The run starts now."""
        if self.sharing is not None:
            self.sharing.forget()  # the run before had the same prompts
        self._origin = self.clock.now()

    def go_on(self) -> None:
        """One `step`; what fails there ends the requests in it.

        Raises:
            RunInterrupted: `interrupted` is set, see musebench.core.interrupt.
        """
        if self.interrupted:
            raise RunInterrupted
        try:
            self.step()
        except StepFailed as failure:
            self.condemn(failure)

    def condemn(self, failure: StepFailed) -> None:
        """End the sequences of a failed step, if `on_failure` has no better idea; the step itself was rolled
        back already."""
        if self.on_failure is not None and self.on_failure(self, failure):
            return
        message = str(failure)
        self.recorder.failures.append(message)
        condemned = set(failure.sessions)
        self._settle_all()  # what is in flight was launched before the failure, and counts
        for sequence in [*self.running.all(), *self.waiting]:
            if sequence.session in condemned:
                self._finish(sequence, FinishReason.FAILED, message)

    def narrow(self, limits: Limits) -> None:
        """Plan within `limits` from here on; who runs beyond them is preempted, the newest first."""
        self._settle_all()
        self.limits = limits
        while len(self.running) > limits.most_sequences and (newest := self.running.newest()):
            self._preempt(newest)

    def step(self) -> None:
        """Launch one step, and commit what is due. Waits for the next arrival when nothing else can be done.

        Raises:
            StepFailed: the step was rolled back; the engine can go on.
        """
        self._arrive()
        if not self.running and not self.waiting:
            if self._flights:
                self._settle()
            elif self.intake.next_arrival < math.inf:
                self.resting = True
                sleep_to(self.clock, self._origin, self.intake.next_arrival)
                self.resting = False
            return
        if self._torn:
            # Part of the failed launch may have run: the device's last tokens are no longer those of the step
            # in flight, so the host has to know them before they are wanted.
            self._torn = False
            self._settle()
        start = self.clock.now()
        plan = None
        if self.bulk and self.running.decoding and not self.running.prefilling:
            plan = self._plan(len(self.waiting))
            if advance(self, plan):
                return
        flight = self._launch(start, plan)
        if flight is not None:
            self._flights.append(flight)
        while len(self._flights) > (1 if self.overlap and flight is not None else 0):
            self._commit(self._flights.popleft())

    def _settle(self) -> None:
        while self._flights:
            self._commit(self._flights.popleft())

    def _settle_all(self) -> None:
        """Commit what is in flight; sequences of a step that fails there end."""
        while self._flights:
            try:
                self._settle()
            except StepFailed as failure:
                self.condemn(failure)

    def _arrive(self) -> None:
        for sequence in self.intake.arrived(self.now()):
            if sequence.request.max_new_tokens == 0:
                self._finish(sequence, FinishReason.LENGTH)
            elif message := refusal(sequence.request, self.pool, self.max_context):
                self._finish(sequence, FinishReason.REFUSED, message)
            else:
                self.waiting.append(sequence)

    # -- launch ---------------------------------------------------------------------------------------

    def _plan(self, offered: int) -> StepPlan:
        """The scheduler's plan, with the first `offered` of those who wait; held against what it may plan."""
        plan = self.scheduler.plan(Offered(self.waiting, offered), self.running, self.limits, self.pool)
        if not isinstance(plan, StepPlan):
            raise wrong(plan, "a StepPlan", self.scheduler, "plan")
        if not plan.empty:
            plan = plan.slots_from(self.running.slots_of)
            try:
                check_plan(plan, self.running, self.limits, len(self._free_slots))
            except ValueError as error:
                raise RuntimeError(f"scheduler {self.scheduler.name!r} made a wrong plan: {error}") from error
        return plan

    def _launch(self, start: float, given: StepPlan | None = None) -> Flight | None:
        """Plan (unless the plan is given) and launch one step; None when there was nothing to launch before
        flights have landed."""
        before = len(self.waiting), len(self.running)
        offered = len(self.waiting)
        while True:
            plan, given = given or self._plan(offered), None
            if plan.empty:
                if self._flights or not (self.running or self.waiting):
                    return None
                raise RuntimeError(
                    f"scheduler {self.scheduler.name!r} planned nothing with {len(self.running)} running and "
                    f"{len(self.waiting)} waiting sequences"
                )
            plan, admitted = self.admission.admit(plan, self.limits)
            try:
                cells = self.launcher.reserve(plan, admitted)
                break
            except PoolFull as full:
                offered = self._make_room(plan, offered, full)
        flight = Flight(plan, self.launcher.steps, start, *before)
        flight.admitted = admitted
        try:
            self.launcher.launch(flight, cells, start - self._origin)
        except StepFailed:
            self._torn = True
            raise
        flight.launched = self.clock.now()
        return flight

    def _make_room(self, plan: StepPlan, offered: int, full: PoolFull) -> int:
        """The pool was full for a plan with the first `offered` of those who wait: how many the next plan is
        offered. Preempts the newest running sequence where nothing else helps; alone, the one that cannot
        fit ends."""
        admitted = entering(plan)
        if self._flights:
            self._settle()  # sequences that end there give their cells back
            return len(self.waiting)
        if admitted and (self.running or offered > 1):
            # Nobody who runs makes room for one who waits: fewer are offered.
            return min(offered, len(admitted)) - 1
        newest = self.running.newest()
        if newest is None or len(self.running) == 1:  # nothing drains here: flights have landed
            blocked = newest or plan.sequences()[0]
            message = f"request {blocked.request.id!r}: pool is full: {full}"
            self._finish(blocked, FinishReason.FAILED, message)
        else:
            self._preempt(newest)
        return 0 if self.running else len(self.waiting)

    def _preempt(self, sequence: Sequence) -> None:
        self.admission.preempt(sequence, self.now())
        self.recorder.preemptions += 1

    # -- commit ---------------------------------------------------------------------------------------

    def _commit(self, flight: Flight, end: float | None = None) -> None:
        """Take a step's tokens over; `end` is when they came back, where the clock is past it already."""
        try:
            tokens = flight.wait()
        except Exception as error:
            failed = [flight, *self._flights]
            self._flights.clear()
            raise self.launcher.undo(failed, error) from error
        past = end is not None
        end = self.clock.now() if end is None else end
        now = end - self._origin
        self.recorder.add_margins(flight)
        ended = self.table.land(flight, tokens, len(self.recorder.steps))
        for sequence in flight.first_tokens():
            if sequence.first_token_seconds is None:
                sequence.first_token_seconds = now
        try:
            for sequence, stopped in ended:
                if stopped:  # seen while the next step was in flight
                    for later_flight in self._flights:
                        later_flight.drop(sequence.slot)
                sequence.last_token_seconds = now
                self._finish(sequence, FinishReason.STOP if stopped else FinishReason.LENGTH, now=now)
        finally:  # its tokens have landed, whatever an end raises: they name this row
            start, seconds = flight.start - self._origin, flight.device_seconds
            host = (flight.launched - flight.start) + (0.0 if past else self.clock.now() - end)
            self.recorder.steps.add(start, now, seconds, host, flight.programs, flight.counts())
        if self.on_step is not None and not past:
            self.on_step(self)

    def _finish(
        self, sequence: Sequence, reason: FinishReason, message: str | None = None, now: float | None = None
    ) -> None:
        self.admission.leave(sequence)
        sequence.phase = Phase.FINISHED
        sequence.finish_reason = reason
        sequence.message = message
        sequence.finish_seconds = self.now() if now is None else now
        self.recorder.ended.append(sequence)
        turn = self.intake.go_on_from(sequence)
        if turn is not None:
            self._finish(turn, reason, broken(turn.request, sequence), sequence.finish_seconds)
        if self.on_finish is not None:
            self.on_finish(sequence)
        self.intake.follow(sequence)
        if sequence.last_token_seconds is None:
            sequence.last_token_seconds = self.recorder.last_token_seconds(sequence)
