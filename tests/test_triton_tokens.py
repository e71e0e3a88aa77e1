"""The kernels at a step's two ends in Triton's interpreter, against torch; in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from musebench.backends.step_ends import TorchEnds
from musebench.core.batch import BatchLayout

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
interpreted = pytest.mark.skipif(not INTERPRETED, reason="runs in a process with TRITON_INTERPRET=1")


@interpreted
@pytest.mark.parametrize("rows", [1, 3, 17])
@pytest.mark.parametrize("vocabulary", [5, 1024, 1025, 20_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_leave_gives_the_lowest_of_the_largest_and_keeps_it(rows, vocabulary, dtype):
    from musebench.kernels.triton_tokens import leave

    random = torch.Generator().manual_seed(rows * vocabulary)
    # Few values, so that many rows have several largest.
    logits = torch.randint(-6, 4, (rows, vocabulary), generator=random).to(dtype)
    row_slots = torch.randperm(rows, generator=random).int() + 1
    last_token = torch.full((rows + 1,), -7, dtype=torch.int32)
    results = leave(logits, row_slots, last_token)
    assert results[0].tolist() == logits.argmax(-1).tolist()
    assert results[1].tolist() == [1] * rows
    assert last_token[0] == -7
    assert last_token[row_slots].tolist() == results[0].tolist()


@interpreted
@pytest.mark.parametrize(
    ("wrong", "finite"),
    [(float("nan"), 0), (float("inf"), 0), (float("-inf"), 1)],
)
def test_leave_says_which_rows_are_not_finite(wrong, finite):
    from musebench.kernels.triton_tokens import leave

    logits = torch.randn(4, 3000, generator=torch.Generator().manual_seed(0))
    logits[2, 2500] = wrong
    last_token = torch.zeros(5, dtype=torch.int32)
    results = leave(logits, torch.arange(1, 5, dtype=torch.int32), last_token)
    assert results[1].tolist() == [1, 1, finite, 1]
    others = [0, 1, 3]
    assert results[0][others].tolist() == logits.argmax(-1)[others].tolist()


@interpreted
def test_leave_finds_nothing_in_a_row_of_minus_infinity():
    from musebench.kernels.triton_tokens import leave

    logits = torch.full((1, 2000), float("-inf"))
    results = leave(logits, torch.ones(1, dtype=torch.int32), torch.zeros(2, dtype=torch.int32))
    assert results[1].tolist() == [0]
    assert 0 <= results[0, 0] < 2000


@interpreted
@pytest.mark.parametrize("tokens", [1, 5, 128, 300])
def test_enter_fills_in_what_the_device_sampled_and_notes_the_cells(tokens):
    from musebench.kernels.triton_tokens import enter

    random = torch.Generator().manual_seed(tokens)
    layout = BatchLayout(tokens, tokens, tokens, decode=True)
    buffer = torch.zeros(layout.words, dtype=torch.int32)
    fields = layout.fields(buffer)
    fields.slots[:] = torch.randperm(tokens, generator=random).int() + 1
    fields.token_ids[:] = torch.randint(-1, 50, (tokens,), generator=random)
    fields.token_ids[0] = -1
    fields.positions[:] = torch.randint(0, 70, (tokens,), generator=random)
    fields.cells[:] = torch.randperm(tokens, generator=random).int() + 1
    last_token = torch.randint(100, 200, (tokens + 1,), generator=random).int()
    tables = [torch.full((tokens + 1, 80), -3, dtype=torch.int32)[:, :70] for _ in range(2)]
    expected = TorchEnds().enter(fields, last_token, tables[0])
    made = enter(fields.token_ids, fields.positions, fields.cells, fields.slots, last_token, tables[1])
    assert torch.equal(made, expected)
    assert torch.equal(tables[1], tables[0])


@pytest.mark.skipif(INTERPRETED, reason="this process interprets already")
def test_in_the_interpreter():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__],
        env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
