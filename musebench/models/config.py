"""Facts from a Hugging Face config, as a dict: no torch, no transformers."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

from musebench.core.errors import InputError, UsageError
from musebench.core.facts import DTYPE_BYTES, ModelFacts
from musebench.models.shapes import Shape, family_windows, parameter_counts

MOST_LAYERS = 100_000
MOST_SIZE = 2**40
"""Beyond any model: a config that says more is broken, and would make tables of that size."""

MOST_THETA = 1e300

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
        InputError: the config lacks a number, or has something else in its place.
    """
    require_dtype(dtype)
    inner = config.get("text_config") or {}
    if not isinstance(inner, Mapping):
        raise InputError(f"config of model {name!r}: text_config is {_shown(inner)}; a mapping is wanted")
    config = {**config, **inner}

    def number(key: str, least: int = 0, most: int = MOST_SIZE) -> int:
        """Of a key that may be left out; 0 is "none of it"."""
        value = config.get(key)
        if value is None or value is False:
            return 0
        if type(value) not in (int, float) or not least <= value <= most or value != int(value):
            raise InputError(
                f"config of model {name!r}: {key} is {_shown(value)}; a whole number from {least:,} to "
                f"{most:,} is wanted"
            )
        return int(value)

    def wanted(*keys: str, most: int = MOST_SIZE) -> int:
        for key in keys:
            if config.get(key) is not None:
                return number(key, 1, most)
        raise InputError(f"config of model {name!r} has no {keys[0]!r}")

    hidden, heads = wanted("hidden_size"), wanted("num_attention_heads")
    layers = wanted("num_hidden_layers", most=MOST_LAYERS)
    family = FAMILIES.get(str(config.get("model_type")), str(config.get("model_type")))
    experts = number("num_local_experts") or number("num_experts")
    window = number("sliding_window") if config.get("use_sliding_window", True) else 0
    head_dim = number("head_dim") or hidden // heads
    if not head_dim:
        raise InputError(
            f"config of model {name!r}: {heads:,} heads of a hidden size of {hidden:,} have none"
        )
    theta = config.get("rope_theta") or 10_000.0
    if type(theta) not in (int, float) or not 0 < theta < MOST_THETA:
        raise InputError(f"config of model {name!r}: rope_theta is {_shown(theta)}; a number is wanted")
    shape = Shape(
        name=name, family=family, layers=layers, hidden=hidden, heads=heads,
        kv_heads=number("num_key_value_heads") or heads, head_dim=head_dim,
        intermediate=wanted("intermediate_size", "moe_intermediate_size"), vocab=wanted("vocab_size"),
        tied_embeddings=bool(config.get("tie_word_embeddings", family.startswith("gemma"))),
        rope_theta=float(theta),
        max_context=wanted("max_position_embeddings"), qk_norm=family in ("qwen3", "qwen3_moe", "gemma3"),
        attn_bias=bool(config.get("attention_bias", family == "qwen2")), window=window, experts=experts,
        experts_per_token=number("num_experts_per_tok") if experts else 0,
        moe_intermediate=(number("moe_intermediate_size") or number("intermediate_size")) if experts else 0,
        parameters_billions=0.0, active_parameters_billions=0.0, source="config.json", notes="",
    )  # fmt: skip
    total, active = parameter_counts(shape)
    kinds = config.get("layer_types") or ()
    if not isinstance(kinds, list | tuple) or (kinds and len(kinds) != layers):
        raise InputError(
            f"config of model {name!r}: layer_types is {_shown(kinds)}; a list of {layers:,} texts is wanted"
        )
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


def _shown(value: Any) -> str:
    """A value of the config, short and on one line."""
    return " ".join(reprlib.repr(value).split())
