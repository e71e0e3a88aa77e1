"""No index reaches the device that is out of its range."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_driver import PROMPTS, Piece, llama_driver, pack, same_bits

from musebench.backends.batch_check import check_batch
from musebench.core.sequence import PENDING


def good_batch():
    return pack([Piece(1, [5, 6], 3, [4, 5]), Piece(2, [7], 0, [6])], pad_tokens=1, pad_rows=1)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("token_ids", -2, "token id 1 is -2"), ("token_ids", 199, "token id 1 is 199"),
        ("positions", -1, "position 1 is -1"), ("positions", 128, "position 1 is 128"),
        ("cells", -1, "cell 1 is -1; 0 to 49 is wanted"), ("cells", 50, "cell 1 is 50"),
        ("cells", 0, "token 1 has slot 1 and cell 0"), ("slots", 0, "token 1 has slot 0 and cell 5"),
        ("slots", -1, "slot 1 is -1"), ("slots", 3, "slot 1 is 3"),
        ("sequence_slots", 3, "sequence slot 1 is 3"), ("starts", 5, "start 1 is 5"), ("starts", 4, "fall"),
        ("rows", 4, "row 1 is 4"), ("rows", -1, "row 1 is -1"), ("row_slots", -1, "row slot 1 is -1"),
        ("row_slots", 2**31 - 1, "row slot 1"),
    ],
)  # fmt: skip
def test_an_index_out_of_its_range_is_refused_by_name(field, value, message):
    batch = good_batch()
    getattr(batch.fields, field)[1] = value
    with pytest.raises(ValueError, match=message):
        check_batch(batch, slots=2, width=128, rows=50, vocabulary=199)


@pytest.mark.parametrize(
    "edit", [(0, 0, [1]), (3, 0, [1]), (1, -1, [1]), (1, 127, [1, 2]), (1, 0, [0]), (1, 0, [50])]
)
def test_an_edit_out_of_its_range_is_refused(edit):
    batch = replace(good_batch(), edits=((edit[0], edit[1], np.array(edit[2], np.int32)),))
    with pytest.raises(ValueError, match="edit"):
        check_batch(batch, slots=2, width=128, rows=50, vocabulary=199)


@settings(max_examples=50)
@given(st.sampled_from(["token_ids", "positions", "cells", "slots", "sequence_slots", "rows", "row_slots"]),
       st.integers(0, 2), st.integers(-(2**31), 2**31 - 1))  # fmt: skip
def test_every_accepted_index_is_in_its_range(field, place, value):
    batch = good_batch()
    values = getattr(batch.fields, field)
    values[place % len(values)] = value
    ends = {
        "token_ids": 199,
        "positions": 128,
        "cells": 50,
        "slots": 3,
        "sequence_slots": 3,
        "rows": 4,
        "row_slots": 3,
    }
    try:
        check_batch(batch, slots=2, width=128, rows=50, vocabulary=199)
    except ValueError:
        return
    assert (PENDING if field == "token_ids" else 0) <= value < ends[field]


def test_a_refused_batch_changes_nothing():
    steps = llama_driver()
    steps.add(PROMPTS[1])
    steps.step([1], most=100)
    contents = [tensor.clone() for tensor in (*steps.storage.buffers.tensors, steps.backend.program.table)]
    with pytest.raises(ValueError, match="cell 0 is -1"):
        steps.backend.forward(pack([Piece(2, [3], 0, [-1])]))
    for tensor, old in zip(
        (*steps.storage.buffers.tensors, steps.backend.program.table), contents, strict=True
    ):
        assert same_bits(tensor, old)
