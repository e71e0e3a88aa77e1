"""The hook into transformers: attention functions of a model end in the op `musebench::update_and_attend`.

transformers looks attention functions up by a name in the model's config, and hands keyword arguments of the
model's call down to them. The step travels that way, as `musebench_step`, not through a global. No mask
function goes with the name: transformers then makes no mask, and spares a look at the positions that would
wait for the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import Module
from transformers import AttentionInterface

from musebench.core.errors import UnsupportedError
from musebench.kernels.op import OPERATORS

IMPLEMENTATION = "musebench"
STEP = "musebench_step"
"""The keyword argument of a model's call that carries a `StepContext`."""

WITHOUT_EFFECT = frozenset({"position_ids", "cache_position"})
"""Keywords that attention functions receive and that change nothing here: positions are in the step."""


class StepContext(NamedTuple):
    """What the op needs of one step, the same for all layers but for the rows.

    `key_rows` and `value_rows` have one tensor a layer, [rows, Hk, D] and [rows, Hk, Dv] (for a call of one
    layer, that layer's alone); the other tensors are int32 as in `musebench.core.batch.BatchFields`, `table`
    the device cell table [slots + 1, width]. `kernels` names an operator of `musebench.kernels.op.OPERATORS`.
    `rotary` is there where query and key arrive without their rotary embedding: cos and sin, [1, T, D].
    A named tuple, which torch.export takes apart by itself.
    """

    key_rows: tuple[Tensor, ...]
    value_rows: tuple[Tensor, ...]
    cells: Tensor
    positions: Tensor
    slots: Tensor
    starts: Tensor
    sequence_slots: Tensor
    table: Tensor
    decode: bool
    kernels: str
    rotary: tuple[Tensor, Tensor] | None = None


class AttentionTerms(NamedTuple):
    """What a layer asks of attention, in the op's units."""

    scale: float
    window: int
    softcap: float
    sinks: Tensor | None


def attention_terms(
    module: Module,
    query: Tensor,
    scaling: float | None,
    dropout: float,
    sliding_window: int | None,
    softcap: float | None,
    s_aux: Tensor | None,
    is_causal: bool | None,
    others: Mapping[str, Any],
) -> AttentionTerms:
    """The keywords of an attention function as the op takes them.

    Raises:
        UnsupportedError: a keyword asks for something that the op does not do; names it and the model.
    """
    for keyword, value in others.items():
        if value is not None and value is not False and keyword not in WITHOUT_EFFECT:
            raise _refused(module, keyword, value)
    if dropout:
        raise _refused(module, "dropout", dropout)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if not causal:
        raise _refused(module, "is_causal", causal)
    return AttentionTerms(
        float(query.shape[-1] ** -0.5 if scaling is None else scaling),
        int(sliding_window or 0),
        float(softcap or 0.0),
        s_aux,
    )


def attend(
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
    musebench_step: StepContext | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """transformers' attention function: query [1, Hq, T, D], key [1, Hk, T, D], value [1, Hk, T, Dv].

    Returns [1, T, Hq, Dv] and no weights.

    Raises:
        UnsupportedError: a mask, or a keyword that the op does not implement.
        RuntimeError: the model was called by other means than a backend's step.
    """
    step = musebench_step
    if step is None:
        raise RuntimeError(
            f"{type(module).__name__} belongs to a musebench backend and was called without a step; load the "
            "model again to call it by other means"
        )
    if attention_mask is not None:
        raise _refused(module, "attention_mask", attention_mask)
    terms = attention_terms(
        module, query, scaling, dropout, sliding_window, softcap, s_aux, is_causal, others
    )
    # A compiled layer gets its own rows alone: its number must not become part of the program.
    layer = module.layer_idx if len(step.key_rows) > 1 else 0
    cos, sin = (None, None) if step.rotary is None else (step.rotary[0][0], step.rotary[1][0])
    output = OPERATORS[step.kernels](
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        step.key_rows[layer],
        step.value_rows[layer],
        step.cells,
        step.positions,
        step.slots,
        step.starts,
        step.sequence_slots,
        step.table,
        terms.scale,
        terms.window,
        terms.softcap,
        terms.sinks,
        step.decode,
        cos,
        sin,
    )
    return output[None], None


def use_implementation(module: Module, name: str) -> None:
    """Make every part of a transformers model look its attention function up under `name`."""
    for part in module.modules():
        config = getattr(part, "config", None)
        if config is not None and hasattr(config, "_attn_implementation"):
            config._attn_implementation = name


def _refused(module: Module, keyword: str, value: Any) -> UnsupportedError:
    shown = type(value).__name__ if hasattr(value, "shape") else repr(value)
    model = getattr(getattr(module, "config", None), "model_type", "?")
    return UnsupportedError(
        f"model {model!r}: {type(module).__name__} calls attention with {keyword}={shown}, which "
        "musebench::update_and_attend does not implement; use a model without it"
    )


AttentionInterface.register(IMPLEMENTATION, attend)
