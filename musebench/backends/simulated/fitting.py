"""Numbers of a profile from measurements: lines and efficiency curves that keep relative errors small."""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from dataclasses import replace
from itertools import product
from math import inf

import numpy as np

from musebench.backends.simulated.kernels import ProductCurve, ProductPoint

SHARES = tuple(round(0.5 + 0.05 * step, 2) for step in range(11))
SHARPNESSES = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 8.0)
FIXED = (0.0, 1e-6, 2e-6, 3e-6, 4e-6, 5e-6, 7e-6, 1e-5, 2e-5)
"""What `fit_products` tries."""


def fit_line(work: Ordered[float], seconds: Ordered[float]) -> tuple[float, float]:
    """(fixed seconds, seconds a unit of work), both at least 0, with the least squares of relative errors.

    Raises:
        ValueError: no measurement, or a measurement of no time.
    """
    x, y = np.asarray(work, np.float64), np.asarray(seconds, np.float64)
    if len(x) == 0 or not (y > 0.0).all():
        raise ValueError(f"a line wants measurements that took time; it got {list(seconds)}")
    candidates = []
    if np.ptp(x) > 0:
        both = np.stack([np.ones_like(x), x], 1) / y[:, None]
        fixed, slope = np.linalg.lstsq(both, np.ones_like(y), rcond=None)[0]
        candidates.append((float(fixed), float(slope)))
    through, level = (x / y), (1.0 / y)
    if through.any():
        candidates.append((0.0, float(through.sum() / (through**2).sum())))
    candidates.append((float(level.sum() / (level**2).sum()), 0.0))
    allowed = [(fixed, slope) for fixed, slope in candidates if fixed >= 0.0 and slope >= 0.0]
    return min(allowed, key=lambda line: float((((line[0] + line[1] * x) / y - 1) ** 2).sum()))


def fit_products(points: Ordered[ProductPoint], bandwidth: float, rates: dict[str, float]) -> ProductCurve:
    """The curve of least mean relative error over a grid of its four numbers, `points` kept to correct it.

    Raises:
        ValueError: there is no point.
    """
    if not points:
        raise ValueError("a curve wants measured products")
    inputs = np.array([point.inputs for point in points], np.float64)
    outputs = np.array([point.outputs for point in points], np.float64)
    tokens = np.array([point.tokens for point in points], np.float64)
    measured = np.array([point.seconds for point in points])
    element = np.array([4.0 if point.dtype == "float32" else 2.0 for point in points])
    memory = element * (inputs * outputs + tokens * (inputs + outputs)) / bandwidth
    compute = 2.0 * tokens * inputs * outputs / np.array([rates[point.dtype] for point in points])
    best, found = inf, ProductCurve(1.0, 1.0, 2.0, 0.0)
    for of_bandwidth, of_rate, sharpness in product(SHARES, SHARES, SHARPNESSES):
        both = ((memory / of_bandwidth) ** sharpness + (compute / of_rate) ** sharpness) ** (1 / sharpness)
        for fixed in FIXED:
            error = float(np.abs((fixed + both) / measured - 1).mean())
            if error < best:
                best, found = error, ProductCurve(of_bandwidth, of_rate, sharpness, fixed)
    return replace(found, points=tuple(points))


def curve_errors(curve: ProductCurve, bandwidth: float, rates: dict[str, float]) -> list[float]:
    """Relative error of the bare curve, without its corrections, at each of its points."""
    bare = replace(curve, points=())
    errors = []
    for point in curve.points:
        element = 4 if point.dtype == "float32" else 2
        moved = element * (point.inputs * point.outputs + point.tokens * (point.inputs + point.outputs))
        flops = 2.0 * point.tokens * point.inputs * point.outputs
        place = (point.dtype, point.tokens, point.inputs, point.outputs)
        seconds, _ = bare.seconds(bandwidth, rates[point.dtype], moved, flops, place)
        errors.append(abs(seconds / point.seconds - 1))
    return errors
