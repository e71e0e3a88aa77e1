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
from musebench.backends.step_ends import ends_for
from musebench.backends.torch_storage import TorchStorage
from musebench.core.batch import BatchLayout

TOKENS, FINITE, MARGINS = 0, 1, 2
"""Rows of a step's results, int32 [2 or 3, R]: token ids, whether the logits were finite, margins' bits."""


class ModelCall(Protocol):
    """The model as a step calls it: int32 token ids [T], positions [T] and rows [R] to logits [R, V].

    `rows` None asks for all tokens' logits.
    """

    def __call__(
        self, token_ids: Tensor, positions: Tensor, rows: Tensor | None, step: StepContext
    ) -> Tensor: ...


class TransformersCall:
    """Calls a transformers causal language model; only the wanted rows pass through its output layer."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._keeps = "logits_to_keep" in inspect.signature(module.forward).parameters

    def __call__(
        self, token_ids: Tensor, positions: Tensor, rows: Tensor | None, step: StepContext
    ) -> Tensor:
        # A model without the argument makes the logits of all rows: more work, the same numbers.
        keeps = self._keeps and rows is not None
        wanted: dict[str, Any] = {"logits_to_keep": rows} if keeps else {}
        made = self.module(
            input_ids=token_ids[None],
            position_ids=positions[None],
            use_cache=False,
            **wanted,
            **{STEP: step},
        )
        logits: Tensor = made.logits[0]
        return logits if keeps or rows is None else logits[rows]


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
        self._ends = ends_for(kernels, table.device)

    def __call__(self, buffer: Tensor, layout: BatchLayout) -> Tensor:
        """Run the packed batch in `buffer` (int32 [layout.words]); returns the results (see `TOKENS`)."""
        fields = layout.fields(buffer)
        token_ids = self._ends.enter(fields, self.last_token, self.table)
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
        # Where every sequence decodes, every token's logits are wanted, in order.
        logits = self.model(token_ids, fields.positions, None if layout.decode else fields.rows, step)
        results = self._ends.leave(logits, fields, self.last_token)
        if layout.sampled:
            results[TOKENS] = torch_sampling.choose(logits, fields)
            self.last_token.index_put_((fields.row_slots,), results[TOKENS])
        if not self.record_margins:
            return results
        return torch.cat([results, torch_sampling.margins(logits).view(torch.int32)[None]])
