"""Where a series of measurements changes its level for good.

Binary segmentation: of all places where the series could be cut in two, the one whose two sides differ most
against their noise is a change when its interval (musebench.report.statistics) leaves out 1, at a confidence
that allows for having looked at all places (Bonferroni); then each side is searched again. Exact values change
where they change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from musebench.report.statistics import Ratio, ratio

ALARMS = 0.05
"""How often a series without any change may show one."""


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
    confidence = 1.0 - ALARMS / (len(points) - 1)
    return [known[index] for index in sorted(_search(points, 0, len(points), confidence))]


def _search(points: Sequence[Sequence[float]], first: int, end: int, confidence: float) -> list[int]:
    best, at = 0.0, None
    for cut in range(first + 1, end):
        old = [value for values in points[first:cut] for value in values]
        new = [value for values in points[cut:end] for value in values]
        strength = _strength(ratio(old, new, confidence))
        if strength > best:
            best, at = strength, cut
    if at is None or best <= 1.0:
        return []
    return [*_search(points, first, at, confidence), at, *_search(points, at, end, confidence)]


def _strength(made: Ratio | None) -> float:
    """How many times its own noise a difference is; above 1 the interval leaves out 1."""
    if made is None or made.low is None or made.high is None:
        return 0.0
    centre, reach = math.log(made.low * made.high) / 2, math.log(made.high / made.low) / 2
    return abs(centre) / reach if reach else math.inf if centre else 0.0
