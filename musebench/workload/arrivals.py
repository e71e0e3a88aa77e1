"""When requests arrive: at once, at given times, by a process, as a trace recorded it, or when others end.

Each kind is a frozen dataclass with `times(count, generator, recorded)` -> seconds from the start of the run,
float64 [count], in the order of the requests. Processes start at 0 s: `count` requests have `count` - 1 gaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from musebench.core.errors import InputError
from musebench.core.options import option
from musebench.workload.decode import Choice, required

SLOWEST_RATE = 1e-9
FASTEST_RATE = 1e12


class Arrivals(Protocol):
    """An arrival process, or fixed times."""

    def times(self, count: int, generator: np.random.Generator, recorded: np.ndarray | None) -> np.ndarray:
        """`recorded` are a trace's own times, in seconds from 0, None where there are none.

        Raises:
            InputError: it does not fit the number of requests, or needs times that were not recorded.
        """


@dataclass(frozen=True)
class AtOnce:
    """All at 0 s."""

    def times(self, count: int, generator: np.random.Generator, recorded: np.ndarray | None) -> np.ndarray:
        return np.zeros(count)


@dataclass(frozen=True)
class Times:
    """Given, one a request."""

    times_seconds: tuple[float, ...] = required("one time a request", unit="s", minimum=0)

    def times(self, count: int, generator: np.random.Generator, recorded: np.ndarray | None) -> np.ndarray:
        if len(self.times_seconds) != count:
            raise InputError(f"arrivals give {len(self.times_seconds)} times for {count} requests")
        return np.asarray(self.times_seconds, np.float64)


@dataclass(frozen=True)
class Constant:
    """The same gap, 1 / rate, between any two."""

    rate: float = required("requests a second", unit="1/s", minimum=SLOWEST_RATE, maximum=FASTEST_RATE)

    def times(self, count: int, generator: np.random.Generator, recorded: np.ndarray | None) -> np.ndarray:
        return np.arange(count) / self.rate


@dataclass(frozen=True)
class Poisson:
    """Independent gaps, exponentially distributed with mean 1 / rate."""

    rate: float = required("requests a second", unit="1/s", minimum=SLOWEST_RATE, maximum=FASTEST_RATE)

    def times(self, count: int, generator: np.random.Generator, recorded: np.ndarray | None) -> np.ndarray:
        return _from_gaps(generator.exponential(1 / self.rate, max(count - 1, 0)), count)


@dataclass(frozen=True)
class Gamma:
    """Independent gaps, gamma distributed: mean 1 / rate, coefficient of variation `cv`.

    Shape 1 / cv^2 and scale cv^2 / rate. `cv` 1 is a Poisson process, below it is smoother, above burstier.
    """

    rate: float = required("requests a second", unit="1/s", minimum=SLOWEST_RATE, maximum=FASTEST_RATE)
    cv: float = required("standard deviation of the gaps over their mean", minimum=0.01, maximum=100)

    def times(self, count: int, generator: np.random.Generator, recorded: np.ndarray | None) -> np.ndarray:
        shape = 1 / self.cv**2
        gaps = generator.gamma(shape, 1 / (self.rate * shape), max(count - 1, 0))
        return _from_gaps(gaps, count)


@dataclass(frozen=True)
class Recorded:
    """A trace's own times, divided by `speedup`, or scaled so that their mean rate is `rate`.

    The mean rate of n requests is (n - 1) / (last time - first time).
    """

    speedup: float | None = option(None, "divide all times by this", above=0, maximum=FASTEST_RATE)
    rate: float | None = option(
        None, "scale to this mean rate", unit="1/s", minimum=SLOWEST_RATE, maximum=FASTEST_RATE
    )

    def __post_init__(self) -> None:
        if self.speedup is not None and self.rate is not None:
            raise InputError("speedup and rate exclude each other; give one of them")

    def times(self, count: int, generator: np.random.Generator, recorded: np.ndarray | None) -> np.ndarray:
        if recorded is None:
            raise InputError(
                "arrivals are 'recorded', but no times were; use at_once, constant, poisson, gamma or closed"
            )
        if self.rate is not None and count < 2:
            return recorded
        with np.errstate(over="ignore"):  # told below
            scaled = recorded * self._factor(recorded)
        if not np.isfinite(scaled).all():
            raise InputError(
                "the scaled arrival times are too large to be numbers; use a larger speedup or rate"
            )
        return scaled

    def _factor(self, recorded: np.ndarray) -> float:
        if self.rate is None:
            return 1 / (1.0 if self.speedup is None else self.speedup)
        span = float(recorded[-1] - recorded[0])
        if span <= 0.0:
            raise InputError(f"all {len(recorded)} requests arrive at one time, which has no rate to scale")
        return (len(recorded) - 1) / span / self.rate


@dataclass(frozen=True)
class Closed:
    """`concurrency` at 0 s; each of the others when one has ended, in order."""

    concurrency: int = required("requests at a time", minimum=1)

    def times(self, count: int, generator: np.random.Generator, recorded: np.ndarray | None) -> np.ndarray:
        return np.zeros(count)


ARRIVALS = Choice(
    "an arrival process",
    {
        "at_once": AtOnce,
        "times": Times,
        "constant": Constant,
        "poisson": Poisson,
        "gamma": Gamma,
        "recorded": Recorded,
        "closed": Closed,
    },
)


def _from_gaps(gaps: np.ndarray, count: int) -> np.ndarray:
    times = np.zeros(count)
    np.cumsum(gaps, out=times[1:])
    return times
