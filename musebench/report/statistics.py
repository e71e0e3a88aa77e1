"""How far two groups of repeated measurements lie apart, and whether that is more than their noise.

The estimate is the ratio of the medians. With few repeats (3 to 10) the percentile bootstrap draws from a
handful of values and covers far less than it says, so the interval is a studentized bootstrap in the
logarithm

    median of log b - median of log a +- q x sqrt(e_a^2 + e_b^2)

q is the quantile of the studentized difference over draws from the fitted noise (log-normal, each group with
a spread of its own): the parametric bootstrap for two means of unequal variances (Krishnamoorthy, Lu and
Mathew, 2007) with the median in the mean's place. e is a group's standard error, spread / sqrt(n), made
larger where the plain bootstrap of its median scatters more than such noise would: flat and two-peaked noise,
whose medians jump. tests/test_statistics.py holds the coverage on noise of known truth.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DRAWS = 10_000
RESAMPLES = 500
SCATTER = 1.05
"""By which the plain bootstrap of a median may exceed what the fitted noise gives, by chance alone."""

SEED = 20_260_101
"""Of the bootstrap draws: the same samples give the same interval."""

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Ratio:
    """The median of new samples over the median of the old ones, and the interval that holds the true ratio.

    `low` and `high` are None where the noise is unknown: fewer than two samples on either side.
    """

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def known(self) -> bool:
        """Whether there is an interval."""
        return self.low is not None

    @property
    def differs(self) -> bool:
        """Whether the difference exceeds the noise: the interval leaves out 1."""
        return self.low is not None and self.high is not None and not self.low <= 1.0 <= self.high


def ratio(old: Sequence[float], new: Sequence[float], confidence: float = CONFIDENCE) -> Ratio | None:
    """`new` over `old`: samples in any one unit, one a repeat, all positive.

    None where a ratio says nothing: no samples on one side, or a value that is not positive.
    """
    if not old or not new or not all(0 < value < math.inf for value in (*old, *new)):
        return None
    first, second = np.log(np.asarray(old, np.float64)), np.log(np.asarray(new, np.float64))
    centre = float(np.median(second) - np.median(first))
    if len(old) < 2 or len(new) < 2:
        return Ratio(math.exp(centre))
    error = math.hypot(_error(first), _error(second))
    reach = _quantile(first, second, confidence) * error if error else 0.0
    return Ratio(math.exp(centre), math.exp(centre - reach), math.exp(centre + reach))


def _error(logs: np.ndarray) -> float:
    """Standard error of a group's centre: spread / sqrt(n), or more where its median scatters more."""
    spread = float(logs.std(ddof=1))
    if not spread:
        return 0.0
    picks = _picks(len(logs))
    medians, _ = _draws(len(logs), 0)
    more = float(np.median(logs[picks], axis=1).std()) / (spread * float(medians.std()))
    return spread / math.sqrt(len(logs)) * max(1.0, more / SCATTER)


def _quantile(first: np.ndarray, second: np.ndarray, confidence: float) -> float:
    """Of |t| over draws of two groups of these sizes and spreads; one of the spreads is above 0."""
    spreads = np.array([first.std(ddof=1), second.std(ddof=1)])
    a, b = spreads / spreads.max()
    (median_a, variance_a), (median_b, variance_b) = _draws(len(first), 0), _draws(len(second), 1)
    error = np.sqrt(a * a * variance_a / len(first) + b * b * variance_b / len(second))
    return float(np.quantile(np.abs(b * median_b - a * median_a) / error, confidence))


@functools.lru_cache(maxsize=256)
def _draws(samples: int, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Median and variance, float64 [DRAWS] each, of `samples` standard normal values."""
    values = np.random.default_rng((SEED, side, samples)).standard_normal((DRAWS, samples))
    return np.median(values, axis=1), values.var(axis=1, ddof=1)


@functools.lru_cache(maxsize=256)
def _picks(samples: int) -> np.ndarray:
    """Rows [RESAMPLES, samples] of the plain bootstrap, drawn with replacement."""
    return np.random.default_rng((SEED, samples)).integers(0, samples, (RESAMPLES, samples))
