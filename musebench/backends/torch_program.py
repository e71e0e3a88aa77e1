"""What the device does in one step: from one packed int32 buffer to the next tokens.

The same calls run eagerly and under capture: nothing in here looks at a value, so nothing waits for the
device.
"""

from __future__ import annotations

import inspect
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import Module

from musebench.backends import torch_sampling
from musebench.backends.attention import STEP, StepContext
from musebench.backends.torch_storage import TorchStorage
from musebench.core.batch import BatchLayout

TOKENS, FINITE, MARGINS = 0, 1, 2
"""Rows of a step's results, int32 [2 or 3, R]: token ids, whether the logits were finite, margins' bits."""


class ModelCall(Protocol):
    """The model as a step calls it: int32 token ids [T], positions [T] and rows [R] to logits [R, V]."""

    def __call__(self, token_ids: Tensor, positions: Tensor, rows: Tensor, step: StepContext) -> Tensor: ...


class TransformersCall:
    """Calls a transformers causal language model; only the wanted rows pass through its output layer."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._keeps = "logits_to_keep" in inspect.signature(module.forward).parameters

    def __call__(self, token_ids: Tensor, positions: Tensor, rows: Tensor, step: StepContext) -> Tensor:
        # A model without the argument makes the logits of all rows: more work, the same numbers.
        wanted: dict[str, Any] = {"logits_to_keep": rows} if self._keeps else {}
        made = self.module(
            input_ids=token_ids[None],
            position_ids=positions[None],
            use_cache=False,
            **wanted,
            **{STEP: step},
        )
        return made.logits[0] if self._keeps else made.logits[0, rows]


class StepProgram:
    """One step over a model, its storage and the device's tables.

    `table` int32 [slots + 1, width] and `last_token` int32 [slots + 1] keep their addresses.
    """

    def __init__(
        self,
        model: ModelCall,
        storage: TorchStorage,
        table: Tensor,
        last_token: Tensor,
        kernels: str,
        record_margins: bool,
    ) -> None:
        self.model = model
        self.storage = storage
        self.table = table
        self.last_token = last_token
        self.kernels = kernels
        self.record_margins = record_margins

    def __call__(self, buffer: Tensor, layout: BatchLayout) -> Tensor:
        """Run the packed batch in `buffer` (int32 [layout.words]); returns the results (see `TOKENS`)."""
        fields = layout.fields(buffer)
        pending = fields.token_ids < 0
        token_ids = torch.where(pending, self.last_token.index_select(0, fields.slots), fields.token_ids)
        # Padding, all of it, writes cell 0 to [0, 0].
        self.table.index_put_((fields.slots, fields.positions), fields.cells)
        step = StepContext(
            self.storage.buffers.keys,
            self.storage.buffers.values,
            fields.cells,
            fields.positions,
            fields.slots,
            fields.starts,
            fields.sequence_slots,
            self.table,
            layout.decode,
            self.kernels,
        )
        logits = self.model(token_ids, fields.positions, fields.rows, step)
        largest, finite = torch_sampling.greedy(logits)
        chosen = torch_sampling.choose(logits, fields) if layout.sampled else largest
        tokens = chosen.to(torch.int32)
        self.last_token.index_put_((fields.row_slots,), tokens)
        results = [tokens, finite.to(torch.int32)]
        if self.record_margins:
            results.append(torch_sampling.margins(logits).view(torch.int32))
        return torch.stack(results)
