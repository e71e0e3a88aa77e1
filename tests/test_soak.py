"""A short soak on the CPU; tests/gpu has the long one."""

from __future__ import annotations

from soak import soak

from musebench.core.request import FinishReason


def test_a_soak_with_cancels_growth_and_preemption_leaves_nothing():
    outcome = soak("cpu", "eager", 300, waves=3)
    assert sum(outcome.ended.values()) == 300
    assert outcome.ended[FinishReason.CANCELLED] > 5
    assert outcome.ended[FinishReason.REFUSED] > 0
    assert outcome.preemptions > 0
    assert outcome.growths > 2
