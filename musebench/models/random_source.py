"""`random:SHAPE`: seeded random weights of a known shape, made directly on the device."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from musebench.core.errors import UnsupportedError, UsageError
from musebench.core.facts import ModelFacts
from musebench.core.options import option, parse
from musebench.models.config import require_dtype
from musebench.models.loading import LoadMeter, ready, torch_dtype
from musebench.models.shapes import Shape, shape
from musebench.models.source import Model

PREFIX = "random:"
DEVIATION = 0.02
"""Of the normal distribution that products are drawn from; transformers' initializer_range."""

LLAMA3_ROPE = {"high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192}

FAMILIES = {
    "llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma3": "Gemma3Text", "mistral": "Mistral",
    "phi3": "Phi3", "mixtral": "Mixtral", "qwen3_moe": "Qwen3Moe", "gpt_oss": "GptOss",
}  # fmt: skip


@dataclass(frozen=True)
class Changes:
    """What may follow a shape's name: `random:llama-3.2-1b@layers=2,vocab=1000`."""

    layers: int | None = option(None, "layers", minimum=1)
    vocab: int | None = option(None, "size of the vocabulary", minimum=8)
    context: int | None = option(None, "most positions", unit="tokens", minimum=1)


@dataclass(frozen=True)
class RandomOptions:
    deviation: float = option(DEVIATION, "standard deviation of the weights", above=0.0)


class RandomSource:
    """No tokenizer and no stop tokens: a workload of lengths is what such a model is for."""

    Options = RandomOptions

    def __init__(self, options: RandomOptions) -> None:
        self.options = options

    def claims(self, text: str) -> bool:
        return text.startswith(PREFIX)

    def facts(self, text: str, dtype: str) -> ModelFacts:
        require_dtype(dtype)
        return _named(text).facts(dtype)

    def open(self, text: str, dtype: str, device: str, seed: int) -> Model:
        """The model is built without storage, then each parameter is drawn on the device in its own dtype:
        loading costs the weights' bytes once, and nothing on the host.

        Raises:
            UsageError: no such shape, or a change that it does not take.
            UnsupportedError: a dtype that torch does not run.
        """
        require_dtype(dtype)
        wanted = _named(text)
        meter = LoadMeter(device)
        with meter.part("import"):
            import torch
            import transformers
        with meter.part("load"):
            module = _empty(wanted, torch_dtype(dtype), device, torch, transformers)
            _draw(module, seed, self.options.deviation, torch)
        named = (
            f"{wanted.name} {wanted.layers} {wanted.vocab} {seed} {dtype} {self.options.deviation} {device}"
        )
        return Model(
            facts=ready(module, wanted.facts(dtype)),
            module=module,
            source=text,
            weights_sha256=hashlib.sha256(named.encode()).hexdigest(),
            load_seconds=meter.seconds,
            load_peak_bytes=meter.peak_bytes(),
        )


def _named(text: str) -> Shape:
    name, _, changes = text.removeprefix(PREFIX).partition("@")
    found = shape(name)
    if not changes:
        return found
    pairs = dict(part.partition("=")[::2] for part in changes.split(","))
    made = parse(Changes, pairs, f"--model {text}")
    return replace(
        found,
        name=text.removeprefix(PREFIX),
        layers=made.layers or found.layers,
        vocab=made.vocab or found.vocab,
        max_context=made.context or found.max_context,
    )


def config_of(shape: Shape, transformers: Any) -> Any:
    """The transformers config of a shape."""
    if shape.family not in FAMILIES:
        raise UsageError(f"shape {shape.name!r} has family {shape.family!r}, which is not built here")
    values: dict[str, Any] = {
        "hidden_size": shape.hidden, "intermediate_size": shape.intermediate, "vocab_size": shape.vocab,
        "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_dim,
        "max_position_embeddings": shape.max_context, "tie_word_embeddings": shape.tied_embeddings,
        "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
    }  # fmt: skip
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": shape.rope_theta}
    if "llama3 factor" in shape.notes:
        factor = float(shape.notes.split("llama3 factor")[1].split()[0])
        rope = {"rope_type": "llama3", "rope_theta": shape.rope_theta, "factor": factor, **LLAMA3_ROPE}
    if shape.family not in ("gemma3", "gpt_oss"):  # those have rotary rules of their own
        values["rope_parameters"] = rope
    if shape.family != "qwen2":
        values["attention_bias"] = shape.attn_bias
    if shape.window:
        values["sliding_window"] = shape.window
        values["layer_types"] = [
            "full_attention" if window is None else "sliding_attention" for window in shape.windows
        ]
    elif shape.family in ("mistral", "mixtral"):
        values["sliding_window"] = None
    if shape.experts:
        values["num_local_experts" if shape.family in ("mixtral", "gpt_oss") else "num_experts"] = (
            shape.experts
        )
        values["num_experts_per_tok"] = shape.experts_per_token
        if shape.family == "qwen3_moe":
            values["moe_intermediate_size"] = shape.moe_intermediate
    return getattr(transformers, f"{FAMILIES[shape.family]}Config")(**values)


def _empty(shape: Shape, dtype: Any, device: str, torch: Any, transformers: Any) -> Any:
    """The module on its device, parameters without values, buffers (rotary frequencies) with theirs."""
    config = config_of(shape, transformers)
    family = FAMILIES[shape.family].removesuffix("Text")
    kind = getattr(transformers, f"{family}ForCausalLM", None)
    if kind is None:
        raise UnsupportedError(f"this transformers has no {family}ForCausalLM")
    with torch.device("meta"):
        module = kind._from_config(config, dtype=dtype)
    module.to_empty(device=device)
    with torch.no_grad():
        for part in module.modules():
            if next(part.named_buffers(recurse=False), None) is not None:
                module._init_weights(part)  # transformers' own: it fills rotary frequencies and scales
    module.tie_weights()
    return module


def _draw(module: Any, seed: int, deviation: float, torch: Any) -> None:
    """Norms are one (Gemma's, which add one: zero), biases and sinks zero, all else normal."""
    with torch.no_grad():
        generator = None
        for name, parameter in module.named_parameters():
            if generator is None:
                generator = torch.Generator(parameter.device).manual_seed(seed)
            kind = type(module.get_submodule(name.rpartition(".")[0])).__name__
            if name.endswith(("bias", "sinks")):
                parameter.zero_()
            elif "norm" in kind.lower():
                parameter.fill_(0.0 if kind.startswith("Gemma") else 1.0)
            else:
                parameter.normal_(0.0, deviation, generator=generator)
