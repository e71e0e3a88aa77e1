"""Long columns of a report: packed in its text, as they were when it is read."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_examples import pool, request, requests, steps

from musebench.report import latencies, packing
from musebench.report.column import Column, Runs
from musebench.report.packing import PACKED_FROM, Unpackable, pack, unpack
from musebench.report.schema import RunData

LONG = PACKED_FROM + 3
runs = st.lists(st.tuples(st.integers(0, 200), st.integers(1, 9)), min_size=1, max_size=20)


def runs_of(pairs: list[tuple[int, int]]) -> Runs:
    return Runs(*np.array(pairs, np.int64).T)


def again(values: Any) -> Any:
    """Packed, written, read and unpacked."""
    made = json.loads(json.dumps(pack(values)))
    assert isinstance(made, dict)
    return unpack(made)


@pytest.mark.parametrize(
    "values",
    [
        [index * 0.1 - 7 for index in range(LONG)],
        [(-1) ** index * index**3 for index in range(LONG)],
        ["length"] * LONG,
        [None] * LONG,
        [{"row": index, "tenant": "a"} for index in range(LONG)],
        Column(np.random.default_rng(0).normal(size=LONG)),
        Column(np.array([-0.0, 5e-324, 1.7976931348623157e308] * LONG)),
        Column(np.arange(LONG) // 7),
        Runs(np.arange(LONG) * 3 % 1000, np.full(LONG, 2)),
    ],
)
def test_a_long_list_is_what_it_was_to_the_last_bit(values):
    made = again(values)
    assert len(made) == len(values)
    assert repr(list(made)) == repr(list(values))


@pytest.mark.parametrize("values", [[1, None] * LONG, ["a", "b"] * LONG, [2**70] + [1] * LONG, [1, 2, 3]])
def test_what_cannot_be_packed_or_is_short_stays_as_it_is(values):
    assert pack(values) is values


def test_numbers_that_are_not_finite_are_not_written():
    with pytest.raises(ValueError, match="not JSON compliant"):
        pack(Column(np.full(LONG, np.inf)))


NUMBERS = pack(list(range(LONG)))
RUNS = pack(Runs(np.arange(LONG), np.full(LONG, 2)))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"packed": "zip", "of": 3}, "one of numbers, runs, same, records"),
        ({**NUMBERS, "of": packing.MOST_VALUES + 1}, "values; 1 to"),
        ({**NUMBERS, "of": True}, "has true packed values"),
        ({**NUMBERS, "of": LONG + 1}, "other than"),
        ({**NUMBERS, "of": LONG - 1}, "other than"),
        ({**NUMBERS, "data": "AAAA"}, "cannot be read"),
        ({**NUMBERS, "data": "*"}, "cannot be read"),
        ({**NUMBERS, "type": "<f4"}, "unknown type"),
        ({"packed": "numbers", "of": 3}, "has no 'type'"),
        ({**RUNS, "of": LONG}, "packed values and says"),
        ({**RUNS, "counts": [1]}, "do not belong together"),
        ({**RUNS, "firsts": ["a"]}, "other than whole numbers"),
        ({**RUNS, "firsts": [2**80]}, "beyond 62 bits"),
        ({"packed": "runs", "of": 1, "firsts": [1], "counts": [0]}, "do not belong together"),
        ({"packed": "same", "of": 9, "value": {}}, "no plain ones"),
        ({"packed": "records", "of": 2, "columns": {"a": [1]}}, "not of one length"),
        ({"packed": "records", "of": 2, "columns": {}}, "without columns"),
    ],
)
def test_a_packed_list_that_is_none_is_refused_with_its_fault(data, said):
    with pytest.raises(Unpackable, match=said):
        unpack(data)


@given(runs)
def test_runs_read_as_the_list_they_stand_for(pairs):
    made = runs_of(pairs)
    written = [first + ahead for first, count in pairs for ahead in range(count)]
    assert list(made) == written
    assert made == Column(np.array(written))
    assert [made[place] for place in range(-len(written), len(written))] == written * 2
    assert made[1:-1:2] == written[1:-1:2]
    assert made.bounds() == (min(written), max(written))
    assert made.falls().tolist() == Column(np.array(written)).falls().tolist()
    assert json.loads(made.json()) == written


@given(st.lists(runs, min_size=1, max_size=6), st.integers(0, 2**32))
def test_gaps_of_runs_are_those_of_the_tokens_written_out(made, seed):
    """Every request's tokens in runs that rise, some requests failed."""
    random = np.random.default_rng(seed)
    ascending = [
        sorted({(first * 10, count) for first, count in one}, key=lambda run: run[0]) for one in made
    ]
    ascending = [list({first: (first, count) for first, count in one}.values()) for one in ascending]
    rows = [
        request(str(index), generated_tokens=sum(count for _, count in one), finish_reason=reason)
        for index, one in enumerate(ascending)
        for reason in (random.choice(["length", "failed"]),)
    ]
    every = runs_of([run for one in ascending for run in one])
    ends = np.cumsum(random.integers(0, 3, 2100) * 0.1).tolist()
    packed = RunData(requests(*rows, token_steps=every), steps(ends), pool())
    written = dataclasses.replace(
        packed, requests=dataclasses.replace(packed.requests, token_steps=list(every))
    )
    assert sorted(latencies.itl(packed)) == pytest.approx(sorted(latencies.itl(written)))
    for mine, plain in zip(
        dataclasses.astuple(latencies.summary(latencies.itl(packed))),
        dataclasses.astuple(latencies.summary(latencies.itl(written))),
        strict=True,
    ):
        assert mine == pytest.approx(plain)
