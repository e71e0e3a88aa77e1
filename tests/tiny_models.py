"""Small random models of many architectures, each told apart from Llama by something that can go wrong."""

from __future__ import annotations

import copy
from typing import Any

import torch
import transformers

from musebench.core.facts import ModelFacts
from musebench.models.source import Model

SHAPE: dict[str, Any] = {
    "vocab_size": 199,
    "hidden_size": 72,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 16,  # not hidden size / heads
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": True,
    "initializer_range": 0.3,  # so that tokens differ from each other
}
UNTIED = {"tie_word_embeddings": False}  # Gemma scales its embeddings: tied, it says the same token again
MIXED = {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}

ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {}),
    "mistral": ("Mistral", {"sliding_window": 8}),
    "gemma2": ("Gemma2", {**MIXED, **UNTIED, "query_pre_attn_scalar": 20, "attn_logit_softcapping": 5.0,
                          "final_logit_softcapping": 3.0}),
    "gemma3": ("Gemma3Text", {**MIXED, **UNTIED, "query_pre_attn_scalar": 20}),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "phi3": ("Phi3", {"sliding_window": 8, "num_attention_heads": 6, "hidden_size": 96}),
    "qwen3_moe": ("Qwen3Moe", MOE),
    "gpt_oss": ("GptOss", {**MIXED, "num_local_experts": 4, "num_experts_per_tok": 2}),
}  # fmt: skip


def tiny_module(name: str, seed: int = 0, **changes: Any) -> Any:
    """A causal language model in float32 on the CPU, weights from `seed`, sinks and biases not zero."""
    family, own = ARCHITECTURES[name]
    config = getattr(transformers, f"{family}Config")(**{**SHAPE, **own, **changes})
    torch.manual_seed(seed)
    module = (
        getattr(transformers, f"{family.removesuffix('Text')}ForCausalLM")
        ._from_config(config, attn_implementation="eager")
        .eval()
    )
    with torch.no_grad():
        for entry, parameter in module.named_parameters():
            if entry.endswith(("bias", "sinks")):
                parameter.normal_(0.0, 0.5)
    return module


def as_model(module: Any, dtype: str = "float32") -> Model:
    """A copy of `module` as a model source would hand it over."""
    config = module.config
    facts = ModelFacts(
        name=f"tiny-{config.model_type}", family=config.model_type, layers=config.num_hidden_layers,
        hidden=config.hidden_size, heads=config.num_attention_heads, kv_heads=config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        intermediate=config.intermediate_size, vocab=config.vocab_size,
        max_context=config.max_position_embeddings, dtype=dtype,
        parameters=sum(parameter.numel() for parameter in module.parameters()),
        active_parameters=sum(parameter.numel() for parameter in module.parameters()),
    )  # fmt: skip
    return Model(facts, copy.deepcopy(module).to(getattr(torch, dtype)))


def generated(module: Any, prompt: list[int], count: int) -> list[int]:
    """What transformers' own greedy `generate` makes of one prompt, end-of-text ignored."""
    ids = torch.tensor([prompt], device=module.device)
    with torch.inference_mode():
        made = module.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, min_new_tokens=count,
            do_sample=False, eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
    return made[0, len(prompt) :].tolist()
