"""The engine: the only one that moves state forward.

A step is launched (planned, reserved, packed, executed) and committed when its tokens have come back; with
`overlap` the next step is planned and launched in between, and its decodes read the tokens on the device. A
launch that fails is rolled back: nothing advanced, no cell lost.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from musebench.core.errors import PoolFull, StepFailed
from musebench.core.flight import Flight, Lineup
from musebench.core.packing import Packed, pack
from musebench.core.plan import Limits, StepPlan
from musebench.core.planning import check_plan
from musebench.core.protocols import Clock, Executor, Pool, Scheduler
from musebench.core.recorder import GrowthRecord, Recorder
from musebench.core.request import FinishReason, Request, continued
from musebench.core.sequence import Phase, Sequence, SequenceTable
from musebench.core.sharing import adopt, sharing_of
from musebench.core.steplog import StepCounts
from musebench.core.stretch import Lasting, Steady, Stretching
from musebench.core.stretching import advance
from musebench.core.waiting import Offered, WaitingLine

Packer = Callable[..., Packed]
"""`musebench.core.packing.pack`, or a function of the same arguments that leaves contents out."""

NAMED = 4
"""Most requests that a failure names one by one."""


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
        self.packer = packer
        self.bulk = (
            bulk
            and isinstance(scheduler, Steady)
            and isinstance(pool, Lasting)
            and isinstance(executor, Stretching)
        )
        self.sharing = sharing_of(pool)
        self.recorder = Recorder()
        self.table = SequenceTable(max_sessions) if table is None else table
        self.waiting = WaitingLine()
        self.running = Lineup(self.table)
        self._future: list[tuple[float, int, Sequence]] = []
        self._by_id: dict[str, Sequence] = {}
        self._free_slots = list(range(1, max_sessions + 1))
        self._flights: deque[Flight] = deque()
        self._followers: deque[Request] = deque()  # each arrives when somebody has ended
        self._turns: dict[str, Sequence] = {}  # by the id of the request that they go on from
        self.on_finish: Callable[[Sequence], None] | None = None
        self.horizon = math.inf
        self._sessions = 0
        self._admissions = 0
        self._steps = 0
        self._resizes_seen = len(pool.resizes)
        self._edits: tuple[tuple[int, int, np.ndarray], ...] = ()  # of the cell table, not yet sent
        self._torn = False  # a launch failed while another step was in flight
        self._origin = 0.0

    # -- requests -------------------------------------------------------------------------------------

    def submit(self, request: Request) -> Sequence:
        """Take a request; what could never fit, or asks for nothing, ends at once.

        Raises:
            ValueError: an id that was submitted before, or a turn after one that was not.
        """
        if request.id in self._by_id:
            raise ValueError(f"request {request.id!r} was submitted before")
        sequence = Sequence(self._sessions, request, self.table)
        self._sessions += 1
        self._by_id[request.id] = sequence
        self.recorder.sequences.append(sequence)
        if request.after is None:
            self._expect(sequence)
        elif request.after.former not in self._by_id:
            raise ValueError(
                f"request {request.id!r} goes on from {request.after.former!r}, which is not known"
            )
        else:
            self._turns[request.after.former] = sequence
        return sequence

    def _expect(self, sequence: Sequence) -> None:
        heapq.heappush(self._future, (sequence.arrival_seconds, sequence.session, sequence))

    def refuse(self, request: Request, reason: FinishReason, message: str) -> None:
        """Take a request that ends at once, for a reason that lies elsewhere."""
        self._finish(self.submit(replace(request, after=None)), reason, message)
        self._future = [entry for entry in self._future if entry[2].phase is not Phase.FINISHED]
        heapq.heapify(self._future)

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
        if not sequence.slot and sequence not in self.waiting:  # or its arrival would still be waited for
            self._future = [entry for entry in self._future if entry[2] is not sequence]
            heapq.heapify(self._future)
        self._finish(sequence, FinishReason.CANCELLED)
        return True

    @property
    def future(self) -> Iterable[Sequence]:
        """Those that were submitted and have not arrived, in no order."""
        return (entry[2] for entry in self._future)

    @property
    def brings(self) -> bool:
        """Whether an end may bring a request."""
        return bool(self._followers or self._turns or self.on_finish is not None)

    @property
    def idle(self) -> bool:
        """Nothing runs, waits or will arrive."""
        return not (self.running or self.waiting or self._future or self._flights)

    def now(self) -> float:
        """Seconds since the run started."""
        return self.clock.now() - self._origin

    # -- the loop -------------------------------------------------------------------------------------

    def run(self, requests: Iterable[Request] = (), concurrency: int | None = None) -> Recorder:
        """Submit `requests` and step until all have ended. A step that fails ends the requests in it, with
        the error as their message; the others go on. With `concurrency` so many are submitted at first, and
        the next one arrives when one has ended."""
        self._followers = deque(requests)
        while self._followers and (concurrency is None or len(self._by_id) < concurrency):
            self.submit(self._followers.popleft())
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
        """One `step`; what fails there ends the requests in it."""
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
            elif self._future:
                self._sleep(self._future[0][0])
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

    def _sleep(self, arrival: float) -> None:
        """Until `now` reaches `arrival`. (origin + arrival) - origin can round below arrival, where a virtual
        clock would stand for ever."""
        until = self._origin + arrival
        self.clock.sleep_until(until)
        while self.now() < arrival:
            until = math.nextafter(until, math.inf)
            self.clock.sleep_until(until)

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
        now = self.now()
        while self._future and self._future[0][0] <= now:
            sequence = heapq.heappop(self._future)[2]
            if sequence.request.max_new_tokens == 0:
                self._finish(sequence, FinishReason.LENGTH)
            elif message := self._refusal(sequence.request):
                self._finish(sequence, FinishReason.REFUSED, message)
            else:
                self.waiting.append(sequence)

    def _refusal(self, request: Request) -> str | None:
        """Why a request could not even run alone, by name and with the sum."""
        needed = request.cells_needed
        why = self.pool.refusal(needed)
        if self.max_context is not None and needed > self.max_context:
            why = (
                f"needs {needed:,} tokens of context; a session has {self.max_context:,}; raise --max-context"
            )
        if why is None:
            return None
        asked = f"{len(request.prompt):,} prompt + {request.max_new_tokens:,} new tokens"
        return f"request {request.id!r} ({asked}) {why}"

    # -- launch ---------------------------------------------------------------------------------------

    def _plan(self, offered: int) -> StepPlan:
        """The scheduler's plan, with the first `offered` of those who wait; held against what it may plan."""
        plan = self.scheduler.plan(Offered(self.waiting, offered), self.running, self.limits, self.pool)
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
        waiting_before, running_before = len(self.waiting), len(self.running)
        offered = len(self.waiting)
        while True:
            plan, given = given or self._plan(offered), None
            if plan.empty:
                if self._flights:
                    return None
                if not self.running and not self.waiting:
                    return None
                raise RuntimeError(
                    f"scheduler {self.scheduler.name!r} planned nothing with {len(self.running)} running and "
                    f"{len(self.waiting)} waiting sequences"
                )
            admitted = self._admit(plan)
            if admitted and self.sharing is not None:
                plan = adopt(self.sharing, plan, admitted, self.limits)
            try:
                cells = self.pool.reserve(plan)
                break
            except PoolFull as full:
                self._dismiss(admitted)
                if self._flights:
                    self._settle()  # sequences that end there give their cells back
                    offered = len(self.waiting)
                elif admitted and (self.running or offered > 1):
                    # Nobody who runs makes room for one who waits: fewer are offered.
                    offered = min(offered, len(admitted)) - 1
                else:
                    self._make_room(plan, full)
                    offered = 0 if self.running else len(self.waiting)
            except Exception as error:
                self._dismiss(admitted)
                self.recorder.failed_steps += 1
                raise self._failed(self._steps, plan, error, reserving=True) from error
        flight = Flight(plan, self._steps, start, waiting_before, running_before)
        flight.admitted = admitted
        pool = self.pool
        flight.rows, flight.in_use, flight.generation = pool.rows + 1, pool.in_use, pool.generation
        self._note_growth()
        try:
            self._execute(flight, cells)
        except Exception as error:
            self._rollback(flight)
            self._torn = True
            raise self._failed(flight.step, plan, error) from error
        self._steps += 1
        flight.launched = self.clock.now()
        return flight

    def _admit(self, plan: StepPlan) -> list[Sequence]:
        """Give slots to the waiting sequences of a plan; they are among its prefills."""
        admitted = [piece.sequence for piece in plan.prefills if not piece.sequence.slot]
        for sequence in admitted:
            sequence.enter(heapq.heappop(self._free_slots))
        return admitted

    def _dismiss(self, admitted: list[Sequence]) -> None:
        """Take back slots given by `_admit`, and cells with them; the sequences wait where they waited."""
        for sequence in admitted:
            sequence.reused -= sequence.computed
            self._vacate(sequence)

    def _make_room(self, plan: StepPlan, full: PoolFull) -> None:
        """Preempt the newest running sequence; alone, the one that cannot fit ends."""
        newest = self.running.newest()
        if newest is None or len(self.running) == 1:  # nothing drains here: flights have landed
            blocked = newest or plan.sequences()[0]
            self._finish(
                blocked, FinishReason.FAILED, f"request {blocked.request.id!r}: pool is full: {full}"
            )
            return
        self._preempt(newest)

    def _preempt(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._vacate(sequence)
        sequence.phase = Phase.WAITING
        sequence.preemptions += 1
        sequence.pauses += (self.now(),)
        self.recorder.preemptions += 1
        self._requeue(sequence)

    def _requeue(self, sequence: Sequence) -> None:
        """Let a sequence that was admitted before wait ahead of those that were not, the oldest first."""
        place = sum(1 for one in self.waiting if 0 <= one.admitted < sequence.admitted)
        self.waiting.insert(place, sequence)

    def _vacate(self, sequence: Sequence) -> None:
        """Give back a sequence's cells and slot; its tokens stay with it."""
        slot = sequence.leave()
        self.pool.release(slot)
        heapq.heappush(self._free_slots, slot)

    def _note_growth(self) -> None:
        for rows, held, resize in self.pool.resizes[self._resizes_seen :]:
            self.recorder.growths.append(GrowthRecord(self._steps, rows, held, resize))
        self._resizes_seen = len(self.pool.resizes)

    def _execute(self, flight: Flight, cells: np.ndarray) -> None:
        table, at = self.table, 0
        # Those of a launch that failed may not have reached the device; sent twice, they say the same.
        edits = self._edits = (*self._edits, *self.pool.take_edits())
        for forward in self.executor.cut(flight.plan):
            count = forward.plan.tokens
            packed = self.packer(forward, table, cells[at : at + count], flight.generation, edits)
            edits = ()
            at += count
            flight.add(packed, self.executor.execute(packed.batch))
            self._edits = ()
            table.launched(forward.plan, packed)
        if at != len(cells):
            raise RuntimeError(
                f"executor {self.executor.name!r} cut {len(cells)} tokens into forwards of {at}"
            )
        self._line_up(flight)

    def _line_up(self, flight: Flight) -> None:
        """Put the sequences of a launched step where the next plan finds them."""
        running = self.running
        now = flight.start - self._origin
        for sequence in flight.admitted:
            self.waiting.remove(sequence)
            if sequence.admitted < 0:
                sequence.admitted = self._admissions
                self._admissions += 1
                sequence.scheduled_seconds = (
                    now if sequence.scheduled_seconds is None else sequence.scheduled_seconds
                )
            if len(sequence.pauses) % 2:
                sequence.pauses += (now,)
            sequence.phase = Phase.PREFILL
            running.add(sequence)
        for piece in flight.plan.prefills:
            if piece.sequence.remaining == 1 and piece.sequence.generated > 0:
                piece.sequence.phase = Phase.DECODE
                running.to_decode(piece.sequence)
        self._drain_full(flight)

    def _drain_full(self, flight: Flight) -> None:
        """Sequences whose last token is on its way are planned no more."""
        flight.ending = self.table.ending(flight)
        for sequence in flight.ending:
            self.running.drain(sequence)

    def _rollback(self, flight: Flight) -> None:
        """Undo a launch: counts, lengths and cells are as before it, admitted sequences wait again."""
        self.recorder.failed_steps += 1
        self.table.undo(flight)
        for sequence in flight.sequences:
            if sequence.slot:
                self.pool.rewind(sequence.slot, sequence.computed)
        for sequence in flight.admitted:
            self.running.remove(sequence)
            sequence.reused -= sequence.computed
            self._vacate(sequence)
            sequence.phase = Phase.WAITING
            if sequence.pauses and len(sequence.pauses) % 2 == 0:
                sequence.pauses = sequence.pauses[:-1]  # admitted again by this launch: still paused
            if sequence not in self.waiting:
                self._requeue(sequence)
        for sequence in flight.sequences:
            if sequence.slot:
                self.running.restore(sequence)

    # -- commit ---------------------------------------------------------------------------------------

    def _commit(self, flight: Flight, end: float | None = None) -> None:
        """Take a step's tokens over; `end` is when they came back, where the clock is past it already."""
        try:
            tokens = flight.wait()
        except Exception as error:
            later = list(self._flights)
            self._flights.clear()
            for after in reversed(later):
                self._rollback(after)
            self._rollback(flight)
            self._take_back_row(flight.step)
            raise self._failed(flight.step, flight.plan, error) from error
        past = end is not None
        end = self.clock.now() if end is None else end
        now = end - self._origin
        if flight.margins is not None:
            self._note_margins(flight)
        ended = self.table.land(flight, tokens, len(self.recorder.steps))
        for sequence in flight.first_tokens():
            if sequence.first_token_seconds is None:
                sequence.first_token_seconds = now
        for sequence, stopped in ended:
            if stopped:  # seen while the next step was in flight
                for later_flight in self._flights:
                    later_flight.drop(sequence.slot)
            sequence.last_token_seconds = now
            self._finish(sequence, FinishReason.STOP if stopped else FinishReason.LENGTH, now=now)
        host = (flight.launched - flight.start) + (0.0 if past else self.clock.now() - end)
        plan, decodes = flight.plan, len(flight.plan.decodes)
        self.recorder.steps.add(
            flight.start - self._origin, now, flight.device_seconds, host, flight.programs,
            StepCounts(
                decodes, plan.tokens - decodes, flight.padded_tokens, plan.slices, flight.rows, flight.in_use,
                flight.generation, flight.waiting, flight.running, flight.attended_cells,
                flight.attended_pairs, flight.logit_rows,
            ),
        )  # fmt: skip
        if self.on_step is not None and not past:
            self.on_step(self)

    def _failed(self, step: int, plan: StepPlan, error: Exception, reserving: bool = False) -> StepFailed:
        """The failure of a step: of all that was in it, or of those whom the error blames."""
        prefill = plan.tokens - len(plan.decodes)
        everybody = plan.sequences()
        names = ", ".join(repr(sequence.request.id) for sequence in everybody[:NAMED])
        more = f" and {len(everybody) - NAMED:,} more" if len(everybody) > NAMED else ""
        return StepFailed(
            step,
            getattr(error, "sessions", None) or [sequence.session for sequence in everybody],
            error,
            f"executor {self.executor.name!r}, {len(plan.decodes):,} decodes and {prefill:,} prefill tokens, "
            f"of requests {names}{more}",
            prefill,
            plan.slices,
            reserving,
        )

    def _take_back_row(self, step: int) -> None:
        """Steps from `step` on were launched and not committed: the next one takes that row, and with it the
        growths that they caused, which stay."""
        self._steps = step
        growths = self.recorder.growths
        for index, growth in enumerate(growths):
            if growth.step > step:
                growths[index] = replace(growth, step=step)

    def _note_margins(self, flight: Flight) -> None:
        keep = flight.kept()
        keep = np.ones(len(flight.slots), bool) if keep is None else keep
        sessions = {sequence.slot: sequence for sequence in flight.sequences}
        assert flight.margins is not None
        rows = zip(
            flight.slots[keep].tolist(), flight.positions[keep].tolist(), flight.margins[keep], strict=True
        )
        for slot, position, margin in rows:
            sequence = sessions[slot]
            self.recorder.margins.setdefault(sequence.session, {})[position - sequence.prompt_tokens] = float(
                margin
            )

    def _finish(
        self, sequence: Sequence, reason: FinishReason, message: str | None = None, now: float | None = None
    ) -> None:
        if sequence.slot:
            self.table.drop_pending(sequence.slot, sequence.prompt_tokens)
            self.running.remove(sequence)
            self._vacate(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        sequence.phase = Phase.FINISHED
        self.recorder.ended.append(sequence)
        sequence.finish_reason = reason
        sequence.message = message
        sequence.finish_seconds = self.now() if now is None else now
        self._go_on_from(sequence)
        if self.on_finish is not None:
            self.on_finish(sequence)
        if self._followers:
            following = replace(self._followers.popleft(), arrival_seconds=sequence.finish_seconds)
            self.submit(following)
        if (
            sequence.last_token_seconds is None
            and sequence.rest_steps is not None
            and len(sequence.rest_steps)
        ):
            last = int(sequence.rest_steps[-1])
            if 0 <= last < len(self.recorder.steps):
                sequence.last_token_seconds = self.recorder.steps[last].end

    def _go_on_from(self, former: Sequence) -> None:
        """The session's next turn, if there is one: it arrives, or ends as this one did."""
        turn = self._turns.pop(former.request.id, None)
        if turn is None or turn.phase is Phase.FINISHED:
            return
        assert former.finish_reason is not None
        assert former.finish_seconds is not None
        if not former.finish_reason.succeeded:
            self._finish(turn, former.finish_reason, broken(turn.request, former), former.finish_seconds)
            return
        turn.ask(continued(turn.request, former.request, former.answer(), former.finish_seconds))
        self._expect(turn)


def broken(turn: Request, former: Sequence) -> str:
    """Why a turn cannot be served."""
    return f"request {turn.id!r}: the turn before it, {former.request.id!r}, was {former.finish_reason}"
