"""What the schedulers here share: a line of those who wait, and a built-in scheduler that runs the steps.

They differ from the built-in ones in one factor, who is offered next for admission. How a step is made of
decodes and prompts is `chunked`'s or `continuous`'s own.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Ordered
from itertools import chain, islice, takewhile
from typing import Any, Protocol

from musebench.core.options import NoOptions, option
from musebench.core.plan import Limits, StepPlan
from musebench.core.protocols import Pool, Running
from musebench.core.sequence import Phase, Sequence
from musebench.schedulers.chunked import ChunkedOptions, ChunkedScheduler
from musebench.schedulers.continuous import ContinuousScheduler

STEPS = ("chunked", "continuous")


def steps_option() -> Any:
    """The option of every scheduler here that names the one which runs its steps."""
    return option("chunked", "the built-in scheduler whose steps it runs", choices=STEPS)


class Line(Protocol):
    """Those who wait and were never admitted, in an order of its own. Nobody leaves it by a call: who is
    admitted or ended is left out from then on."""

    contested: bool
    """Whether decodes alone may change who comes first."""

    def refresh(self) -> None:
        """Learn what became of those who were admitted or ended since it was last asked."""

    def add(self, sequence: Sequence) -> None: ...

    def __contains__(self, sequence: object) -> bool: ...

    def in_order(self) -> Iterator[Sequence]:
        """Who comes first, then who comes next if that one is admitted, and so on."""


def waits(sequence: Sequence) -> bool:
    """Whether it is still to be admitted for the first time. A preempted sequence is not: it goes first."""
    return sequence.phase is Phase.WAITING and sequence.admitted < 0


class AdmissionScheduler:
    """Offers the built-in scheduler those who wait in its line's order, preempted ones before them.

    What a plan costs does not depend on how many wait: newcomers stand at the end of what the engine offers,
    and the order is made only as far as it is read.
    """

    def __init__(self, line: Line, steps: str) -> None:
        self._line = line
        self._steps = (
            ContinuousScheduler(NoOptions()) if steps == "continuous" else ChunkedScheduler(ChunkedOptions())
        )

    def plan(self, waiting: Ordered[Sequence], running: Running, limits: Limits, pool: Pool) -> StepPlan:
        if not waiting:
            return self._steps.plan(waiting, running, limits, pool)
        self._line.refresh()
        for sequence in reversed(self._newcomers(waiting)):
            self._line.add(sequence)
        preempted = takewhile(lambda sequence: sequence.admitted >= 0, waiting)
        order = chain(preempted, self._line.in_order())
        return self._steps.plan(InOrder(order, len(waiting)), running, limits, pool)

    def steady(self, plan: StepPlan) -> int:
        """See `musebench.core.stretch.Steady`: that of the steps, unless decodes change who comes first."""
        return 0 if self._line.contested else self._steps.steady(plan)

    def _newcomers(self, waiting: Ordered[Sequence]) -> list[Sequence]:
        """Newest first."""
        return list(takewhile(lambda one: one.admitted < 0 and one not in self._line, reversed(waiting)))


class InOrder(Ordered[Sequence]):
    """At most `count` of an order, made as far as it is read."""

    def __init__(self, order: Iterator[Sequence], count: int) -> None:
        self._order = islice(order, count)
        self._count = count
        self._read: list[Sequence] = []

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice) or place < 0:
            self._read.extend(self._order)
        else:
            self._read.extend(
                islice(self._order, place + 1 - len(self._read)) if place >= len(self._read) else ()
            )
        return self._read[place]
