"""The torch backend on the CPU, driven by hand: tokens, samples, margins and refusals."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from step_driver import LLAMA, PROMPTS, Driver, Piece, llama_backend, llama_driver, pack
from tiny_models import as_model, generated, tiny_module

from musebench.backends.torch_backend import TorchBackend
from musebench.backends.torch_compiled import CompiledCall
from musebench.backends.torch_options import TorchOptions
from musebench.core.batch import BatchLayout
from musebench.core.errors import UnsupportedError, UsageError
from musebench.core.protocols import PoolBounds
from musebench.core.request import Sampling
from musebench.core.sampling import choose
from musebench.core.sequence import PENDING


def test_a_token_that_the_device_has_sampled_need_not_come_back_first():
    expected = generated(LLAMA, PROMPTS[1], 6)
    steps = llama_driver()
    slot = steps.add(PROMPTS[1])
    outputs = [steps.backend.forward(pack([steps.piece(slot, 100)]))]
    for _ in range(5):
        steps.tokens[slot].append(PENDING)
        outputs.append(steps.backend.forward(pack([steps.piece(slot, 1)], decode=True)))
    assert [int(output.wait()[0]) for output in outputs] == expected


def test_each_pending_token_is_its_own_slots():
    expected = [generated(LLAMA, prompt, 2) for prompt in PROMPTS]
    steps = llama_driver()
    slots = [steps.add(prompt) for prompt in PROMPTS]
    first = steps.backend.forward(pack([steps.piece(slot, 100) for slot in slots]))
    for slot in slots:
        steps.tokens[slot].append(PENDING)
    second = steps.backend.forward(pack([steps.piece(slot, 1) for slot in reversed(slots)], decode=True))
    assert list(map(list, zip(first.wait().tolist(), second.wait().tolist()[::-1], strict=True))) == expected


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_poison_in_scratch_and_free_rows_changes_no_token(poison):
    clean, poisoned = llama_driver(), llama_driver()
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
        steps = llama_driver()
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
        steps = llama_driver()
        alone.append(steps.run({steps.add(prompt, how): 8}, most=100)[1])
    together = llama_driver()
    slots = [together.add(prompt, how) for prompt, how in zip(PROMPTS, sampling, strict=True)]
    slots.append(together.add(PROMPTS[0]))
    made = together.run(dict.fromkeys(slots, 8), most=4, pad=1)
    assert [made[slot] for slot in slots] == [*alone, generated(LLAMA, PROMPTS[0], 8)]


def test_sampled_tokens_equal_the_reference_on_the_models_logits():
    steps = llama_driver()
    slot = steps.add(PROMPTS[1], Sampling(0.9, 50, 0.8, 77))
    steps.run({slot: 10}, most=100)
    tokens = steps.tokens[slot]
    with torch.inference_mode():
        logits = LLAMA(torch.tensor([tokens])).logits[0].numpy()
    for position in range(len(PROMPTS[1]), len(tokens)):
        assert tokens[position] == choose(logits[position - 1], Sampling(0.9, 50, 0.8, 77), position)


def test_a_step_that_wants_no_token_makes_none():
    steps = llama_driver()
    steps.add(PROMPTS[2])
    output = steps.step([1], most=7)
    assert output.wait().tolist() == []
    assert output.wait().dtype == np.int32


def test_edits_of_the_cell_table_are_seen_before_the_step():
    """A fork: another slot owns the first cells of a sequence, and goes on by itself."""
    prompt = PROMPTS[2]
    expected = generated(LLAMA, [*prompt[:20], 5, 6], 1)
    steps = llama_driver()
    slot = steps.add(prompt)
    steps.step([slot], most=30)
    edit = (4, 0, np.array(steps.cells[slot][:20], np.int32))
    piece = Piece(4, [5, 6], 20, [steps._free.pop(), steps._free.pop()])
    assert steps.backend.forward(pack([piece], edits=(edit,))).wait().tolist() == expected


def test_compiled_tokens_equal_generate_and_growth_compiles_nothing():
    """Without code generation, which takes a compiler and minutes: what is traced is the same."""
    module = tiny_module("llama", num_hidden_layers=3)
    backend = TorchBackend(TorchOptions(), "cpu", as_model(module))
    steps = Driver(backend, sessions=3, context=64, rows=60)
    assert backend.compilations() == {}
    backend.program.model = CompiledCall(backend.program.model, backend="aot_eager")
    for prompt in PROMPTS:
        steps.add(prompt)
    steps.step((1, 2, 3), most=7)
    steps.step((2, 3), most=30)
    steps.grow(200)
    steps.run({2: 6, 3: 6})
    # One for all three layers, one for the rotary tables, one for the last norm.
    assert backend.compilations()["compilations"] == 3
    assert backend.compilations()["compile seconds"] > 0.0
    for slot in (2, 3):
        prompt, tokens = PROMPTS[slot - 1], steps.tokens[slot]
        assert tokens[len(prompt) :] == generated(module, prompt, len(tokens) - len(prompt))


def test_margins_are_recorded_when_asked_for():
    made = llama_backend()
    made.open(PoolBounds(2, 64), record_margins=True)
    made.storage().resize(20, 0)
    output = made.forward(pack([Piece(1, PROMPTS[1], 0, range(1, 10))], pad_rows=2))
    output.wait()
    with torch.inference_mode():
        largest = LLAMA(torch.tensor([PROMPTS[1]])).logits[0, -1].topk(2).values
    assert output.margins.dtype == np.float32
    assert output.margins.tolist() == pytest.approx([float(largest[0] - largest[1])], abs=1e-4)


def test_an_output_may_be_asked_again_and_knows_its_time():
    steps = llama_driver()
    steps.add(PROMPTS[0])
    output = steps.step([1])
    assert output.wait().tolist() == output.wait().tolist()
    assert output.device_seconds > 0.0
    assert output.margins is None


def test_logits_that_are_not_finite_are_told_by_row():
    steps = llama_driver()
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
    steps = llama_driver(dtype=dtype)
    steps.add(PROMPTS[1])
    assert len(steps.run({1: 4})[1]) == 4
    assert steps.storage.cell_bytes == 2 * 2 * 3 * 16 * 2
    assert steps.storage.cell_bytes == steps.backend.facts.cell_bytes


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
    made = llama_backend()
    made.open(PoolBounds(2, 64))
    message = "^executor 'graph' needs a CUDA device; use --executor eager$"
    with pytest.raises(UnsupportedError, match=message):
        made.require_capture()
    with pytest.raises(UnsupportedError, match=message):
        made.capture(BatchLayout(1, 1, 1, decode=True))
    assert made.graph_pool_bytes == 0


def test_triton_kernels_on_a_cpu_are_refused():
    with pytest.raises(UnsupportedError, match=r"use --set backend\.kernels=reference"):
        llama_backend(options=TorchOptions(kernels="triton"))


def test_a_model_without_weights_is_refused():
    with pytest.raises(UsageError, match="without weights"):
        TorchBackend(TorchOptions(), "cpu", replace(as_model(LLAMA), module=None))


def test_opening_twice_is_refused():
    made = llama_backend()
    made.open(PoolBounds(2, 64))
    with pytest.raises(RuntimeError, match="open already"):
        made.open(PoolBounds(2, 64))


def test_tables_are_allocated_once_for_all_sessions():
    made = llama_backend()
    made.open(PoolBounds(5, 65))
    assert made.program.table.shape == (6, 128)
    assert made.program.last_token.shape == (6,)
    assert {made.program.table.dtype, made.program.last_token.dtype} == {torch.int32}


def test_conditions_are_json_and_memory_keeps_its_sources_apart():
    made = llama_backend()
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
        llama_backend()
        assert torch.get_float32_matmul_precision() == "highest"
    finally:
        torch.set_float32_matmul_precision("highest")
