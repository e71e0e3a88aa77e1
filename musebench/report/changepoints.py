"""Where a series of measurements changes its level for good.

Cuts are proposed as the least-squares fit of levels to the logarithms with a price on every cut (optimal
partitioning, Jackson et al. 2005; the price is Schwarz's, 2 x noise variance x log n), and then held against
the noise: the weakest is dropped for as long as it does not part the samples on its two sides at a confidence
that allows for all places where a cut could be (Bonferroni, intervals of musebench.report.statistics). Exact
values change where they change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from musebench.report.statistics import Ratio, ratio

ALARMS = 0.05
"""How often a series without any change may show one."""

NORMAL_MAD = 1.4826
"""Standard deviation of normal noise over its median absolute deviation."""


def change_points(samples: Sequence[Sequence[float]], exact: bool) -> list[int]:
    """Indices of the points at which a new level begins, ascending; each point has its samples, in order.

    Points without a sample are passed over. Exact values (counts, bytes, virtual time) change at every point
    that differs from the one before it.
    """
    known = [index for index, values in enumerate(samples) if values]
    points = [tuple(samples[index]) for index in known]
    if exact:
        return [known[i] for i in range(1, len(points)) if set(points[i]) != set(points[i - 1])]
    if len(points) < 2 or not all(value > 0 for values in points for value in values):
        return []
    logs = [np.log(np.asarray(values, np.float64)) for values in points]
    cuts = _proposed(logs, _noise(logs))
    confidence = 1.0 - ALARMS / (len(points) - 1)
    while cuts:
        strengths = [_strength(points, cuts, index, confidence) for index in range(len(cuts))]
        weakest = int(np.argmin(strengths))
        if strengths[weakest] > 1.0:
            break
        del cuts[weakest]
    return [known[cut] for cut in cuts]


def _noise(logs: Sequence[np.ndarray]) -> float:
    """Variance of one sample: within points, or where they have one each, between neighbours (robustly)."""
    freedom = sum(len(values) - 1 for values in logs)
    if freedom:
        return float(sum(((values - values.mean()) ** 2).sum() for values in logs)) / freedom
    steps = np.diff(np.array([values[0] for values in logs]))
    return float(NORMAL_MAD * np.median(np.abs(steps))) ** 2 / 2


def _proposed(logs: Sequence[np.ndarray], noise: float) -> list[int]:
    """Cuts of the cheapest fit: squared distance from the level of each part, and a price a cut."""
    count = np.cumsum([0, *(len(values) for values in logs)])
    total = np.cumsum([0.0, *(values.sum() for values in logs)])
    square = np.cumsum([0.0, *((values**2).sum() for values in logs)])
    price = 2.0 * noise * math.log(count[-1])
    cost, cut = np.zeros(len(logs) + 1), np.zeros(len(logs) + 1, np.int64)
    cost[0] = -price
    for end in range(1, len(logs) + 1):
        starts = np.arange(end)
        parts = (
            square[end] - square[starts] - (total[end] - total[starts]) ** 2 / (count[end] - count[starts])
        )
        all_costs = cost[starts] + parts + price
        cut[end] = int(np.argmin(all_costs))
        cost[end] = all_costs[cut[end]]
    made: list[int] = []
    end = int(cut[len(logs)])
    while end > 0:
        made.append(end)
        end = int(cut[end])
    return made[::-1]


def _strength(points: Sequence[Sequence[float]], cuts: Sequence[int], index: int, confidence: float) -> float:
    """How many times its own noise a difference is; above 1 the interval leaves out 1."""
    edges = [0, *cuts, len(points)]
    old = [value for values in points[edges[index] : edges[index + 1]] for value in values]
    new = [value for values in points[edges[index + 1] : edges[index + 2]] for value in values]
    made: Ratio | None = ratio(old, new, confidence)
    if made is None or made.low is None or made.high is None:
        return 0.0
    centre, reach = math.log(made.low * made.high) / 2, math.log(made.high / made.low) / 2
    return abs(centre) / reach if reach else math.inf if centre else 0.0
