"""The two ends of a step around the model: tokens in, tokens out; in torch, and in Triton for CUDA."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from musebench.backends import torch_sampling
from musebench.core.batch import BatchFields


class StepEnds(Protocol):
    """Everything int32. `last_token` [slots + 1] holds the token sampled last for each slot, `table`
    [slots + 1, width] the cells of each slot's tokens."""

    def enter(self, fields: BatchFields, last_token: Tensor, table: Tensor) -> Tensor:
        """Token ids [T], pending ones replaced; writes the step's cells into `table`."""

    def leave(self, logits: Tensor, fields: BatchFields, last_token: Tensor) -> Tensor:
        """Greedy tokens and whether their logits are finite, [2, R], from logits [R, V]; keeps the tokens in
        `last_token`."""


class TorchEnds:
    """In torch, on any device."""

    def enter(self, fields: BatchFields, last_token: Tensor, table: Tensor) -> Tensor:
        pending = fields.token_ids < 0
        token_ids = torch.where(pending, last_token.index_select(0, fields.slots), fields.token_ids)
        # Padding, all of it, writes cell 0 to [0, 0].
        table.index_put_((fields.slots, fields.positions), fields.cells)
        return token_ids

    def leave(self, logits: Tensor, fields: BatchFields, last_token: Tensor) -> Tensor:
        tokens, finite = torch_sampling.greedy(logits)
        results = torch.stack([tokens.to(torch.int32), finite.to(torch.int32)])
        last_token.index_put_((fields.row_slots,), results[0])
        return results


class TritonEnds:
    """In Triton: one launch before the model and two after it."""

    def enter(self, fields: BatchFields, last_token: Tensor, table: Tensor) -> Tensor:
        from musebench.kernels.triton_tokens import enter

        return enter(fields.token_ids, fields.positions, fields.cells, fields.slots, last_token, table)

    def leave(self, logits: Tensor, fields: BatchFields, last_token: Tensor) -> Tensor:
        from musebench.kernels.triton_tokens import leave

        return leave(logits, fields.row_slots, last_token)


def ends_for(kernels: str, device: torch.device) -> StepEnds:
    """Triton's on CUDA where its kernels are used, else torch's."""
    return TritonEnds() if kernels == "triton" and device.type == "cuda" else TorchEnds()
