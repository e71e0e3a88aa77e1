"""A probing forward when a model is loaded: what each layer's cells look like, and whether the op can do it.

Wrong tokens would be the price of a keyword ignored or a mask never made. So the model is run once on two
tokens under an attention function that computes nothing: it checks every keyword, and asks the mask that the
model itself would have used whether it is the op's, at positions far beyond the two tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from transformers import AttentionInterface, AttentionMaskInterface

from musebench.backends.attention import IMPLEMENTATION, STEP, attention_terms, use_implementation
from musebench.core.errors import UnsupportedError

PROBE_IMPLEMENTATION = "musebench_probe"

MaskFunction = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class LayerShape:
    """One layer's part of a cell: a key [Hk, D] and a value [Hk, Dv] of `dtype`; `window` 0 means none."""

    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    dtype: torch.dtype
    window: int


@dataclass(frozen=True, slots=True)
class _Mask:
    """Stands for a mask on its way through the model: the rule that it would have been made by."""

    allowed: MaskFunction


def probe(module: Module) -> tuple[LayerShape, ...]:
    """Run `module` once on two tokens and give the shape of each layer, in order.

    Leaves the module with musebench's attention.

    Raises:
        UnsupportedError: the model wants what the op does not do; names the model, the layer and what.
    """
    seen: dict[int, LayerShape] = {}
    name = _model_name(module)
    use_implementation(module, PROBE_IMPLEMENTATION)
    try:
        device = next(module.parameters()).device
        with torch.inference_mode():
            module(
                input_ids=torch.zeros(1, 2, dtype=torch.int64, device=device),
                position_ids=torch.arange(2, device=device)[None],
                use_cache=False,
                **{STEP: seen},
            )
    except UnsupportedError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise UnsupportedError(
            f"model {name!r} cannot run on two tokens under musebench's attention: {reason}; use a model "
            "whose attention goes through transformers' attention interface"
        ) from error
    finally:
        use_implementation(module, IMPLEMENTATION)
    config = module.config.get_text_config()
    layers = int(config.num_hidden_layers)
    missing = [layer for layer in range(layers) if layer not in seen]
    if missing or not seen:
        raise UnsupportedError(
            f"model {name!r}: layers {_shortened(missing)} of {layers} do not go through transformers' "
            "attention interface, so their state would not be in cells; use a model whose layers all do"
        )
    return tuple(seen[layer] for layer in range(layers))


def _probe_attention(
    module: Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    is_causal: bool | None = None,
    musebench_step: dict[int, LayerShape] | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Checks and records; returns zeros [1, T, Hq, Dv]."""
    seen, name = musebench_step, _model_name(module)
    if seen is None:
        raise UnsupportedError(f"model {name!r} keeps keyword arguments from {type(module).__name__}")
    layer = getattr(module, "layer_idx", None)
    if layer is None or layer in seen:
        raise UnsupportedError(
            f"model {name!r}: {type(module).__name__} attends in layer {layer} more than once a forward; use "
            "a model with one attention a layer"
        )
    terms = attention_terms(
        module, query, scaling, dropout, sliding_window, softcap, s_aux, is_causal, others
    )
    if not isinstance(attention_mask, _Mask):
        raise UnsupportedError(
            f"model {name!r}: layer {layer} has a mask that transformers' mask interface did not make "
            f"({type(attention_mask).__name__}); use a model whose masks it makes"
        )
    _check_mask(attention_mask.allowed, terms.window, f"model {name!r}: layer {layer}")
    heads, kv_heads = query.shape[1], key.shape[1]
    if heads % kv_heads:
        raise UnsupportedError(f"model {name!r}: {heads} query heads do not share {kv_heads} KV heads evenly")
    seen[layer] = LayerShape(heads, kv_heads, key.shape[3], value.shape[3], key.dtype, terms.window)
    return query.new_zeros(1, query.shape[2], heads, value.shape[3]), None


def _check_mask(allowed: MaskFunction, window: int, where: str) -> None:
    """Hold a model's mask against the op's: causal, within `window` (0: none), and nothing else.

    Asked at and beside every power of two up to 2**17 and the window's edges, where chunks and windows of
    other masks begin and end.
    """
    edges = [2**power for power in range(18)] + [window, 2 * window]
    points = sorted({max(0, edge + offset) for edge in edges for offset in (-1, 0, 1)})
    places = torch.tensor(points)
    queries, keys = (grid.reshape(-1) for grid in torch.meshgrid(places, places, indexing="ij"))
    zero = torch.zeros((), dtype=torch.int64)
    wanted = allowed(zero, zero, queries, keys).expand(queries.shape)
    done = keys <= queries
    if window:
        done = done & (queries - keys < window)
    if not torch.equal(wanted, done):
        at = int((wanted != done).nonzero()[0])
        verb = "attends" if bool(wanted[at]) else "does not attend"
        raise UnsupportedError(
            f"{where}: its mask {verb} from position {int(queries[at])} to {int(keys[at])}, against a causal "
            f"mask with window {window or 'none'}; use a model with causal or sliding-window attention"
        )


def _keep_rule(mask_function: MaskFunction, **_: Any) -> _Mask:
    """A mask function for transformers' mask interface that makes no mask."""
    return _Mask(mask_function)


def _model_name(module: Module) -> str:
    return str(getattr(getattr(module, "config", None), "model_type", type(module).__name__))


def _shortened(layers: list[int]) -> str:
    shown = ", ".join(map(str, layers[:4]))
    return f"{shown}, ..." if len(layers) > 4 else shown


AttentionInterface.register(PROBE_IMPLEMENTATION, _probe_attention)
AttentionMaskInterface.register(PROBE_IMPLEMENTATION, _keep_rule)
