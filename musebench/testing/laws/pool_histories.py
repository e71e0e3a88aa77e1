"""Histories of a pool: what sequences do to it, as data.

Whoever a verb names is the n-th that is there, modulo their number; a verb that cannot be done is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from musebench.testing.laws.search import many, strategies


@dataclass(frozen=True)
class Step:
    """One plan: each of `opens` is a new sequence (tokens of its prompt, which prompt), `join` are running
    ones that take part, no prefill is longer than `slice`. `undone`: the step fails after its cells were
    given."""

    opens: tuple[tuple[int, int], ...]
    join: tuple[int, ...]
    slice: int
    undone: bool


@dataclass(frozen=True)
class End:
    who: int


@dataclass(frozen=True)
class Rewind:
    who: int
    to: int


@dataclass(frozen=True)
class Fork:
    """A new sequence begins with the first `upto` tokens of another."""

    who: int
    upto: int


@dataclass(frozen=True)
class Bulk:
    """So many steps of decodes of all that decode, claimed at once where the pool can."""

    steps: int


Verb = Step | End | Rewind | Fork | Bulk


@dataclass(frozen=True)
class PoolHistory:
    """`memory`: rows that fit; `failing`: resizes that do; `moves`: whether addresses move, by resize."""

    sessions: int
    context: int
    capacity: int | None
    memory: int | None
    failing: tuple[int, ...]
    moves: tuple[bool, ...]
    verbs: tuple[Verb, ...]


MOST_CONTEXT = 40


def pool_histories() -> Any:
    """A hypothesis strategy of `PoolHistory`."""
    st = strategies()
    who = st.integers(0, 3)
    steps = st.builds(
        Step,
        opens=st.lists(st.tuples(st.integers(1, MOST_CONTEXT), st.integers(0, 2)), max_size=2).map(tuple),
        join=st.lists(who, max_size=4).map(tuple),
        slice=st.one_of(st.just(MOST_CONTEXT), st.integers(1, 7)),
        undone=st.booleans(),
    )
    verbs = st.one_of(
        steps,
        steps,
        st.builds(End, who),
        st.builds(Rewind, who, st.integers(0, MOST_CONTEXT)),
        st.builds(Fork, who, st.integers(1, MOST_CONTEXT)),
        st.builds(Bulk, st.integers(1, 5)),
    )
    return st.builds(
        PoolHistory,
        sessions=st.integers(1, 5),
        context=st.integers(4, MOST_CONTEXT),
        capacity=st.one_of(st.none(), st.integers(4, 60)),
        memory=st.one_of(st.none(), st.none(), st.integers(8, 300)),
        failing=st.one_of(st.just(()), st.just(()), st.lists(st.integers(1, 6), max_size=2).map(tuple)),
        moves=st.one_of(st.just((True,)), st.lists(st.booleans(), min_size=1, max_size=3).map(tuple)),
        verbs=many(verbs, 4),
    )
