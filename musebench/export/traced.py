"""A model's step as torch.export sees it: flat tensors in, logits out, the rows mutated in place."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram
from torch.nn import Module

from musebench.backends.attention import StepContext
from musebench.backends.exported_call import PREFIX
from musebench.backends.probe import LayerShape
from musebench.backends.torch_program import TransformersCall
from musebench.core.errors import UnsupportedError
from musebench.programs.facts import MethodFacts

EXAMPLE_TABLE = (5, 128)
EXAMPLE_ROWS = 77
"""Sizes to trace with, unlike each other and all others: equal ones would be taken for one."""


class TracedStep(Module):
    """Takes what `musebench.backends.exported_call.ExportedCall` gives, in its order (a decode: no rows)."""

    def __init__(self, module: Module, decode: bool, kernels: str) -> None:
        super().__init__()
        self.add_module(PREFIX.rstrip("."), module)
        self._call = TransformersCall(module)
        self._decode = decode
        self._kernels = kernels

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        rows: Tensor | None,
        cells: Tensor,
        slots: Tensor,
        starts: Tensor,
        sequence_slots: Tensor,
        table: Tensor,
        key_rows: list[Tensor],
        value_rows: list[Tensor],
    ) -> Tensor:
        step = StepContext(
            tuple(key_rows), tuple(value_rows), cells, positions, slots, starts, sequence_slots, table,
            self._decode, self._kernels,
        )  # fmt: skip
        return self._call(token_ids, positions, rows, step)


def trace(
    module: Module, layers: tuple[LayerShape, ...], method: MethodFacts, kernels: str
) -> ExportedProgram:
    """Export one method; rows and the cell table's sizes are left open, and the method's own where it is not
    static.

    Raises:
        UnsupportedError: torch.export cannot; says why.
    """
    step = TracedStep(module, method.decode, kernels)
    device = next(module.parameters()).device
    try:
        with torch.no_grad():
            return torch.export.export(
                step,
                _example(layers, method, device),
                dynamic_shapes=_sizes(len(layers), method),
                strict=False,
            )
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise UnsupportedError(
            f"method {method.name!r} of this model cannot be exported ({type(error).__name__}: {reason}); "
            "run it with --executor eager, graph or compiled"
        ) from error


def _example(layers: tuple[LayerShape, ...], method: MethodFacts, device: torch.device) -> tuple[Any, ...]:
    tokens, sequences, rows = _example_sizes(method)

    def words(count: int) -> Tensor:
        # Aligned to 16 bytes, as a batch's fields are: the compiler takes inputs to stay so.
        return torch.zeros(count, dtype=torch.int32, device=device)

    def pool(heads: int, size: int, dtype: torch.dtype) -> Tensor:
        return torch.zeros(EXAMPLE_ROWS, heads, size, dtype=dtype, device=device)

    starts = words(sequences + 1)
    starts.copy_(torch.arange(sequences + 1).clamp(max=tokens))
    return (
        words(tokens), words(tokens), None if method.decode else words(rows), words(tokens), words(tokens),
        starts, words(sequences), torch.zeros(EXAMPLE_TABLE, dtype=torch.int32, device=device),
        [pool(layer.kv_heads, layer.key_dim, layer.dtype) for layer in layers],
        [pool(layer.kv_heads, layer.value_dim, layer.dtype) for layer in layers],
    )  # fmt: skip


def _example_sizes(method: MethodFacts) -> tuple[int, int, int]:
    if method.decode or method.static:
        most = min(method.most_tokens, max(method.fewest_tokens, 6))
        return most, min(most, method.most_sequences), min(most, method.most_rows)
    tokens = min(method.most_tokens, max(method.fewest_tokens, 11))
    return tokens, min(4, method.most_sequences), min(3, method.most_rows)


def _sizes(layers: int, method: MethodFacts) -> tuple[Any, ...]:
    rows = {0: Dim("pool_rows", min=2)}
    table = {0: Dim("table_slots", min=2), 1: Dim("table_width", min=2)}
    cells: tuple[Any, ...] = (table, [rows] * layers, [rows] * layers)
    if method.static:
        return (*(None,) * 7, *cells)
    tokens = Dim("tokens", min=method.fewest_tokens, max=method.most_tokens)
    if method.decode:
        each = {0: tokens}
        return each, each, None, each, each, {0: tokens + 1}, each, *cells
    sequences = Dim("sequences", min=method.fewest_sequences, max=method.most_sequences)
    wanted = Dim("rows", min=method.fewest_rows, max=method.most_rows)
    each = {0: tokens}
    return each, each, {0: wanted}, each, each, {0: sequences + 1}, {0: sequences}, *cells
