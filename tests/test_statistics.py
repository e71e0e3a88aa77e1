"""Intervals of ratios on noise of known truth: they hold it as often as they say, and do not cry wolf."""

from __future__ import annotations

import math

import numpy as np
import pytest

from musebench.report.statistics import ratio

DRAWS = 1_000
TRUTH = 1.1


def log_normal(draw, count, spread):
    return np.exp(spread * draw.standard_normal(count))


def heavy_tailed(draw, count, spread):
    return np.exp(spread * draw.standard_t(5, count))


def right_skewed(draw, count, spread):
    """Never faster than its floor, now and then much slower: how latencies look."""
    return (1 + spread * draw.exponential(1, count)) / (1 + spread * math.log(2))


def flat(draw, count, spread):
    return 1 + spread * draw.uniform(-1, 1, count)


def covered(noise, sizes, spreads, truth, seed=0):
    """How many of 1,000 draws have an interval that holds the true ratio, and how many that leaves out 1."""
    draw = np.random.default_rng(seed)
    held = alarms = 0
    for _ in range(DRAWS):
        old = 5.0 * noise(draw, sizes[0], spreads[0])
        new = 5.0 * truth * noise(draw, sizes[1], spreads[1])
        made = ratio(old.tolist(), new.tolist())
        held += made.low <= truth <= made.high
        alarms += made.differs
    return held, alarms


@pytest.mark.parametrize("noise", [log_normal, right_skewed])
@pytest.mark.parametrize(
    ("sizes", "spreads"),
    [
        ((3, 3), (0.02, 0.02)),
        ((5, 5), (0.02, 0.02)),
        ((10, 10), (0.05, 0.05)),
        ((10, 3), (0.02, 0.02)),
    ],
)
def test_a_95_percent_interval_holds_the_truth_in_92_to_98_of_100_draws(noise, sizes, spreads):
    held, _ = covered(noise, sizes, spreads, TRUTH)
    assert 920 <= held <= 980, held


@pytest.mark.parametrize("noise", [heavy_tailed, flat])
@pytest.mark.parametrize("sizes", [(5, 5), (10, 10)])
def test_other_shapes_of_noise_are_not_covered_less(noise, sizes):
    held, _ = covered(noise, sizes, (0.02, 0.02), TRUTH)
    assert held >= 920, held


@pytest.mark.parametrize("noise", [log_normal, right_skewed, heavy_tailed])
@pytest.mark.parametrize("sizes", [(3, 3), (5, 5), (10, 3)])
def test_without_a_difference_at_most_5_of_100_draws_say_there_is_one(noise, sizes):
    _, alarms = covered(noise, sizes, (0.03, 0.03), 1.0, seed=1)
    assert alarms <= 50, alarms


def test_a_difference_well_above_the_noise_is_seen():
    _, alarms = covered(log_normal, (5, 5), (0.01, 0.01), 0.95)
    assert alarms >= 990, alarms


def test_the_same_samples_give_the_same_interval_and_the_other_way_round_its_inverse():
    old, new = [1.0, 1.02, 0.99, 1.01], [1.2, 1.25, 1.18]
    made, again, back = ratio(old, new), ratio(old, new), ratio(new, old)
    assert made == again
    assert back.value == pytest.approx(1 / made.value)
    assert back.low == pytest.approx(1 / made.high, rel=0.01)


def test_the_estimate_is_the_ratio_of_medians_and_units_do_not_matter():
    old, new = [1.0, 2.0, 9.0], [4.0, 3.0, 50.0]
    made = ratio(old, new)
    assert made.value == pytest.approx(2.0)
    assert made.low < 2.0 < made.high
    scaled = ratio([value * 1e-6 for value in old], [value * 1e-6 for value in new])
    assert (scaled.low, scaled.high) == pytest.approx((made.low, made.high))


def test_one_sample_on_a_side_leaves_the_noise_unknown():
    made = ratio([2.0], [1.0, 1.1, 0.9])
    assert made.value == pytest.approx(0.5)
    assert not made.known
    assert not made.differs


def test_without_noise_any_difference_counts():
    same, other = ratio([2.0, 2.0], [2.0, 2.0]), ratio([2.0, 2.0], [2.1, 2.1])
    assert not same.differs
    assert other.differs
    assert (other.low, other.high) == pytest.approx((1.05, 1.05))


@pytest.mark.parametrize(
    ("old", "new"), [([], [1.0]), ([1.0], []), ([0.0, 1.0], [1.0, 1.0]), ([1.0, 1.0], [-1.0, 1.0])]
)
def test_nothing_and_what_is_not_positive_has_no_ratio(old, new):
    assert ratio(old, new) is None
