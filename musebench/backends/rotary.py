"""Rotary embeddings that look at the longest sequence of a batch, and what must hold for them.

transformers recomputes the frequencies of the types `dynamic` and `longrope` from the largest position of a
forward. In a batch of many sequences a long neighbour would change a short one's tokens, and looking waits
for the device. Up to the original length the frequencies are those made at load: there the look is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.nn import Module

from musebench.core.errors import UnsupportedError

_FIXED = "default"


def fix_rotary(module: Module, max_context: int) -> None:
    """Keep the frequencies of every rotary embedding as they were made, for contexts up to `max_context`.

    Raises:
        UnsupportedError: `max_context` exceeds the length up to which they are fixed; names that length.
    """
    for part in module.modules():
        types = getattr(part, "rope_type", None)
        config = getattr(part, "config", None)
        if isinstance(types, str):
            if _looks(types):
                _check(config, types, _parameters(config, None), max_context)
                part.rope_type = _FIXED
        elif isinstance(types, Mapping):
            for layer_type, rope_type in types.items():
                if _looks(rope_type):
                    _check(config, rope_type, _parameters(config, layer_type), max_context)
            part.rope_type = {
                layer_type: _FIXED if _looks(rope_type) else rope_type
                for layer_type, rope_type in types.items()
            }


def _looks(rope_type: str) -> bool:
    return "dynamic" in rope_type or rope_type == "longrope"


def _parameters(config: Any, layer_type: str | None) -> Mapping[str, Any]:
    parameters = getattr(config, "rope_parameters", None) or {}
    return parameters if layer_type is None else parameters.get(layer_type, {})


def _check(config: Any, rope_type: str, parameters: Mapping[str, Any], max_context: int) -> None:
    longest = parameters.get("original_max_position_embeddings") if rope_type == "longrope" else None
    longest = int(longest or config.max_position_embeddings)
    if max_context > longest:
        raise UnsupportedError(
            f"model {config.model_type!r}: rotary type {rope_type!r} beyond {longest:,} tokens depends on "
            f"the longest sequence of a batch, and --max-context is {max_context:,}; lower it to {longest:,}"
        )
