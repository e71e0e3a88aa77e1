"""Spans of CUDA virtual memory against a driver of rules."""

from __future__ import annotations

import pytest
from fake_driver import GRANULE, FakeDriver
from hypothesis import given, settings
from hypothesis import strategies as st
from musebench_vmm.cuda import CudaMemory

from musebench.core.errors import OutOfMemory

MOST = 12


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, MOST * GRANULE), max_size=8),
    pieces=st.booleans(),
    granules=st.sampled_from([1, 2]),
)
def test_what_is_asked_for_is_mapped_once_usable_and_given_back(sizes, pieces, granules):
    driver = FakeDriver()
    span = CudaMemory(driver, granules * GRANULE, pieces).reserve(MOST * GRANULE)
    address = span.address
    for size in sizes:
        before, wanted = span.backed_bytes, -(-size // (granules * GRANULE)) * granules * GRANULE
        span.back(size)
        assert span.address == address
        driver.assert_usable(span.address, span.backed_bytes)
        assert driver.used == span.backed_bytes
        assert not driver.handles, "the mapping alone holds the memory"
        if pieces or wanted >= before:
            assert span.backed_bytes == wanted
        else:
            assert wanted <= span.backed_bytes <= before
    span.close()
    span.close()
    driver.assert_nothing_left()


def test_memory_that_ends_leaves_the_span_as_it_was():
    driver = FakeDriver(memory=5 * GRANULE)
    span = CudaMemory(driver, GRANULE, pieces=True).reserve(MOST * GRANULE)
    span.back(2 * GRANULE)
    with pytest.raises(OutOfMemory, match=r"2,097,152 bytes; 0 are free") as raised:
        span.back(7 * GRANULE)
    assert raised.value.needed_bytes == GRANULE
    assert span.backed_bytes == driver.used == 2 * GRANULE
    driver.assert_usable(span.address, 2 * GRANULE)
    span.back(5 * GRANULE)
    span.close()
    driver.assert_nothing_left()


@pytest.mark.parametrize("pieces", [False, True])
def test_a_call_that_fails_anywhere_in_a_growth_loses_nothing(pieces):
    clean = FakeDriver()
    span = CudaMemory(clean, GRANULE, pieces).reserve(MOST * GRANULE)
    span.back(GRANULE)
    first = clean.calls
    span.back(4 * GRANULE)
    for number in range(first + 1, clean.calls + 1):
        driver = FakeDriver(failing=frozenset({number}))
        span = CudaMemory(driver, GRANULE, pieces).reserve(MOST * GRANULE)
        span.back(GRANULE)
        with pytest.raises(RuntimeError, match=f"call {number} fails"):
            span.back(4 * GRANULE)
        driver.assert_usable(span.address, GRANULE)
        span.back(4 * GRANULE)
        driver.assert_usable(span.address, 4 * GRANULE)
        span.close()


def test_more_than_is_reserved_or_after_the_end_is_refused():
    span = CudaMemory(FakeDriver(), GRANULE, pieces=False).reserve(GRANULE)
    with pytest.raises(ValueError, match="reserved"):
        span.back(GRANULE + 1)
    span.close()
    with pytest.raises(ValueError, match="reserved"):
        span.back(1)
