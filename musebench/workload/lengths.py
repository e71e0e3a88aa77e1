"""How many tokens a prompt or an output has: fixed, or drawn from a distribution.

Each kind is a frozen dataclass with `bounds` (fewest and most tokens it can give) and `draw`. All draws are
whole numbers within the bounds, and depend on the generator's state alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from musebench.core.errors import InputError
from musebench.core.options import option
from musebench.workload.decode import Choice, required

MOST_TOKENS = 1 << 24
"""Most tokens that one prompt or output may have."""

MOST_SUPPORT = 1 << 20
"""Most different lengths of a zipf distribution: its probabilities are kept in a table."""


class Lengths(Protocol):
    """A distribution of token counts."""

    @property
    def bounds(self) -> tuple[int, int]:
        """Fewest and most tokens of a draw."""

    def draw(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """`count` lengths, int64 [count]."""


@dataclass(frozen=True)
class Fixed:
    """Always the same; draws nothing from the generator."""

    tokens: int = required("tokens", unit="tokens", minimum=0, maximum=MOST_TOKENS)

    @property
    def bounds(self) -> tuple[int, int]:
        return self.tokens, self.tokens

    def draw(self, count: int, generator: np.random.Generator) -> np.ndarray:
        return np.full(count, self.tokens, np.int64)


@dataclass(frozen=True)
class Uniform:
    """Every whole number from `low` to `high`, both included, is as likely."""

    low: int = required("fewest tokens", unit="tokens", minimum=0, maximum=MOST_TOKENS)
    high: int = required("most tokens, included", unit="tokens", minimum=0, maximum=MOST_TOKENS)

    def __post_init__(self) -> None:
        _check_order(self.low, self.high, "low", "high")

    @property
    def bounds(self) -> tuple[int, int]:
        return self.low, self.high

    def draw(self, count: int, generator: np.random.Generator) -> np.ndarray:
        return generator.integers(self.low, self.high, count, np.int64, endpoint=True)


@dataclass(frozen=True)
class LogNormal:
    """exp(N(ln median, sigma)), rounded, and clamped to `min` and `max`.

    Unclamped, the mean is median x exp(sigma^2 / 2) and the 90th percentile median x exp(1.2816 sigma).
    """

    median: float = required("half of the draws are below", unit="tokens", above=0, maximum=MOST_TOKENS)
    sigma: float = required("standard deviation of the logarithm", minimum=0, maximum=10)
    min: int = option(1, "smaller draws become this", unit="tokens", minimum=0, maximum=MOST_TOKENS)
    max: int = option(MOST_TOKENS, "larger draws become this", unit="tokens", minimum=0, maximum=MOST_TOKENS)

    def __post_init__(self) -> None:
        _check_order(self.min, self.max, "min", "max")

    @property
    def bounds(self) -> tuple[int, int]:
        return self.min, self.max

    def draw(self, count: int, generator: np.random.Generator) -> np.ndarray:
        drawn = generator.lognormal(np.log(self.median), self.sigma, count)
        return np.clip(np.rint(drawn), self.min, self.max).astype(np.int64)


@dataclass(frozen=True)
class Zipf:
    """P(n) proportional to n^-exponent for the whole numbers from `min` to `max` (a truncated zeta law)."""

    exponent: float = required("how fast long ones get rare; 0 is uniform", minimum=0, maximum=100)
    max: int = required("most tokens", unit="tokens", minimum=1, maximum=MOST_TOKENS)
    min: int = option(1, "fewest tokens", unit="tokens", minimum=1, maximum=MOST_TOKENS)

    def __post_init__(self) -> None:
        _check_order(self.min, self.max, "min", "max")
        if self.max - self.min >= MOST_SUPPORT:
            raise InputError(
                f"{self.max - self.min + 1:,} different lengths; at most {MOST_SUPPORT:,} fit a zipf table"
            )

    @property
    def bounds(self) -> tuple[int, int]:
        return self.min, self.max

    def draw(self, count: int, generator: np.random.Generator) -> np.ndarray:
        # relative to `min`, so that a large exponent underflows to 0 for the rare ones only
        numbers = np.arange(self.min, self.max + 1, dtype=np.float64) / self.min
        share = np.cumsum(numbers**-self.exponent)
        below = np.searchsorted(share, generator.random(count) * share[-1], side="right")
        return np.minimum(below, len(share) - 1).astype(np.int64) + self.min


@dataclass(frozen=True)
class Empirical:
    """One of the listed values, each as likely, or with the given weights."""

    values: tuple[int, ...] = required("lengths", unit="tokens", minimum=0, maximum=MOST_TOKENS)
    weights: tuple[float, ...] = option(
        (), "how likely each value is, up to a common factor; empty: all alike", minimum=0
    )

    def __post_init__(self) -> None:
        if not self.values:
            raise InputError("no values; at least 1 is wanted")
        if self.weights and len(self.weights) != len(self.values):
            raise InputError(f"{len(self.weights)} weights for {len(self.values)} values; as many are wanted")
        if self.weights and not 0 < sum(self.weights) < float("inf"):
            raise InputError(f"the weights' sum is {sum(self.weights)}; a finite one above 0 is wanted")

    @property
    def bounds(self) -> tuple[int, int]:
        return min(self.values), max(self.values)

    def draw(self, count: int, generator: np.random.Generator) -> np.ndarray:
        values = np.asarray(self.values, np.int64)
        if not self.weights:
            return values[generator.integers(0, len(values), count)]
        share = np.cumsum(self.weights)
        chosen = np.searchsorted(share, generator.random(count) * share[-1], side="right")
        # rounding could point past the end: the last value that has a weight stands there
        return values[np.minimum(chosen, np.flatnonzero(self.weights)[-1])]


LENGTHS = Choice(
    "a whole number or a distribution of lengths",
    {"fixed": Fixed, "uniform": Uniform, "lognormal": LogNormal, "zipf": Zipf, "empirical": Empirical},
    plain="fixed",
)


def _check_order(low: int, high: int, low_name: str, high_name: str) -> None:
    if low > high:
        raise InputError(f"{low_name} {low:,} is more than {high_name} {high:,}")
