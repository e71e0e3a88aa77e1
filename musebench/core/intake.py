"""Requests on their way in: handed over, known by their ids, until they arrive or turn out to be refused."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from musebench.core.protocols import Pool
from musebench.core.recorder import Recorder
from musebench.core.request import Request, continued
from musebench.core.sequence import Phase, Sequence, SequenceTable


class Intake:
    """Makes a sequence of each request and holds it until it arrives.

    Most arrive at a time of their own. A turn of a session arrives after the one before it has ended, a
    follower when anybody has. `by_id` are the sequences of all requests, ended ones too.
    """

    def __init__(self, table: SequenceTable, recorder: Recorder) -> None:
        self.by_id: dict[str, Sequence] = {}
        self._table = table
        self._recorder = recorder
        self._future: list[tuple[float, int, Sequence]] = []  # a heap: arrival, session
        self._turns: dict[str, Sequence] = {}  # by the id of the request that they go on from
        self._followers: deque[Request] = deque()

    def take(self, requests: Iterable[Request], concurrency: int | None) -> None:
        """Submit `requests`; with `concurrency` so many, and the others follow."""
        self._followers = deque(requests)
        while self._followers and (concurrency is None or len(self.by_id) < concurrency):
            self.submit(self._followers.popleft())

    def submit(self, request: Request) -> Sequence:
        """The sequence of a request, which arrives in its time; see `Engine.submit`."""
        if request.id in self.by_id:
            raise ValueError(f"request {request.id!r} was submitted before")
        sequence = Sequence(len(self.by_id), request, self._table)
        self.by_id[request.id] = sequence
        self._recorder.sequences.append(sequence)
        if request.after is None:
            self._expect(sequence)
        elif request.after.former not in self.by_id:
            raise ValueError(
                f"request {request.id!r} goes on from {request.after.former!r}, which is not known"
            )
        else:
            self._turns[request.after.former] = sequence
        return sequence

    def _expect(self, sequence: Sequence) -> None:
        heapq.heappush(self._future, (sequence.arrival_seconds, sequence.session, sequence))

    def withdraw(self, sequence: Sequence) -> None:
        """It does not arrive any more, or its arrival would still be waited for."""
        self._future = [entry for entry in self._future if entry[2] is not sequence]
        heapq.heapify(self._future)

    # -- who arrives ----------------------------------------------------------------------------------

    @property
    def future(self) -> Iterable[Sequence]:
        """Those whose arrival has a time, in no order."""
        return (entry[2] for entry in self._future)

    @property
    def next_arrival(self) -> float:
        """Seconds of the run at which the next one arrives; infinite when none has a time."""
        return self._future[0][0] if self._future else math.inf

    @property
    def brings(self) -> bool:
        """Whether an end brings somebody: a turn, or a follower."""
        return bool(self._followers or self._turns)

    def arrived(self, now: float) -> Iterator[Sequence]:
        """Those whose time has come, in order; also those that come in while this is gone through."""
        while self._future and self._future[0][0] <= now:
            yield heapq.heappop(self._future)[2]

    # -- who ends brings ------------------------------------------------------------------------------

    def go_on_from(self, former: Sequence) -> Sequence | None:
        """Let the session's next turn arrive; returned instead, if it cannot be served (`broken`) because
        `former` did not end well."""
        turn = self._turns.pop(former.request.id, None)
        if turn is None or turn.phase is Phase.FINISHED:
            return None
        assert former.finish_reason is not None
        assert former.finish_seconds is not None
        if not former.finish_reason.succeeded:
            return turn
        turn.ask(continued(turn.request, former.request, former.answer(), former.finish_seconds))
        self._expect(turn)
        return None

    def follow(self, ended: Sequence) -> None:
        """Let the next follower arrive, if there is one."""
        if self._followers:
            assert ended.finish_seconds is not None
            self.submit(replace(self._followers.popleft(), arrival_seconds=ended.finish_seconds))


def broken(turn: Request, former: Sequence) -> str:
    """Why a turn cannot be served."""
    return f"request {turn.id!r}: the turn before it, {former.request.id!r}, was {former.finish_reason}"


def refusal(request: Request, pool: Pool, max_context: int | None) -> str | None:
    """Why a request could not even run alone, by name and with the sum."""
    needed = request.cells_needed
    why = pool.refusal(needed)
    if max_context is not None and needed > max_context:
        why = f"needs {needed:,} tokens of context; a session has {max_context:,}; raise --max-context"
    if why is None:
        return None
    asked = f"{len(request.prompt):,} prompt + {request.max_new_tokens:,} new tokens"
    return f"request {request.id!r} ({asked}) {why}"
