"""Rows in torch tensors: growth keeps contents, a failure changes nothing, closing is safe."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from step_driver import LLAMA, PROMPTS, Piece, llama_backend, llama_driver, pack, same_bits
from tiny_models import generated

from musebench.backends import torch_device
from musebench.backends.torch_options import TorchOptions
from musebench.core.errors import OutOfMemory
from musebench.core.protocols import Resize


def test_growth_between_steps_keeps_tokens():
    small, large = llama_driver(rows=60, options=TorchOptions(poison=True)), llama_driver(rows=300)
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
    storage = llama_backend().storage()
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
    storage = llama_backend(options=TorchOptions(poison=True)).storage()
    storage.resize(6, 0)
    for tensor in storage.buffers.tensors:
        tensor[:] = torch.arange(6.0)[:, None, None]
    storage.resize(9, 4)
    for tensor in storage.buffers.tensors:
        assert tensor[:, 0, 0].isnan().tolist() == [True, False, False, False, *[True] * 5]
        assert tensor[1:4, 2, 5].tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("fails_at", [0, 1, 3])
def test_an_allocation_that_fails_leaves_all_as_it_was(monkeypatch, fails_at):
    steps = llama_driver(rows=80)
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
    storage = llama_backend().storage()
    storage.resize(5, 0)
    before = storage.buffers
    monkeypatch.setattr(torch.Tensor, "copy_", lambda *_: (_ for _ in ()).throw(RuntimeError("copy")))
    with pytest.raises(RuntimeError, match="copy"):
        storage.resize(9, 5)
    assert storage.buffers is before
    assert (storage.rows, storage.generation) == (5, 1)


def test_more_than_the_machine_has_is_refused_before_it_is_touched(monkeypatch):
    storage = llama_backend().storage()
    monkeypatch.setattr(torch_device.memory, "host_available", lambda: 1_000_000)
    with pytest.raises(OutOfMemory, match="1,000,000 are free"):
        storage.resize(1_000_000, 0)
    assert (storage.rows, storage.bytes) == (0, 0)


@pytest.mark.parametrize(("rows", "live"), [(5, 11), (20, 11), (20, -1)])
def test_rows_that_do_not_exist_cannot_be_kept(rows, live):
    storage = llama_backend().storage()
    storage.resize(10, 0)
    with pytest.raises(ValueError, match=f"{live} live rows of 10"):
        storage.resize(rows, live)


def test_closing_is_safe_twice_and_in_any_order():
    steps = llama_driver()
    storage = steps.storage
    storage.close()
    steps.backend.close()
    storage.close()
    steps.backend.close()
    assert (storage.rows, storage.bytes) == (0, 0)
    with pytest.raises(RuntimeError, match="not open"):
        steps.backend.forward(pack([Piece(1, [1], 0, [1])]))
    llama_backend().close()


def test_rows_move_inside_a_storage_in_order_and_over_themselves():
    storage = llama_backend().storage()
    storage.resize(12, 0)
    for tensor in storage.buffers.tensors:
        tensor[:] = torch.arange(12.0)[:, None, None]
    copied = storage.move([(1, 3, 4), (10, 1, 2)])
    assert copied == 6 * storage.cell_bytes
    for tensor in storage.buffers.tensors:
        assert tensor[:, 1, 7].tolist() == [0, 10, 11, 1, 2, 3, 4, 7, 8, 9, 10, 11]
    for run in ((0, 3, 1), (3, 0, 1), (10, 3, 3), (3, 10, 3)):
        with pytest.raises(ValueError, match="of 12 cannot be copied"):
            storage.move([(5, 6, 1), run])
    assert storage.buffers.keys[0][6, 0, 0] == 4
