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


@dataclass(frozen=True)
class SchedulerHistory:
    """`spare`: cells of the pool beyond those of the largest request; None: enough for all. `stream`: so many
    short requests follow, one a second. `cancels`: (step, which request)."""

    fewest: int
    extra: int
    sequences: int
    arrivals: tuple[Arrival, ...]
    stream: int
    pool: str
    spare: int | None
    overlap: bool
    cancels: tuple[tuple[int, int], ...]

    @property
    def limits(self) -> Limits:
        least = 2 * self.fewest - 1
        return Limits(self.fewest, least + self.extra // 2, self.sequences, least + self.extra)

    def requests(self) -> list[Request]:
        made, at = [], 0
        short = [Arrival(1 + place % 2, 2, 1, "a", 0) for place in range(self.stream)]
        for place, one in enumerate((*self.arrivals, *short)):
            at += one.after if place else 0
            tags: dict[str, object] = {"tenant": one.tenant, "priority": one.priority}
            prompt = tuple((place * 7 + token) % 50 for token in range(one.prompt))
            made.append(Request(f"r{place}", prompt, one.new, arrival_seconds=float(at), tags=tags))
        return made


STREAM = 40


def scheduler_histories() -> Any:
    """A hypothesis strategy of `SchedulerHistory`."""
    st = strategies()
    arrivals = st.builds(
        Arrival,
        prompt=st.one_of(st.sampled_from([1, 4]), st.integers(1, 24)),
        new=st.one_of(st.just(3), st.integers(1, 10)),
        after=st.sampled_from([0, 0, 1, 3]),
        tenant=st.sampled_from(["a", "a", "b"]),
        priority=st.integers(0, 2),
    )
    return st.builds(
        SchedulerHistory,
        fewest=st.sampled_from([1, 1, 2, 5]),
        extra=st.integers(0, 24),
        sequences=st.integers(1, 5),
        arrivals=many(arrivals, 2).filter(bool),
        stream=st.sampled_from([0, 0, 0, STREAM]),
        pool=st.sampled_from(["geometric", "geometric", "fixed"]),
        spare=st.one_of(st.none(), st.integers(0, 12)),
        overlap=st.booleans(),
        cancels=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=2).map(tuple),
    )
