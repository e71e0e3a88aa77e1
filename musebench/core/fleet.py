"""Several engines on one virtual time: requests are routed when they arrive, to equal replicas.

Each engine has a clock of its own, and all of them start at 0. The one that is furthest behind goes on, up to
the next arrival; a request is routed once all that have work have come to its arrival, with what they know by
then. A step is not cut: a replica that is in one has its state from the step's planning, or of its commit.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Iterable
from collections.abc import Sequence as Ordered
from dataclasses import replace

from musebench.core.engine import Engine
from musebench.core.intake import broken
from musebench.core.protocols import Router
from musebench.core.request import Request, continued
from musebench.core.sequence import Sequence


class EngineView:
    """An engine, as `musebench.core.protocols.Replica`. Submitted requests count as waiting."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def queued_tokens(self) -> int:
        engine = self._engine
        return sum(one.length for one in itertools.chain(engine.waiting, engine.future))

    @property
    def running_tokens(self) -> int:
        engine = self._engine
        return engine.pool.in_use + sum(one.remaining for one in engine.running.prefilling)

    @property
    def waiting(self) -> int:
        return len(self._engine.waiting) + sum(1 for _ in self._engine.future)

    @property
    def running(self) -> int:
        return len(self._engine.running)


class Fleet:
    """Serves requests with `engines`, among which `router` chooses."""

    def __init__(self, engines: Ordered[Engine], router: Router) -> None:
        self.engines = list(engines)
        self.router = router
        self._views = [EngineView(engine) for engine in self.engines]
        self._future: list[tuple[float, int, Request]] = []
        self._followers: deque[Request] = deque()
        self._turns: dict[str, Request] = {}  # by the id of the request that they go on from
        self._number = itertools.count()

    def run(self, requests: Iterable[Request], concurrency: int | None = None) -> None:
        """Until all have ended; as `Engine.run`, `concurrency` over all replicas together."""
        given = list(requests)
        self._turns = {one.after.former: one for one in given if one.after is not None}
        self._followers = deque(one for one in given if one.after is None)
        while self._followers and (concurrency is None or len(self._future) < concurrency):
            self._expect(self._followers.popleft())
        for engine in self.engines:
            engine.on_finish = self._follow if self._brings else None
            engine.begin()
        while True:
            arrival = self._future[0][0] if self._future else math.inf
            behind = min((one for one in self.engines if not one.idle), key=Engine.now, default=None)
            if behind is not None and behind.now() < arrival:
                behind.horizon = min(arrival, self._others(behind))
                behind.go_on()
            elif self._future:
                self._route(heapq.heappop(self._future)[2])
            else:
                return

    @property
    def _brings(self) -> bool:
        """Whether an end may bring a request."""
        return bool(self._followers or self._turns)

    def _expect(self, request: Request) -> None:
        heapq.heappush(self._future, (request.arrival_seconds, next(self._number), request))

    def _others(self, behind: Engine) -> float:
        """From when on an end elsewhere may bring a request: others can be behind where this one has come."""
        if not self._brings:
            return math.inf
        return min(
            (one.now() for one in self.engines if one is not behind and not one.idle), default=math.inf
        )

    def _route(self, request: Request) -> None:
        place = self.router.route(request, self._views)
        if not isinstance(place, int) or not 0 <= place < len(self.engines):
            raise RuntimeError(
                f"router {self.router.name!r} sends request {request.id!r} to replica {place!r}; there are "
                f"0 to {len(self.engines) - 1}"
            )
        self.engines[place].submit(request)

    def _follow(self, ended: Sequence) -> None:
        assert ended.finish_seconds is not None
        turn = self._turns.pop(ended.request.id, None)
        if turn is not None:
            self._go_on_from(ended, turn)
        if self._followers:
            self._expect(replace(self._followers.popleft(), arrival_seconds=ended.finish_seconds))
        if not self._brings:
            for engine in self.engines:
                engine.on_finish = None

    def _go_on_from(self, former: Sequence, turn: Request) -> None:
        """It arrives, or ends where the one before it did."""
        assert former.finish_seconds is not None
        assert former.finish_reason is not None
        if former.finish_reason.succeeded:
            self._expect(continued(turn, former.request, former.answer(), former.finish_seconds))
            return
        engine = next(one for one in self.engines if former.table is one.table)
        engine.refuse(turn, former.finish_reason, broken(turn, former))
