"""The torch backend on an NVIDIA GPU: eager and captured steps make generate's tokens, and nothing waits."""

from __future__ import annotations

import gc
import json
import math

import numpy as np
import pytest
import torch
import transformers
from step_driver import Driver, Piece, pack
from tiny_models import ARCHITECTURES, as_model, generated, tiny_module

from musebench.backends.torch_backend import TorchBackend
from musebench.backends.torch_options import TorchOptions
from musebench.core.batch import BatchLayout
from musebench.core.errors import OutOfMemory, UnsupportedError
from musebench.core.request import Sampling

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
transformers.logging.set_verbosity_error()

PROMPTS = [np.random.default_rng(5).integers(3, 199, length).tolist() for length in (1, 2, 13, 40)]
SLOTS = (1, 2, 3, 4)
MIXTURES = ("mixtral", "qwen3_moe", "gpt_oss")


def backend(name: str = "llama", options: TorchOptions | None = None, dtype: str = "float32") -> TorchBackend:
    model = as_model(tiny_module(name), dtype)
    model.module.to("cuda")
    return TorchBackend(options or TorchOptions(poison=True), "cuda", model)


def driver(name: str = "llama", rows: int = 300, **others) -> Driver:
    steps = Driver(backend(name, **others), sessions=6, context=128, rows=rows)
    for prompt in PROMPTS:
        steps.add(prompt)
    return steps


def decode_pieces(steps: Driver, slots=SLOTS) -> list[Piece]:
    return [steps.piece(slot, 1) for slot in slots]


def expected(name: str, count: int) -> list[list[int]]:
    module = tiny_module(name).to("cuda")
    return [generated(module, prompt, count) for prompt in PROMPTS]


@pytest.mark.parametrize("kernels", ["triton", "reference"])
@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_eager_tokens_equal_generate(name, kernels):
    steps = driver(name, options=TorchOptions(kernels=kernels, poison=True))
    made = steps.run(dict.fromkeys(SLOTS, 12), most=7, pad=2)
    assert [made[slot] for slot in SLOTS] == expected(name, 12)


@pytest.mark.parametrize("name", sorted(set(ARCHITECTURES) - set(MIXTURES)))
def test_replayed_tokens_equal_generate(name):
    steps = driver(name)
    steps.step(SLOTS, most=40)
    graph = steps.backend.capture(BatchLayout(6, 6, 6, decode=True))
    for _ in range(11):
        pieces = decode_pieces(steps)
        steps.take(pieces, steps.backend.replay(graph, pack(pieces, pad_tokens=2, pad_rows=2, decode=True)))
    made = [steps.tokens[slot][-12:] for slot in SLOTS]
    assert made == expected(name, 12)
    assert steps.backend.graph_pool_bytes > 0


@pytest.mark.parametrize("name", MIXTURES)
def test_mixtures_of_experts_in_float32_say_that_they_cannot_be_captured(name):
    """transformers' grouped products wait for the device in float32; in bfloat16 they do not."""
    steps = driver(name)
    steps.step(SLOTS, most=40)
    with pytest.raises(
        UnsupportedError, match=r"^this model's step of 4 tokens cannot be captured \(.*eager$"
    ):
        steps.backend.capture(BatchLayout(4, 4, 4, decode=True))
    made = steps.run(dict.fromkeys(SLOTS, 5))
    assert [steps.tokens[slot][-6:] for slot in made] == expected(name, 6)


def test_a_step_that_cannot_be_captured_is_refused_and_eager_steps_go_on():
    steps = driver()
    steps.step(SLOTS, most=40)
    program = steps.backend.program
    model = program.model

    def waiting(*given):
        logits = model(*given)
        logits[0, 0].item()
        return logits

    program.model = waiting
    with pytest.raises(UnsupportedError, match=r"cannot be captured.*use --executor eager"):
        steps.backend.capture(BatchLayout(4, 4, 4, decode=True))
    made = steps.run(dict.fromkeys(SLOTS, 5))
    assert [steps.tokens[slot][-6:] for slot in made] == expected("llama", 6)
    program.model = model
    graph = steps.backend.capture(BatchLayout(4, 4, 4, decode=True))
    pieces = decode_pieces(steps)
    steps.take(pieces, steps.backend.replay(graph, pack(pieces, decode=True)))
    assert [steps.tokens[slot][-7:] for slot in made] == expected("llama", 7)


def test_replays_take_pending_tokens_from_the_step_before():
    steps = driver()
    steps.step(SLOTS, most=40)
    graph = steps.backend.capture(BatchLayout(4, 4, 4, decode=True))
    outputs = []
    for _ in range(11):
        outputs.append(steps.backend.replay(graph, pack(decode_pieces(steps), decode=True)))
        for slot in SLOTS:
            steps.tokens[slot].append(-1)
    made = np.stack([output.wait() for output in outputs], 1).tolist()
    assert made == [tokens[1:] for tokens in expected("llama", 12)]


def test_growth_between_replays_refuses_the_old_graph_and_keeps_tokens():
    steps = driver(rows=70)
    steps.step(SLOTS, most=40)
    layout = BatchLayout(4, 4, 4, decode=True)
    graph = steps.backend.capture(layout)
    for step in range(11):
        if step == 3:
            steps.grow(300)
            pieces = [Piece(1, [1], 90, [299])]
            with pytest.raises(RuntimeError, match="generation"):
                steps.backend.replay(graph, pack(pieces * 4, decode=True))
            steps.backend.drop(graph)
            graph = steps.backend.capture(layout)
        pieces = decode_pieces(steps)
        steps.take(pieces, steps.backend.replay(graph, pack(pieces, decode=True)))
    assert [steps.tokens[slot][-12:] for slot in SLOTS] == expected("llama", 12)


def test_a_graph_is_dropped_once_and_runs_its_own_layout_only():
    steps = driver()
    steps.step(SLOTS, most=40)
    graph = steps.backend.capture(BatchLayout(4, 4, 4, decode=True))
    with pytest.raises(RuntimeError, match="cannot run"):
        steps.backend.replay(graph, pack([Piece(1, [1], 60, [299])], decode=True))
    steps.backend.drop(graph)
    steps.backend.drop(graph)
    assert steps.backend.graph_pool_bytes == 0
    with pytest.raises(RuntimeError, match="was dropped"):
        steps.backend.replay(graph, pack(decode_pieces(steps), decode=True))


def test_capturing_a_ladder_again_and_again_holds_no_more_memory():
    steps = driver()
    held = []
    for _ in range(4):
        graphs = [steps.backend.capture(BatchLayout(size, size, size, decode=True)) for size in (6, 4, 2)]
        held.append(torch.cuda.memory_reserved())
        for graph in graphs:
            steps.backend.drop(graph)
        graphs.clear()
    assert len(set(held[1:])) == 1, held


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_poison_in_scratch_changes_no_token_of_a_replay(poison):
    steps = driver()
    steps.step(SLOTS, most=40)
    graph = steps.backend.capture(BatchLayout(6, 6, 6, decode=True))
    for _ in range(11):
        for tensor in steps.storage.buffers.tensors:
            tensor[0] = poison
        pieces = decode_pieces(steps)
        steps.take(pieces, steps.backend.replay(graph, pack(pieces, pad_tokens=2, pad_rows=2, decode=True)))
    assert [steps.tokens[slot][-12:] for slot in SLOTS] == expected("llama", 12)


def test_sampled_replays_take_the_tokens_of_sampled_eager_steps():
    def sampled() -> Driver:
        steps = Driver(backend(), sessions=6, context=128, rows=300)
        for slot, prompt in enumerate(PROMPTS):
            steps.add(prompt, Sampling(1.1, 40, 0.9, slot) if slot else Sampling())
        return steps

    eager, captured = sampled(), sampled()
    eager.run(dict.fromkeys(SLOTS, 12), most=40)
    captured.step(SLOTS, most=40)
    graph = captured.backend.capture(BatchLayout(5, 5, 5, sampled=True, decode=True))
    for _ in range(11):
        pieces = decode_pieces(captured)
        batch = pack(pieces, pad_tokens=1, pad_rows=1, decode=True)
        captured.take(pieces, captured.backend.replay(graph, batch))
    assert captured.tokens == eager.tokens


def test_neighbours_of_the_same_shapes_do_not_change_a_bit():
    rows = []
    for neighbour in (PROMPTS[2], [7, 150] * 6 + [9]):
        steps = Driver(backend(), sessions=3, context=128, rows=300)
        seen: list[torch.Tensor] = []
        model = steps.backend.program.model
        steps.backend.program.model = lambda *given, call=model, seen=seen: (
            seen.append(call(*given)) or seen[-1]
        )
        for prompt in (PROMPTS[3], neighbour):
            steps.add(prompt)
        for _ in range(6):
            steps.step((1, 2), most=40)
            steps.tokens[2][-1] = (steps.tokens[2][-1] * 3 + neighbour[0]) % 199
        rows.append([logits[0].clone() for logits in seen])
    assert all(torch.equal(one, other) for one, other in zip(*rows, strict=True))


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.7, 20, 0.9, 3)])
def test_no_step_waits_for_the_device(sampling):
    steps = Driver(backend(), sessions=3, context=128, rows=300)
    for prompt in PROMPTS[1:3]:
        steps.add(prompt, sampling)
    steps.step((1, 2), most=40)
    graph = steps.backend.capture(BatchLayout(2, 2, 2, sampled=sampling.temperature > 0, decode=True))
    edit = (3, 0, np.array(steps.cells[1][:1], np.int32))
    torch.cuda.set_sync_debug_mode("error")
    try:
        pieces = [steps.piece(slot, 1) for slot in (1, 2)]
        eager = steps.backend.forward(pack(pieces, decode=True, edits=(edit,)))
        for slot in (1, 2):
            steps.tokens[slot].append(-1)
        replayed = steps.backend.replay(graph, pack([steps.piece(slot, 1) for slot in (1, 2)], decode=True))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(eager.wait()) == len(replayed.wait()) == 2
    assert 0.0 < replayed.device_seconds < 10.0
    assert int(steps.backend.program.table[3, 0]) == edit[2][0]


def test_broken_logits_of_a_replay_are_told_by_row():
    steps = driver()
    steps.step(SLOTS, most=40)
    graph = steps.backend.capture(BatchLayout(4, 4, 4, decode=True))
    steps.storage.buffers.values[0][steps.cells[3][2]] = math.nan
    output = steps.backend.replay(graph, pack(decode_pieces(steps), decode=True))
    with pytest.raises(FloatingPointError, match=r"rows \[2\] of 4"):
        output.wait()


def test_a_growth_that_does_not_fit_leaves_all_as_it_was():
    steps = driver()
    steps.step(SLOTS, most=40)
    before = (steps.storage.buffers, steps.storage.generation, steps.storage.rows)
    rows = 4 * torch.cuda.get_device_properties(0).total_memory // steps.storage.cell_bytes
    with pytest.raises(OutOfMemory) as raised:
        steps.storage.resize(rows, 300)
    assert raised.value.free_bytes < raised.value.needed_bytes
    assert (steps.storage.buffers, steps.storage.generation, steps.storage.rows) == before
    made = steps.run(dict.fromkeys(SLOTS, 5))
    assert [steps.tokens[slot][-6:] for slot in made] == expected("llama", 6)


def test_closing_frees_rows_graphs_and_tables_in_any_order():
    def used_and_closed() -> int:
        steps = driver()
        steps.step(SLOTS, most=40)
        graph = steps.backend.capture(BatchLayout(4, 4, 4, decode=True))
        steps.storage.close()
        steps.backend.close()
        steps.backend.drop(graph)
        steps.backend.close()
        assert steps.backend.memory().allocated is not None
        return torch.cuda.memory_allocated() - sum(
            weight.nbytes for weight in steps.backend.module.parameters()
        )

    first = used_and_closed()  # libraries take their workspaces once
    gc.collect()
    assert used_and_closed() <= first


def test_reference_kernels_cannot_be_captured():
    made = backend(options=TorchOptions(kernels="reference"))
    with pytest.raises(UnsupportedError, match="cannot capture the reference kernels"):
        made.require_capture()


def test_a_device_beyond_the_last_is_refused():
    with pytest.raises(UnsupportedError, match=r"--device cuda:99: this machine shows \d+ CUDA devices"):
        TorchBackend.require("cuda:99")


def test_memory_and_conditions_of_a_gpu():
    steps = driver()
    steps.backend.reset_peak()
    snapshot = steps.backend.memory()
    assert 0 < snapshot.allocated <= snapshot.peak
    assert snapshot.allocated >= steps.storage.bytes
    conditions = json.loads(json.dumps(dict(steps.backend.conditions()), allow_nan=False))
    assert conditions["kernels"] == "triton"
    assert conditions["capability"].count(".") == 1
    assert steps.storage.free_bytes() > 0


@pytest.mark.parametrize("name", ["llama", "gemma3", *MIXTURES])
def test_bfloat16_replays_equal_eager_steps_of_the_same_size(name):
    eager, captured = driver(name, dtype="bfloat16"), driver(name, dtype="bfloat16")
    for steps in (eager, captured):
        steps.step(SLOTS, most=40)
    graph = captured.backend.capture(BatchLayout(4, 4, 4, decode=True))
    for _ in range(8):
        pieces = decode_pieces(eager)
        eager.take(pieces, eager.backend.forward(pack(pieces, decode=True)))
        pieces = decode_pieces(captured)
        captured.take(pieces, captured.backend.replay(graph, pack(pieces, decode=True)))
    assert captured.tokens == eager.tokens


def test_compiled_and_captured_tokens_equal_generate():
    steps = driver(rows=70)
    steps.backend.compile()
    steps.step(SLOTS, most=40)
    layout = BatchLayout(6, 6, 6, decode=True)
    graph = steps.backend.capture(layout)
    compilations = None
    for step in range(11):
        if step == 3:
            compilations = steps.backend.compilations()["compilations"]
            steps.grow(300)
            steps.backend.drop(graph)
            graph = steps.backend.capture(layout)
        pieces = decode_pieces(steps)
        steps.take(pieces, steps.backend.replay(graph, pack(pieces, pad_tokens=2, pad_rows=2, decode=True)))
    assert [steps.tokens[slot][-12:] for slot in SLOTS] == expected("llama", 12)
    assert steps.backend.compilations()["compilations"] == compilations, "growth alone compiles nothing"
    assert steps.backend.compilations()["compile seconds"] > 0.0
