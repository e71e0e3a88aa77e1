"""Rotary embeddings made by the op: where they may be, and that nobody's tokens change."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from step_driver import Driver, pack
from tiny_models import ARCHITECTURES, as_model, generated, tiny_module

from musebench.backends.fused_rotary import leave_rotary_to_op
from musebench.backends.probe import probe
from musebench.backends.torch_backend import TorchBackend
from musebench.backends.torch_compiled import CompiledCall
from musebench.backends.torch_options import TorchOptions

ELSEWHERE = {"gpt_oss"}
"""Rotates by angles of half a head, in a function of its own."""


def attentions(module):
    return [part for part in module.modules() if hasattr(part, "layer_idx") and hasattr(part, "head_dim")]


def left(name: str, **changes) -> list[bool]:
    module = tiny_module(name, **changes)
    probe(module)
    return [leave_rotary_to_op(part) for part in attentions(module)]


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_every_usual_rotary_embedding_is_left_to_the_op(name):
    assert left(name) == [name not in ELSEWHERE] * 2


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_tokens_equal_generate_when_the_op_rotates(name, monkeypatch):
    module = tiny_module(name)
    random = np.random.default_rng(0)
    prompts = [random.integers(3, 199, length).tolist() for length in (1, 2, 13, 40)]
    backend = TorchBackend(TorchOptions(poison=True), "cpu", as_model(module))
    steps = Driver(backend, sessions=6, context=128, rows=300)
    backend.program.model = CompiledCall(backend.program.model, backend="eager")
    slots = [steps.add(prompt) for prompt in prompts]
    steps.step(slots, most=100)
    for _ in range(11):
        pieces = [steps.piece(slot, 1) for slot in slots]
        steps.take(pieces, backend.forward(pack(pieces, pad_tokens=2, pad_rows=2, decode=True)))
    for prompt, slot in zip(prompts, slots, strict=True):
        assert steps.tokens[slot][len(prompt) :] == generated(module, prompt, 12)


def test_heads_rotated_in_part_keep_their_own_embedding():
    """Phi-3's may turn a part of each head: its own function does, and the op would turn all of it."""
    module = tiny_module("phi3", partial_rotary_factor=0.5)
    backend = TorchBackend(TorchOptions(), "cpu", as_model(module))
    steps = Driver(backend, sessions=2, context=64, rows=80)
    backend.program.model = CompiledCall(backend.program.model, backend="eager")
    prompt = [5, 9, 17, 33]
    slot = steps.add(prompt)
    steps.step([slot], most=100)
    for _ in range(7):
        pieces = [steps.piece(slot, 1)]
        steps.take(pieces, backend.forward(pack(pieces, decode=True)))
    assert steps.tokens[slot][len(prompt) :] == generated(module, prompt, 8)


def test_a_norm_behind_the_embedding_keeps_it_where_it_is(monkeypatch):
    """What changes queries once they are rotated is seen by trying, whatever the function is called."""
    llama = transformers.models.llama.modeling_llama
    rotate = llama.apply_rotary_pos_emb

    def rotate_and_scale(query, key, *angles):
        query, key = rotate(query, key, *angles)
        return query * 1.5, key

    monkeypatch.setattr(llama, "apply_rotary_pos_emb", rotate_and_scale)
    assert left("llama") == [False, False]


def test_a_module_of_other_arguments_is_left_alone():
    module = torch.nn.Linear(2, 2)
    module.head_dim = 2
    assert not leave_rotary_to_op(module)
    assert type(module) is torch.nn.Linear
