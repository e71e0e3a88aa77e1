"""Facts from a Hugging Face config, as a dict: no torch, no transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from musebench.core.errors import InputError, UsageError
from musebench.core.facts import DTYPE_BYTES, ModelFacts
from musebench.models.shapes import Shape, family_windows, parameter_counts

FAMILIES = {"gemma3_text": "gemma3", "gemma3": "gemma3"}
"""model_type to the family of shapes.csv, where they differ."""


def require_dtype(dtype: str) -> str:
    """`dtype` itself.

    Raises:
        UsageError: weights are not held in it.
    """
    if dtype not in DTYPE_BYTES:
        raise UsageError(f"--dtype {dtype!r} is unknown; known: {', '.join(DTYPE_BYTES)}")
    return dtype


def facts_from_config(config: Mapping[str, Any], dtype: str, name: str) -> ModelFacts:
    """The facts of a model from its config.json; parameters by formula, as for shapes.csv.

    Raises:
        InputError: the config lacks a number.
    """
    require_dtype(dtype)
    config = {**config, **config.get("text_config", {})}

    def wanted(*keys: str) -> int:
        for key in keys:
            if config.get(key) is not None:
                return int(config[key])
        raise InputError(f"config of model {name!r} has no {keys[0]!r}")

    hidden, heads = wanted("hidden_size"), wanted("num_attention_heads")
    layers = wanted("num_hidden_layers")
    family = FAMILIES.get(str(config.get("model_type")), str(config.get("model_type")))
    experts = int(config.get("num_local_experts") or config.get("num_experts") or 0)
    window = int(config.get("sliding_window") or 0) if config.get("use_sliding_window", True) else 0
    shape = Shape(
        name=name, family=family, layers=layers, hidden=hidden, heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or hidden // heads),
        intermediate=wanted("intermediate_size", "moe_intermediate_size"), vocab=wanted("vocab_size"),
        tied_embeddings=bool(config.get("tie_word_embeddings", family.startswith("gemma"))),
        rope_theta=float(config.get("rope_theta") or 10_000.0),
        max_context=wanted("max_position_embeddings"), qk_norm=family in ("qwen3", "qwen3_moe", "gemma3"),
        attn_bias=bool(config.get("attention_bias", family == "qwen2")), window=window, experts=experts,
        experts_per_token=int(config.get("num_experts_per_tok") or 0) if experts else 0,
        moe_intermediate=int(config.get("moe_intermediate_size") or config.get("intermediate_size") or 0)
        if experts else 0,
        parameters_billions=0.0, active_parameters_billions=0.0, source="config.json", notes="",
    )  # fmt: skip
    total, active = parameter_counts(shape)
    kinds = config.get("layer_types")
    windows = (
        tuple(window if kind == "sliding_attention" and window else None for kind in kinds)
        if kinds
        else family_windows(family, layers, window)
    )
    return ModelFacts(
        name=name, family=family, layers=layers, hidden=hidden, heads=heads, kv_heads=shape.kv_heads,
        head_dim=shape.head_dim, intermediate=shape.intermediate, vocab=shape.vocab,
        max_context=shape.max_context, dtype=dtype, parameters=total, active_parameters=active,
        tied_embeddings=shape.tied_embeddings, windows=windows, experts=experts,
        experts_per_token=shape.experts_per_token, moe_intermediate=shape.moe_intermediate,
    )  # fmt: skip
