"""The fuzz targets within the suite: bounded, through hypothesis, from the same seeds."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from seeds import seeds, words
from targets import TARGETS

BOUNDED = settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@st.composite
def mutated(draw, target: str) -> bytes:
    """A seed with a few pieces put in, cut out or written twice; or bytes alone."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=64))
    data = draw(st.sampled_from(seeds(target)))
    pieces = st.one_of(st.binary(max_size=6), st.sampled_from(words(target) or [b"0"]))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(start + 12, len(data))))
        data = data[:start] + draw(st.one_of(pieces, st.just(data[start:end] * 2))) + data[end:]
    return data


@pytest.mark.parametrize("name", sorted(TARGETS))
@given(data=st.data())
@BOUNDED
def test_no_input_ends_in_anything_but_a_value_or_one_line(name, data):
    TARGETS[name](data.draw(mutated(name)))


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_every_seed_is_taken_by_its_target(name):
    assert seeds(name)
    for seed in seeds(name):
        TARGETS[name](seed)
