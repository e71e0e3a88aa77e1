"""What an executor lives through: mixtures of requests, a pool that grows, forwards that fail; as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from musebench.core.plan import Limits
from musebench.core.request import Request, Sampling
from musebench.testing.laws.search import many, strategies


@dataclass(frozen=True)
class Prompt:
    """A request of `tokens` that makes `new` ones, `after` seconds (steps) after the one before."""

    tokens: int
    new: int
    after: int
    temperature: float


@dataclass(frozen=True)
class ExecutorHistory:
    """`rows`: of the first allocation; `failing`: launches that raise, when launched or (`late`) waited for;
    `backend_first`: which of backend and executor is closed first."""

    fewest: int
    extra: int
    sequences: int
    prompts: tuple[Prompt, ...]
    rows: int
    moves: tuple[bool, ...]
    overlap: bool
    failing: tuple[int, ...]
    late: bool
    cancels: tuple[tuple[int, int], ...]
    backend_first: bool

    @property
    def limits(self) -> Limits:
        least = 2 * self.fewest - 1
        return Limits(self.fewest, least + self.extra // 2, self.sequences, least + self.extra)

    def requests(self) -> list[Request]:
        made, at = [], 0
        for place, one in enumerate(self.prompts):
            at += one.after if place else 0
            prompt = tuple((place * 11 + 3 * token) % 50 for token in range(one.tokens))
            sampling = Sampling(one.temperature, seed=place)
            made.append(Request(f"r{place}", prompt, one.new, sampling=sampling, arrival_seconds=float(at)))
        return made


def executor_histories() -> Any:
    """A hypothesis strategy of `ExecutorHistory`."""
    st = strategies()
    prompts = st.builds(
        Prompt,
        tokens=st.integers(1, 24),
        new=st.integers(1, 9),
        after=st.sampled_from([0, 0, 1, 4]),
        temperature=st.sampled_from([0.0, 0.0, 0.5]),
    )
    return st.builds(
        ExecutorHistory,
        fewest=st.sampled_from([1, 1, 2, 5]),
        extra=st.integers(0, 24),
        sequences=st.integers(1, 6),
        prompts=many(prompts, 2).filter(bool),
        rows=st.one_of(st.just(4), st.just(300)),
        moves=st.one_of(st.just((True,)), st.lists(st.booleans(), min_size=1, max_size=3).map(tuple)),
        overlap=st.booleans(),
        failing=st.one_of(st.just(()), st.lists(st.integers(1, 12), max_size=2).map(tuple)),
        late=st.booleans(),
        cancels=st.one_of(
            st.just(()), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=2).map(tuple)
        ),
        backend_first=st.booleans(),
    )
