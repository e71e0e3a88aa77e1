"""The hook into transformers: every architecture's tokens equal generate's, and nothing is ignored."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import transformers
from step_driver import Driver
from tiny_models import ARCHITECTURES, as_model, generated, tiny_module

from musebench.backends import attention, probe
from musebench.backends.rotary import fix_rotary
from musebench.backends.torch_backend import TorchBackend
from musebench.backends.torch_options import TorchOptions
from musebench.core.errors import UnsupportedError

NEW_TOKENS = 12


def prompts() -> list[list[int]]:
    random = np.random.default_rng(0)
    return [random.integers(3, 199, length).tolist() for length in (1, 2, 13, 40)]


def driver(module, rows: int = 300, options: TorchOptions | None = None) -> Driver:
    backend = TorchBackend(options or TorchOptions(poison=True), "cpu", as_model(module))
    return Driver(backend, sessions=6, context=128, rows=rows)


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_tokens_equal_generate(name):
    module = tiny_module(name)
    expected = [generated(module, prompt, NEW_TOKENS) for prompt in prompts()]
    assert min(len(set(tokens)) for tokens in expected) > 3, "tokens that repeat would show little"
    steps = driver(module)
    slots = [steps.add(prompt) for prompt in prompts()]
    made = steps.run(dict.fromkeys(slots, NEW_TOKENS), most=7, pad=2)
    assert [made[slot] for slot in slots] == expected


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt_oss"])
def test_logits_of_a_whole_prompt_equal_the_models_own(name):
    """Final softcapping and other scaling of logits are the model's, whichever rows are wanted."""
    module = tiny_module(name)
    prompt = prompts()[3]
    with torch.inference_mode():
        expected = module(torch.tensor([prompt])).logits[0]
    steps = driver(module)
    program = steps.backend.program
    seen: list[torch.Tensor] = []
    model = program.model

    def watched(*arguments):
        seen.append(model(*arguments))
        return seen[-1]

    program.model = watched
    steps.add(prompt)
    steps.step([1], most=len(prompt))
    torch.testing.assert_close(seen[0], expected[-1:], rtol=1e-4, atol=1e-4)


def test_the_probe_reads_shapes_and_windows_of_every_layer():
    layers = probe.probe(tiny_module("gpt_oss"))
    assert [layer.window for layer in layers] == [8, 0]
    assert all(
        (layer.heads, layer.kv_heads, layer.key_dim, layer.value_dim) == (9, 3, 16, 16) for layer in layers
    )
    assert [layer.window for layer in probe.probe(tiny_module("mistral"))] == [8, 8]
    assert [layer.window for layer in probe.probe(tiny_module("gemma3"))] == [8, 0]


def test_an_attention_keyword_that_the_op_lacks_is_refused_by_name(monkeypatch):
    module = tiny_module("llama")
    forward = module.model.layers[1].self_attn.forward
    monkeypatch.setattr(
        module.model.layers[1].self_attn, "forward", lambda *a, **k: forward(*a, **k, position_bias=1.5)
    )
    with pytest.raises(UnsupportedError, match=r"'llama'.*position_bias=1\.5.*does not implement"):
        probe.probe(module)


@pytest.mark.parametrize(
    ("keyword", "value"), [("dropout", 0.1), ("is_causal", False), ("output_attentions", True)]
)
def test_a_known_keyword_with_another_meaning_is_refused_by_name(keyword, value):
    module = tiny_module("llama").model.layers[0].self_attn
    tensors = [torch.zeros(1, heads, 2, 16) for heads in (9, 3, 3)]
    with pytest.raises(UnsupportedError, match=keyword):
        attention.attend(module, *tensors, None, musebench_step=object(), **{keyword: value})


def test_neutral_keywords_pass():
    module = tiny_module("llama").model.layers[0].self_attn
    others = {"position_bias": None, "output_attentions": False, "position_ids": torch.zeros(1, 2)}
    query = torch.zeros(1, 9, 2, 16)
    terms = attention.attention_terms(module, query, None, 0.0, None, None, None, None, others)
    assert terms == attention.AttentionTerms(0.25, 0, 0.0, None)


def test_chunked_attention_is_refused_for_its_mask_is_not_the_ops():
    config = transformers.Llama4TextConfig(
        vocab_size=199, hidden_size=64, intermediate_size=96, intermediate_size_mlp=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, attention_chunk_size=8,
        num_local_experts=2, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    module = transformers.Llama4ForCausalLM(config).eval()
    with pytest.raises(
        UnsupportedError, match=r"'llama4_text': layer 0: its mask does not attend from position 8"
    ):
        probe.probe(module)


def test_a_window_in_the_mask_alone_is_refused(monkeypatch):
    module = tiny_module("mistral")
    for layer in module.model.layers:
        monkeypatch.setattr(layer.self_attn.config, "sliding_window", 8)
        forward = layer.self_attn.forward
        monkeypatch.setattr(layer.self_attn, "forward", _without_window(layer.self_attn, forward))
    with pytest.raises(UnsupportedError, match="does not attend from position 8 to 0"):
        probe.probe(module)


def _without_window(part, forward):
    """The layer's forward with a config that hides the window from its attention function only."""

    def call(*arguments, **keywords):
        kept, part.config = part.config, copy.copy(part.config)
        part.config.sliding_window = None
        try:
            return forward(*arguments, **keywords)
        finally:
            part.config = kept

    return call


def test_bidirectional_attention_is_refused():
    module = tiny_module("gemma3", use_bidirectional_attention=True)
    with pytest.raises(UnsupportedError, match="is_causal"):
        probe.probe(module)


def test_a_model_whose_layers_keep_other_state_is_refused():
    config = transformers.MambaConfig(vocab_size=199, hidden_size=32, num_hidden_layers=2, state_size=4)
    with pytest.raises(UnsupportedError, match="'mamba': layers 0, 1 of 2 do not go through"):
        probe.probe(transformers.MambaForCausalLM(config).eval())


def test_a_model_taken_over_cannot_be_called_without_a_step():
    module = tiny_module("llama")
    probe.probe(module)
    with pytest.raises(RuntimeError, match="called without a step"):
        module(torch.tensor([[1, 2]]))


def rope_model(rope_type: str) -> transformers.PreTrainedModel:
    parameters = {"rope_type": rope_type, "rope_theta": 10000.0, "factor": 4.0}
    if rope_type == "longrope":
        parameters |= {
            "short_factor": [1.0 + at / 8 for at in range(8)],
            "long_factor": [2.0 + at for at in range(8)],
            "original_max_position_embeddings": 64,
        }
    return tiny_module("llama", rope_parameters=parameters, max_position_embeddings=64)


@pytest.mark.parametrize("rope_type", ["longrope", "dynamic"])
def test_rotary_types_that_look_at_the_longest_sequence_are_refused_beyond_their_length(rope_type):
    with pytest.raises(UnsupportedError, match=rf"{rope_type}.*beyond 64 tokens.*--max-context is 65"):
        fix_rotary(rope_model(rope_type), 65)


@pytest.mark.parametrize("rope_type", ["longrope", "dynamic"])
def test_up_to_their_length_they_make_the_same_tokens_and_do_not_look(rope_type, monkeypatch):
    module = rope_model(rope_type)
    expected = generated(module, prompts()[2], NEW_TOKENS)
    backend = TorchBackend(TorchOptions(), "cpu", as_model(module))
    steps = Driver(backend, sessions=2, context=64, rows=80)
    steps.add(prompts()[2])
    monkeypatch.setattr(torch, "max", lambda *_: pytest.fail("looked at the positions"))
    assert steps.run({1: NEW_TOKENS})[1] == expected


def test_rotary_types_of_single_layer_types_are_held_to_their_length_too(monkeypatch):
    fixed = {"rope_type": "default", "rope_theta": 10000.0}
    looking = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
    parameters = {"sliding_attention": fixed, "full_attention": looking}
    module = tiny_module("gemma3", rope_parameters=parameters, max_position_embeddings=64)
    with pytest.raises(UnsupportedError, match=r"dynamic.*beyond 64 tokens"):
        fix_rotary(module, 65)
    expected = generated(module, prompts()[2], NEW_TOKENS)
    steps = Driver(TorchBackend(TorchOptions(), "cpu", as_model(module)), sessions=2, context=64, rows=80)
    steps.add(prompts()[2])
    monkeypatch.setattr(torch, "max", lambda *_: pytest.fail("looked at the positions"))
    assert steps.run({1: NEW_TOKENS})[1] == expected
