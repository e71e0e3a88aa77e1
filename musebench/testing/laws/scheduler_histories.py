"""What a scheduler is given to plan: requests over time, limits, and a pool that may be tight; as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from musebench.core.plan import Limits
from musebench.core.request import Request
from musebench.testing.laws.search import many, strategies


@dataclass(frozen=True)
class Arrival:
    """A request of `prompt` tokens that makes `new` ones, `after` seconds (steps) after the one before."""

    prompt: int
    new: int
    after: int
    tenant: str
    priority: int


WAITING = "waiting"
"""A long request, and short ones that follow it faster than they can be served one at a time."""

RUNNING = "running"
"""One request beside short ones, two at a time."""

TIGHT = "tight"
"""A request that grows to the whole pool, and one that would fill it at once."""

STREAM = 40
"""Short requests that follow one another, one a second."""


@dataclass(frozen=True)
class SchedulerHistory:
    """`crowd`: one of the above, in place of what is drawn. `spare`: cells of the pool beyond those of the
    largest request; None: enough for all. `cancels`: (step, which request)."""

    fewest: int
    extra: int
    sequences: int
    arrivals: tuple[Arrival, ...]
    crowd: str
    pool: str
    spare: int | None
    overlap: bool
    cancels: tuple[tuple[int, int], ...]

    @property
    def slots(self) -> int:
        """Sequences at a time."""
        return {WAITING: 1, RUNNING: 2, TIGHT: max(2, self.sequences)}.get(self.crowd, self.sequences)

    @property
    def cells(self) -> int | None:
        """Cells of the pool beyond those of the largest request; None: enough for all."""
        return 0 if self.crowd == TIGHT else self.spare

    @property
    def limits(self) -> Limits:
        fewest = 1 if self.crowd == TIGHT else self.fewest
        least = 2 * fewest - 1
        return Limits(fewest, least + self.extra // 2, self.slots, least + self.extra)

    def offered(self) -> tuple[Arrival, ...]:
        """Who arrives."""
        if self.crowd == TIGHT:
            return Arrival(1, 24, 0, "a", 0), Arrival(24, 1, 0, "a", 0)
        if self.crowd == WAITING:
            return Arrival(24, 4, 0, "a", 0), *_short(2)
        if self.crowd == RUNNING:
            return self.arrivals[0], *_short(6)
        return self.arrivals

    def requests(self) -> list[Request]:
        made, at = [], 0
        for place, one in enumerate(self.offered()):
            at += one.after if place else 0
            tags: dict[str, object] = {"tenant": one.tenant, "priority": one.priority}
            prompt = tuple((place * 7 + token) % 50 for token in range(one.prompt))
            made.append(Request(f"r{place}", prompt, one.new, arrival_seconds=float(at), tags=tags))
        return made


def _short(new: int) -> list[Arrival]:
    return [Arrival(1 + place % 2, new, 1, "a", 0) for place in range(STREAM)]


def scheduler_histories() -> Any:
    """A hypothesis strategy of `SchedulerHistory`."""
    st = strategies()
    arrivals = st.builds(
        Arrival,
        prompt=st.one_of(st.sampled_from([1, 4]), st.integers(1, 24), st.integers(16, 24)),
        new=st.one_of(st.just(3), st.integers(1, 10), st.integers(1, 24)),
        after=st.sampled_from([0, 0, 1, 3]),
        tenant=st.sampled_from(["a", "a", "b"]),
        priority=st.integers(0, 2),
    )
    return st.builds(
        SchedulerHistory,
        fewest=st.sampled_from([1, 1, 2, 5]),
        extra=st.integers(0, 24),
        sequences=st.one_of(st.just(3), st.integers(1, 5)),
        arrivals=many(arrivals, 2).filter(bool),
        crowd=st.sampled_from(["", "", TIGHT, WAITING, RUNNING]),
        pool=st.sampled_from(["geometric", "geometric", "fixed"]),
        spare=st.one_of(st.none(), st.integers(0, 2), st.integers(0, 12)),
        overlap=st.booleans(),
        cancels=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=2).map(tuple),
    )
