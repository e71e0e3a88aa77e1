"""Stretches: the same decodes step after step, taken in bulk where every part of a run can say that it may.

A scheduler says for how long its plan stays (`Steady`), a pool for how long it has cells without growing
(`Lasting`), an executor launches the steps at once (`Stretching`). All three are optional: a run in which one
of them cannot is stepped, and makes the same report. Only a device on a virtual clock can be asked for steps
whose tokens nobody has seen.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from musebench.core.plan import StepPlan
from musebench.core.protocols import Forward, StepOutput
from musebench.core.table import Contexts

FOR_EVER = 2**62
"""Steps of a plan that nothing but an arrival, an end or more room changes."""


@runtime_checkable
class Steady(Protocol):
    """A scheduler that knows when its plan would change."""

    def steady(self, plan: StepPlan) -> int:
        """How many steps in a row, that of `plan` included, it would plan this plan, which it has just made:
        as long as nobody arrives, ends or is preempted, and each of the plan's sequences decodes. Room in the
        pool only shrinks meanwhile. 0: it cannot say."""


@runtime_checkable
class Lasting(Protocol):
    """A pool that claims the cells of many steps at once."""

    def lasting(self, plan: StepPlan) -> int:
        """How often in a row this plan of decodes can be reserved before rows grow or run out."""

    def reserve_steps(self, plan: StepPlan, steps: int) -> None:
        """As `reserve`, `steps` times: the same cells to the same sequences. At most `lasting`."""


class Stretch(NamedTuple):
    """What is to be launched: `forward` (decodes alone) `steps` times at most, every sequence one token
    further each time.

    `contexts` are those of the first of them.
    No step begins once the clock less `origin` has reached `arrival`. With `overlap` the host waits for the
    step before the one it has just launched; `in_flight` says that one was launched before these.
    """

    forward: Forward
    generation: int
    contexts: Contexts
    steps: int
    arrival: float
    origin: float
    overlap: bool
    in_flight: bool


class StretchOutput(NamedTuple):
    """The steps that were launched, seconds on the clock, one value each: when it began, when the host had
    launched it, when the host had waited as it does after launching it, and its time on the device.
    `last` is the output of the last one; `token` what every row of the others made.
    """

    starts: list[float]
    launched: list[float]
    returned: list[float]
    device_seconds: list[float]
    last: StepOutput
    token: int

    @property
    def steps(self) -> int:
        return len(self.starts)


@runtime_checkable
class Stretching(Protocol):
    """An executor, or a backend, that launches a stretch."""

    def stretch(self, stretch: Stretch) -> StretchOutput | None:
        """Launch what it can; None when these steps have to be launched one by one (a graph is missing, a
        request arrives before the first)."""
