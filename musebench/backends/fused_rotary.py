"""Rotary embeddings left to the op, which makes them of what it loads anyway.

transformers' attention modules call a function of their file, `apply_rotary_pos_emb`, and hand its outputs to
the attention function. In a step of decodes a module here runs the same forward with that one name bound to a
function that does nothing, and the angles travel with the step.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from transformers import AttentionInterface

from musebench.backends.attention import IMPLEMENTATION, STEP, use_implementation
from musebench.kernels.reference import rotated

ROTATE = "apply_rotary_pos_emb"
ANGLES = "position_embeddings"
_CAPTURE = "musebench_capture"


def leave_rotary_to_op(module: Module) -> bool:
    """Have an attention module's decodes rotate in the op; False, and nothing changed, where they could not.

    Whether they can is not read from the module's code but tried, on random numbers: its queries and keys
    have to be those without the embedding, rotated as the op rotates.
    """
    kind, head_dim = type(module), getattr(module, "head_dim", None)
    code = getattr(module.forward, "__code__", None)
    if head_dim is None or code is None or code is not kind.forward.__code__ or ROTATE not in code.co_names:
        return False
    try:
        same = _rotates_last(module, head_dim)
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError):
        return False  # a module of other arguments
    if same:
        # A class rather than the module's own `forward`: torch.compile makes one program of all its modules.
        module.__class__ = _left_to_op(kind)  # type: ignore[arg-type]
    return same


@cache
def _left_to_op(kind: type[Module]) -> type[Module]:
    """The attention class whose decodes leave the embedding to the op; elsewhere it does as `kind`."""
    plain, bare = kind.forward, _without_rotary(kind.forward)

    def forward(self: Module, *given: Any, **named: Any) -> Any:
        step, angles = named[STEP], named.get(ANGLES)
        # An embedding of less than the head leaves the rest of it alone, which the op does not do.
        if not step.decode or angles is None or angles[0].shape[-1] != self.head_dim:
            return plain(self, *given, **named)
        named[STEP] = step._replace(rotary=angles)
        return bare(self, *given, **named)

    return type(kind.__name__, (kind,), {"forward": forward})


def _without_rotary(function: Any) -> Callable[..., Any]:
    names = {**function.__globals__, ROTATE: lambda query, key, *_, **__: (query, key)}
    # torch.compile guards a function's names by the module of this name, where they mean something else.
    del names["__name__"]
    made = types.FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _rotates_last(module: Module, head_dim: int) -> bool:
    """Whether the module gives attention what it gives it without its rotary embedding, rotated."""
    weight = next(module.parameters())
    random = torch.Generator().manual_seed(0)
    tokens = 3
    hidden, cos, sin = (
        torch.randn(1, tokens, width, generator=random).to(weight.device, weight.dtype)
        for width in (module.config.hidden_size, head_dim, head_dim)
    )
    seen: list[tuple[Tensor, Tensor]] = []
    use_implementation(module, _CAPTURE)
    try:
        with torch.inference_mode():
            for forward in (type(module).forward, _without_rotary(type(module).forward)):
                forward(module, hidden, **{ANGLES: (cos, sin), STEP: seen}, attention_mask=None)
    finally:
        use_implementation(module, IMPLEMENTATION)
    made, given = seen
    return all(
        torch.allclose(left[0].transpose(0, 1), rotated(right[0].transpose(0, 1), cos[0], sin[0]),
                       rtol=0.02, atol=0.02)
        for left, right in zip(made, given, strict=True)
    )  # fmt: skip


def _capture(
    module: Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, **named: Any
) -> tuple[Tensor, None]:
    """An attention function that keeps query and key; returns zeros [1, T, Hq, Dv]."""
    named[STEP].append((query, key))
    return query.new_zeros(1, query.shape[2], query.shape[1], value.shape[3]), None


AttentionInterface.register(_CAPTURE, _capture)
