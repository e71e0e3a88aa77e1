"""Who waits, who runs, and who has which slot."""

from __future__ import annotations

import heapq

from musebench.core.flight import Flight
from musebench.core.lineup import Lineup
from musebench.core.plan import Limits, StepPlan
from musebench.core.protocols import Pool
from musebench.core.sequence import Phase, Sequence, SequenceTable
from musebench.core.sharing import Sharing, adopt
from musebench.core.waiting import WaitingLine


class Admission:
    """Moves sequences between `waiting` and `running`; who leaves gives slot and cells back.

    A sequence has a slot from when a plan with it is about to be reserved (`admit`); it moves over once that
    step is launched (`line_up`). Until then `dismiss` undoes it, from then on `take_back` or `preempt`.
    """

    def __init__(self, table: SequenceTable, pool: Pool, sharing: Sharing | None) -> None:
        self.waiting = WaitingLine()
        self.running = Lineup(table)
        self.free_slots = list(range(1, table.slots + 1))  # a heap
        self._table = table
        self._pool = pool
        self._sharing = sharing
        self._ranks = 0

    # -- before the launch ----------------------------------------------------------------------------

    def admit(self, plan: StepPlan, limits: Limits) -> tuple[StepPlan, list[Sequence]]:
        """Give slots to the waiting sequences of a plan, which are among its prefills; the plan without the
        tokens whose cells they share, and those sequences."""
        admitted = entering(plan)
        for sequence in admitted:
            sequence.enter(heapq.heappop(self.free_slots))
        if admitted and self._sharing is not None:
            plan = adopt(self._sharing, plan, admitted, limits)
        return plan, admitted

    def dismiss(self, admitted: list[Sequence]) -> None:
        """Take back slots given by `admit`, and cells with them; the sequences wait where they waited."""
        for sequence in admitted:
            self._unseat(sequence)

    def _unseat(self, sequence: Sequence) -> None:
        sequence.reused -= sequence.computed
        self._vacate(sequence)

    # -- after it -------------------------------------------------------------------------------------

    def line_up(self, flight: Flight, now: float) -> None:
        """Put the sequences of a launched step where the next plan finds them."""
        for sequence in flight.admitted:
            self.waiting.remove(sequence)
            if sequence.admitted < 0:
                sequence.admitted = self._ranks
                self._ranks += 1
                if sequence.scheduled_seconds is None:
                    sequence.scheduled_seconds = now
            if len(sequence.pauses) % 2:
                sequence.pauses += (now,)
            sequence.phase = Phase.PREFILL
            self.running.add(sequence)
        for piece in flight.plan.prefills:
            if piece.sequence.remaining == 1 and piece.sequence.generated > 0:
                piece.sequence.phase = Phase.DECODE
                self.running.to_decode(piece.sequence)
        self.drain_full(flight)

    def drain_full(self, flight: Flight) -> None:
        """Sequences whose last token is on its way are planned no more."""
        flight.ending = self._table.ending(flight)
        for sequence in flight.ending:
            self.running.drain(sequence)

    def take_back(self, flight: Flight) -> None:
        """The launch of a step is undone: who was admitted by it waits again, the others are where their
        counts say."""
        for sequence in flight.admitted:
            self.running.remove(sequence)
            self._unseat(sequence)
            sequence.phase = Phase.WAITING
            if sequence.pauses and len(sequence.pauses) % 2 == 0:
                sequence.pauses = sequence.pauses[:-1]  # admitted again by this launch: still paused
            if sequence not in self.waiting:
                self._requeue(sequence)
        for sequence in flight.sequences:
            if sequence.slot:
                self.running.restore(sequence)

    # -- out of the running ---------------------------------------------------------------------------

    def preempt(self, sequence: Sequence, now: float) -> None:
        """A running sequence waits again, to be recomputed; its tokens stay with it."""
        self.running.remove(sequence)
        self._vacate(sequence)
        sequence.phase = Phase.WAITING
        sequence.preemptions += 1
        sequence.pauses += (now,)
        self._requeue(sequence)

    def leave(self, sequence: Sequence) -> None:
        """A sequence ends, wherever it is."""
        if sequence.slot:
            self._table.drop_pending(sequence.slot, sequence.prompt_tokens)
            self.running.remove(sequence)
            self._vacate(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def _requeue(self, sequence: Sequence) -> None:
        """Let a sequence that was admitted before wait ahead of those that were not, the oldest first."""
        place = sum(1 for one in self.waiting if 0 <= one.admitted < sequence.admitted)
        self.waiting.insert(place, sequence)

    def _vacate(self, sequence: Sequence) -> None:
        """Give back a sequence's cells and slot; its tokens stay with it."""
        slot = sequence.leave()
        self._pool.release(slot)
        heapq.heappush(self.free_slots, slot)


def entering(plan: StepPlan) -> list[Sequence]:
    """The sequences of a plan that have no slot yet."""
    return [piece.sequence for piece in plan.prefills if not piece.sequence.slot]
