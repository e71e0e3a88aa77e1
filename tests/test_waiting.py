"""What a scheduler is offered of those who wait reads as the tuple it stands for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musebench.core.waiting import Offered, WaitingLine

places = st.integers(-11, 11)


@given(length=st.integers(0, 9), count=st.integers(0, 12), first=places, last=places)
def test_an_offer_reads_as_a_tuple(length, count, first, last):
    line = WaitingLine(range(length))
    offered, model = Offered(line, count), tuple(range(length))[:count]
    assert tuple(offered) == model
    assert len(offered) == len(model)
    assert bool(offered) == bool(model)
    assert offered[first:last] == model[first:last]
    assert line[first:last] == list(range(length))[first:last]
    assert list(reversed(offered)) == list(reversed(model))
    assert (first in offered) == (first in model)
    if -len(model) <= first < len(model):
        assert offered[first] == model[first]
    else:
        with pytest.raises(IndexError):
            offered[first]
