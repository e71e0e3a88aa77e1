"""The requests of one run on their way through a peer: who has arrived, and what became of each.

A peer asks `due` who has arrived, and tells `started`, `tokens` (or `chunk`) and `ended` of each request.
Every method may be called from any thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field, replace

from musebench.core.protocols import Clock
from musebench.core.request import FinishReason, Request


@dataclass(slots=True)
class Served:
    """What became of one request. Times are seconds since the run started.

    Output came in chunks: `chunk_seconds` when each was known, `chunk_tokens` how many tokens it held (None:
    nobody said). `token_ids` are those that were told, `text` what came as text. `generated` and
    `prompt_tokens` are the engine's own counts where it gave some.
    """

    request: Request
    arrival_seconds: float
    scheduled_seconds: float | None = None
    chunk_seconds: list[float | None] = field(default_factory=list)
    chunk_tokens: list[int | None] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    generated: int | None = None
    prompt_tokens: int | None = None
    finish_seconds: float | None = None
    finish_reason: FinishReason | None = None
    message: str | None = None

    @property
    def generated_tokens(self) -> int:
        """Tokens that came out."""
        return len(self.token_ids) if self.generated is None else self.generated

    def token_seconds(self) -> list[float | None]:
        """When each token was known; None where the chunks do not say which tokens they held.

        As many chunks as tokens: each holds one. Tokens of one chunk lie 0 apart.
        """
        made = self.generated_tokens
        counts: list[int | None] = self.chunk_tokens
        if None in counts and len(counts) == made:
            counts = [1] * made
        known = [count for count in counts if count is not None]
        if len(known) < len(counts) or sum(known) != made:
            return [None] * made
        return [second for second, count in zip(self.chunk_seconds, known, strict=True) for _ in range(count)]


class Service:
    """`requests` in order of arrival, on `clock`, which starts with the first call of `due` or `now`.

    With `concurrency` so many requests arrive at first, and the next one when one has ended, whatever its own
    arrival says. `on_event` is called with the service after each request that has ended.

    A request that asks for no token ends when it arrives and is handed to nobody.
    """

    def __init__(
        self,
        requests: Ordered[Request],
        clock: Clock,
        concurrency: int | None = None,
        on_event: Callable[[Service], None] | None = None,
    ) -> None:
        self.records: dict[str, Served] = {}
        """By the request's id, in the workload's order."""
        for request in requests:
            if request.id in self.records:
                raise ValueError(f"request {request.id!r} is there twice")
            self.records[request.id] = Served(request, request.arrival_seconds)
        self.concurrency = concurrency
        self.ended_requests = 0
        self.output_tokens = 0
        self._clock = clock
        self._origin: float | None = None
        self._on_event = on_event
        self._lock = threading.RLock()
        first = len(requests) if concurrency is None else min(concurrency, len(requests))
        self._future = deque(requests[:first])
        self._followers = deque(requests[first:])

    # -- who has arrived ------------------------------------------------------------------------------

    def now(self) -> float:
        """Seconds since the run started."""
        with self._lock:
            if self._origin is None:
                self._origin = self._clock.now()
            return self._clock.now() - self._origin

    @property
    def over(self) -> bool:
        """Every request has ended."""
        return self.ended_requests == len(self.records)

    def due(self) -> list[Request]:
        """Requests that have arrived since last asked, in order."""
        made = []
        with self._lock:
            now = self.now()
            while self._future and self._future[0].arrival_seconds <= now:
                request = self._future.popleft()
                if request.max_new_tokens:
                    made.append(request)
                else:
                    self.ended(request.id, FinishReason.LENGTH)
        return made

    def wait_seconds(self) -> float | None:
        """Until the next one arrives, at least 0; None when none will before one has ended."""
        with self._lock:
            if not self._future:
                return None
            return max(self._future[0].arrival_seconds - self.now(), 0.0)

    def sleep(self) -> None:
        """Return when the next one arrives; at once when none will by itself."""
        with self._lock:
            if not self._future:
                return
            self.now()
            assert self._origin is not None
            until = self._origin + self._future[0].arrival_seconds
        self._clock.sleep_until(until)

    # -- what became of them --------------------------------------------------------------------------

    def started(self, request_id: str, at: float | None = None) -> None:
        """The engine took it up for the first time (a client: sent it); `at` None: now."""
        with self._lock:
            served = self._open(request_id)
            if served.scheduled_seconds is None:
                served.scheduled_seconds = self.now() if at is None else at

    def tokens(self, request_id: str, ids: Ordered[int], at: float | None = None) -> None:
        """These ids are known to the host, all at once."""
        if not len(ids):
            return
        with self._lock:
            served = self._open(request_id)
            served.chunk_seconds.append(self.now() if at is None else at)
            served.chunk_tokens.append(len(ids))
            served.token_ids.extend(ids)
            self.output_tokens += len(ids)

    def untimed_tokens(self, request_id: str, ids: Ordered[int]) -> None:
        """These ids came out, and nobody knows when."""
        with self._lock:
            served = self._open(request_id)
            served.chunk_seconds += [None] * len(ids)
            served.chunk_tokens += [1] * len(ids)
            served.token_ids.extend(ids)
            self.output_tokens += len(ids)

    def chunk(self, request_id: str, text: str, at: float | None = None) -> None:
        """Output came as text, of an unknown number of tokens: `ended` says how many there were in all."""
        with self._lock:
            served = self._open(request_id)
            served.chunk_seconds.append(self.now() if at is None else at)
            served.chunk_tokens.append(None)
            served.text.append(text)

    def ended(
        self,
        request_id: str,
        reason: FinishReason,
        message: str | None = None,
        at: float | None = None,
        generated: int | None = None,
        prompt_tokens: int | None = None,
    ) -> None:
        """It is over. `generated` and `prompt_tokens` are the engine's own counts, where the ids were not
        told; a failure has a `message`."""
        with self._lock:
            served = self._open(request_id)
            served.finish_seconds = self.now() if at is None else at
            served.finish_reason, served.message = reason, message
            served.generated, served.prompt_tokens = generated, prompt_tokens
            self.ended_requests += 1
            if generated is not None:
                self.output_tokens += generated
            if self._followers:
                follower = self._followers.popleft()
                self.records[follower.id].arrival_seconds = served.finish_seconds
                self._future.append(replace(follower, arrival_seconds=served.finish_seconds))
        if self._on_event is not None:
            self._on_event(self)

    def _open(self, request_id: str) -> Served:
        served = self.records.get(request_id)
        if served is None:
            raise ValueError(f"the engine speaks of request {request_id!r}, which it was not given")
        if served.finish_reason is not None:
            raise ValueError(
                f"the engine speaks of request {request_id!r}, which ended ({served.finish_reason.value})"
            )
        return served
