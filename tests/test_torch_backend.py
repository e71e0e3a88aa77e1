"""The torch backend on the CPU, driven by hand: tokens, storage, refusals, and what must never happen."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from step_driver import Driver, Piece, pack
from tiny_models import as_model, generated, tiny_module

from musebench.backends import torch_device
from musebench.backends.batch_check import check_batch
from musebench.backends.torch_backend import TorchBackend
from musebench.backends.torch_options import TorchOptions
from musebench.core.batch import BatchLayout
from musebench.core.errors import OutOfMemory, UnsupportedError, UsageError
from musebench.core.protocols import PoolBounds, Resize
from musebench.core.request import Sampling
from musebench.core.sampling import choose
from musebench.core.sequence import PENDING

transformers.logging.set_verbosity_error()

LLAMA = tiny_module("llama")
PROMPTS = [np.random.default_rng(5).integers(3, 199, length).tolist() for length in (1, 9, 30)]


def backend(module=LLAMA, dtype: str = "float32", options: TorchOptions | None = None) -> TorchBackend:
    return TorchBackend(options or TorchOptions(), "cpu", as_model(module, dtype))


def driver(rows: int = 200, **others) -> Driver:
    return Driver(backend(**others), sessions=6, context=100, rows=rows)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Rows that were never written may hold NaN, which equals nothing."""
    return torch.equal(one.view(torch.int32), other.view(torch.int32))


# -- tokens ---------------------------------------------------------------------------------------------


def test_a_token_that_the_device_has_sampled_need_not_come_back_first():
    expected = generated(LLAMA, PROMPTS[1], 6)
    steps = driver()
    slot = steps.add(PROMPTS[1])
    outputs = [steps.backend.forward(pack([steps.piece(slot, 100)]))]
    for _ in range(5):
        steps.tokens[slot].append(PENDING)
        outputs.append(steps.backend.forward(pack([steps.piece(slot, 1)], decode=True)))
    assert [int(output.wait()[0]) for output in outputs] == expected


def test_each_pending_token_is_its_own_slots():
    expected = [generated(LLAMA, prompt, 2) for prompt in PROMPTS]
    steps = driver()
    slots = [steps.add(prompt) for prompt in PROMPTS]
    first = steps.backend.forward(pack([steps.piece(slot, 100) for slot in slots]))
    for slot in slots:
        steps.tokens[slot].append(PENDING)
    second = steps.backend.forward(pack([steps.piece(slot, 1) for slot in reversed(slots)], decode=True))
    assert list(map(list, zip(first.wait().tolist(), second.wait().tolist()[::-1], strict=True))) == expected


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_poison_in_scratch_and_free_rows_changes_no_token(poison):
    clean, poisoned = driver(), driver()
    for steps in (clean, poisoned):
        for prompt in PROMPTS:
            steps.add(prompt)
    for tensor in poisoned.storage.buffers.tensors:
        tensor.fill_(poison)
    count = dict.fromkeys((1, 2, 3), 6)
    while len(clean.tokens[1]) < 7:
        expected, made = clean.step((1, 2, 3), pad=3), poisoned.step((1, 2, 3), pad=3)
        assert made.wait().tolist() == expected.wait().tolist()
        for tensor in poisoned.storage.buffers.tensors:
            tensor[0] = poison
    assert poisoned.run(count, pad=3) == clean.run(count, pad=3)


def test_neighbours_of_the_same_shapes_do_not_change_a_bit_of_a_rows_logits():
    rows = []
    for neighbour in ([7] * 9, [150, 3] * 4 + [2]):
        steps = driver()
        seen: list[torch.Tensor] = []
        model = steps.backend.program.model
        steps.backend.program.model = lambda *given, call=model, seen=seen: (
            seen.append(call(*given)) or seen[-1]
        )
        for prompt in (PROMPTS[2], neighbour):
            steps.add(prompt)
        for _ in range(7):
            steps.step((1, 2), most=30)
            steps.tokens[2][-1] = (steps.tokens[2][-1] * 3 + neighbour[1]) % 199
        rows.append([logits[0] for logits in seen])
    assert all(torch.equal(one, other) for one, other in zip(*rows, strict=True))


def test_sampled_tokens_depend_on_seed_and_position_alone():
    sampling = [Sampling(1.2, 30, 0.9, seed) for seed in (1, 2, 2**40 + 3)]
    alone = []
    for prompt, how in zip(PROMPTS, sampling, strict=True):
        steps = driver()
        alone.append(steps.run({steps.add(prompt, how): 8}, most=100)[1])
    together = driver()
    slots = [together.add(prompt, how) for prompt, how in zip(PROMPTS, sampling, strict=True)]
    slots.append(together.add(PROMPTS[0]))
    made = together.run(dict.fromkeys(slots, 8), most=4, pad=1)
    assert [made[slot] for slot in slots] == [*alone, generated(LLAMA, PROMPTS[0], 8)]


def test_sampled_tokens_equal_the_reference_on_the_models_logits():
    steps = driver()
    slot = steps.add(PROMPTS[1], Sampling(0.9, 50, 0.8, 77))
    steps.run({slot: 10}, most=100)
    tokens = steps.tokens[slot]
    with torch.inference_mode():
        logits = LLAMA(torch.tensor([tokens])).logits[0].numpy()
    for position in range(len(PROMPTS[1]), len(tokens)):
        assert tokens[position] == choose(logits[position - 1], Sampling(0.9, 50, 0.8, 77), position)


def test_a_step_that_wants_no_token_makes_none():
    steps = driver()
    steps.add(PROMPTS[2])
    output = steps.step([1], most=7)
    assert output.wait().tolist() == []
    assert output.wait().dtype == np.int32


def test_edits_of_the_cell_table_are_seen_before_the_step():
    """A fork: another slot owns the first cells of a sequence, and goes on by itself."""
    prompt = PROMPTS[2]
    expected = generated(LLAMA, [*prompt[:20], 5, 6], 1)
    steps = driver()
    slot = steps.add(prompt)
    steps.step([slot], most=30)
    edit = (4, 0, np.array(steps.cells[slot][:20], np.int32))
    piece = Piece(4, [5, 6], 20, [steps._free.pop(), steps._free.pop()])
    assert steps.backend.forward(pack([piece], edits=(edit,))).wait().tolist() == expected


def test_margins_are_recorded_when_asked_for():
    made = backend()
    made.open(PoolBounds(2, 64), record_margins=True)
    made.storage().resize(20, 0)
    output = made.forward(pack([Piece(1, PROMPTS[1], 0, range(1, 10))], pad_rows=2))
    output.wait()
    with torch.inference_mode():
        largest = LLAMA(torch.tensor([PROMPTS[1]])).logits[0, -1].topk(2).values
    assert output.margins.dtype == np.float32
    assert output.margins.tolist() == pytest.approx([float(largest[0] - largest[1])], abs=1e-4)


def test_an_output_may_be_asked_again_and_knows_its_time():
    steps = driver()
    steps.add(PROMPTS[0])
    output = steps.step([1])
    assert output.wait().tolist() == output.wait().tolist()
    assert output.device_seconds > 0.0
    assert output.margins is None


def test_logits_that_are_not_finite_are_told_by_row():
    steps = driver()
    for prompt in PROMPTS:
        steps.add(prompt)
    steps.step((1, 2, 3), most=100)
    steps.storage.buffers.values[1][steps.cells[2][0]] = math.nan
    pieces = [steps.piece(slot, 1) for slot in (1, 2, 3)]
    output = steps.backend.forward(pack(pieces, decode=True))
    with pytest.raises(FloatingPointError, match=r"rows \[1\] of 3 are not finite"):
        output.wait()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_other_dtypes_fill_cells_of_their_own_size(dtype):
    steps = driver(dtype=dtype)
    steps.add(PROMPTS[1])
    assert len(steps.run({1: 4})[1]) == 4
    assert steps.storage.cell_bytes == 2 * 2 * 3 * 16 * 2
    assert steps.storage.cell_bytes == steps.backend.facts.cell_bytes


# -- storage ---------------------------------------------------------------------------------------------


def test_growth_between_steps_keeps_tokens():
    small, large = driver(rows=60, options=TorchOptions(poison=True)), driver(rows=300)
    for steps in (small, large):
        for prompt in PROMPTS:
            steps.add(prompt)
    small.step((1, 2, 3), most=12)
    small.grow(110)
    small.step((1, 2, 3), most=12)
    small.grow(300)
    count = dict.fromkeys((1, 2, 3), 8)
    large.run(count)
    small.run({slot: len(large.tokens[slot]) - len(small.tokens[slot]) for slot in count})
    assert small.tokens == large.tokens


def test_a_resize_says_what_it_did_and_counts_bytes_from_the_buffers():
    storage = backend().storage()
    cell = 2 * 2 * 3 * 16 * 4
    assert (storage.rows, storage.bytes, storage.cell_bytes) == (0, 0, cell)
    assert replace(storage.resize(10, 0), seconds=0.0) == Resize(True, 0, 10 * cell, 0.0)
    assert (storage.rows, storage.bytes) == (10, 10 * cell)
    grown = storage.resize(25, 7)
    assert replace(grown, seconds=0.0) == Resize(True, 7 * cell, 35 * cell, 0.0)
    assert grown.seconds > 0.0
    generation = storage.generation
    assert storage.resize(25, 25) == Resize(False)
    assert storage.generation == generation
    assert storage.resize(8, 8).moved
    assert storage.bytes == 8 * cell


def test_only_the_live_prefix_is_kept_and_the_rest_is_poisoned():
    storage = backend(options=TorchOptions(poison=True)).storage()
    storage.resize(6, 0)
    for tensor in storage.buffers.tensors:
        tensor[:] = torch.arange(6.0)[:, None, None]
    storage.resize(9, 4)
    for tensor in storage.buffers.tensors:
        assert tensor[:, 0, 0].isnan().tolist() == [True, False, False, False, *[True] * 5]
        assert tensor[1:4, 2, 5].tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("fails_at", [0, 1, 3])
def test_an_allocation_that_fails_leaves_all_as_it_was(monkeypatch, fails_at):
    steps = driver(rows=80)
    for prompt in PROMPTS:
        steps.add(prompt)
    steps.step((1, 2, 3), most=100)
    before = (steps.storage.buffers, steps.storage.generation, steps.storage.rows, steps.storage.bytes)
    contents = [tensor.clone() for tensor in steps.storage.buffers.tensors]
    calls, empty = [], torch.empty

    def failing(*sizes, **others):
        calls.append(sizes)
        if len(calls) > fails_at:
            raise torch.OutOfMemoryError("no more")
        return empty(*sizes, **others)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", failing)
        with pytest.raises(OutOfMemory) as raised:
            steps.storage.resize(500, 80)
    assert raised.value.needed_bytes == 500 * steps.storage.cell_bytes
    assert "500 rows" in str(raised.value)
    assert (
        steps.storage.buffers,
        steps.storage.generation,
        steps.storage.rows,
        steps.storage.bytes,
    ) == before
    for tensor, old in zip(steps.storage.buffers.tensors, contents, strict=True):
        assert same_bits(tensor, old)
    steps.run(dict.fromkeys((1, 2, 3), 3))
    for slot, prompt in enumerate(PROMPTS, 1):
        assert steps.tokens[slot] == prompt + generated(LLAMA, prompt, 4)


def test_a_copy_that_fails_leaves_all_as_it_was(monkeypatch):
    storage = backend().storage()
    storage.resize(5, 0)
    before = storage.buffers
    monkeypatch.setattr(torch.Tensor, "copy_", lambda *_: (_ for _ in ()).throw(RuntimeError("copy")))
    with pytest.raises(RuntimeError, match="copy"):
        storage.resize(9, 5)
    assert storage.buffers is before
    assert (storage.rows, storage.generation) == (5, 1)


def test_more_than_the_machine_has_is_refused_before_it_is_touched(monkeypatch):
    storage = backend().storage()
    monkeypatch.setattr(torch_device.memory, "host_available", lambda: 1_000_000)
    with pytest.raises(OutOfMemory, match="1,000,000 are free"):
        storage.resize(1_000_000, 0)
    assert (storage.rows, storage.bytes) == (0, 0)


@pytest.mark.parametrize(("rows", "live"), [(5, 11), (20, 11), (20, -1)])
def test_rows_that_do_not_exist_cannot_be_kept(rows, live):
    storage = backend().storage()
    storage.resize(10, 0)
    with pytest.raises(ValueError, match=f"{live} live rows of 10"):
        storage.resize(rows, live)


def test_closing_is_safe_twice_and_in_any_order():
    steps = driver()
    storage = steps.storage
    storage.close()
    steps.backend.close()
    storage.close()
    steps.backend.close()
    assert (storage.rows, storage.bytes) == (0, 0)
    with pytest.raises(RuntimeError, match="not open"):
        steps.backend.forward(pack([Piece(1, [1], 0, [1])]))
    backend().close()


# -- indices ---------------------------------------------------------------------------------------------


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


@settings(max_examples=50, deadline=None)
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
    steps = driver()
    steps.add(PROMPTS[1])
    steps.step([1], most=100)
    contents = [tensor.clone() for tensor in (*steps.storage.buffers.tensors, steps.backend.program.table)]
    with pytest.raises(ValueError, match="cell 0 is -1"):
        steps.backend.forward(pack([Piece(2, [3], 0, [-1])]))
    for tensor, old in zip(
        (*steps.storage.buffers.tensors, steps.backend.program.table), contents, strict=True
    ):
        assert same_bits(tensor, old)


# -- refusals and facts ------------------------------------------------------------------------------------


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
@pytest.mark.parametrize("name", ["cuda", "cuda:1"])
def test_cuda_without_a_device_says_so_and_what_to_use(name):
    with pytest.raises(
        UnsupportedError, match=rf"^--device {name}: no CUDA device \(.+\); use --device cpu$"
    ):
        TorchBackend(TorchOptions(), name, as_model(LLAMA))


def test_an_unknown_device_is_refused():
    with pytest.raises(UnsupportedError, match="--device tpu: no such device; use cpu, cuda or cuda:N"):
        TorchBackend(TorchOptions(), "tpu", as_model(LLAMA))


def test_graphs_on_a_cpu_are_refused_with_what_to_use_instead():
    made = backend()
    made.open(PoolBounds(2, 64))
    message = "^executor 'graph' needs a CUDA device; use --executor eager$"
    with pytest.raises(UnsupportedError, match=message):
        made.require_capture()
    with pytest.raises(UnsupportedError, match=message):
        made.capture(BatchLayout(1, 1, 1, decode=True))
    assert made.graph_pool_bytes == 0


def test_triton_kernels_on_a_cpu_are_refused():
    with pytest.raises(UnsupportedError, match="use --set backend.kernels=reference"):
        backend(options=TorchOptions(kernels="triton"))


def test_a_model_without_weights_is_refused():
    with pytest.raises(UsageError, match="without weights"):
        TorchBackend(TorchOptions(), "cpu", replace(as_model(LLAMA), module=None))


def test_opening_twice_is_refused():
    made = backend()
    made.open(PoolBounds(2, 64))
    with pytest.raises(RuntimeError, match="open already"):
        made.open(PoolBounds(2, 64))


def test_tables_are_allocated_once_for_all_sessions():
    made = backend()
    made.open(PoolBounds(5, 65))
    assert made.program.table.shape == (6, 128)
    assert made.program.last_token.shape == (6,)
    assert {made.program.table.dtype, made.program.last_token.dtype} == {torch.int32}


def test_conditions_are_json_and_memory_keeps_its_sources_apart():
    made = backend()
    conditions = json.loads(json.dumps(dict(made.conditions()), allow_nan=False))
    assert conditions["dtype"] == "float32"
    assert conditions["kernels"] == "reference"
    assert conditions["torch"] == torch.__version__
    assert conditions["threads"] == torch.get_num_threads()
    snapshot = made.memory()
    assert (snapshot.allocated, snapshot.reserved, snapshot.peak, snapshot.device_used) == (None,) * 4
    assert snapshot.host_resident > 0


def test_float32_products_are_not_rounded_to_tf32():
    torch.set_float32_matmul_precision("high")
    try:
        backend()
        assert torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision("highest")
