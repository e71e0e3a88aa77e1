"""What stands before and after the model in a step, as three small Triton kernels.

A step of one small model is a thousand microseconds; a dozen launches for a few hundred integers would be a
twentieth of them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from musebench.kernels.triton_layout import ceil_div, power_of_two

TOKENS_PER_PROGRAM = 128
FEW_ROWS = 16
"""Up to so many rows the vocabulary is cut finely, so that one row fills the device."""
FINE, COARSE = 1024, 8192


@triton.jit(do_not_specialize=["tokens"])
def _enter_kernel(
    given: tl.tensor,
    positions: tl.tensor,
    cells: tl.tensor,
    slots: tl.tensor,
    last_token: tl.tensor,
    table: tl.tensor,
    table_width: tl.tensor,
    token_ids: tl.tensor,
    tokens: tl.tensor,
    block: tl.constexpr,
) -> None:
    at = tl.program_id(0) * block + tl.arange(0, block)
    real = at < tokens
    slot = tl.load(slots + at, mask=real, other=0)
    token = tl.load(given + at, mask=real, other=0)
    sampled = tl.load(last_token + slot, mask=real & (token < 0), other=0)
    tl.store(token_ids + at, tl.where(token < 0, sampled, token), mask=real)
    place = slot.to(tl.int64) * table_width + tl.load(positions + at, mask=real, other=0)
    # Padding, all of it, writes cell 0 to [0, 0].
    tl.store(table + place, tl.load(cells + at, mask=real, other=0), mask=real)


@triton.jit(do_not_specialize=["vocabulary", "parts"])
def _largest_kernel(
    logits: tl.tensor,
    row_stride: tl.tensor,
    part_values: tl.tensor,
    part_tokens: tl.tensor,
    vocabulary: tl.tensor,
    parts: tl.tensor,
    block: tl.constexpr,
) -> None:
    """One part of one row: its largest logit, a NaN being infinity, and the lowest token that has it."""
    row, part = tl.program_id(0), tl.program_id(1)
    token = part * block + tl.arange(0, block)
    value = tl.load(
        logits + row.to(tl.int64) * row_stride + token, mask=token < vocabulary, other=float("-inf")
    ).to(tl.float32)
    value = tl.where(value != value, float("inf"), value)
    largest = tl.max(value, 0)
    tl.store(part_values + row * parts + part, largest)
    tl.store(part_tokens + row * parts + part, tl.min(tl.where(value == largest, token, vocabulary), 0))


@triton.jit(do_not_specialize=["rows", "parts"])
def _leave_kernel(
    part_values: tl.tensor,
    part_tokens: tl.tensor,
    row_slots: tl.tensor,
    last_token: tl.tensor,
    results: tl.tensor,
    rows: tl.tensor,
    parts: tl.tensor,
    block: tl.constexpr,
) -> None:
    """One row's token from its parts; whether its logit is finite; and the token as its slot's last."""
    row = tl.program_id(0)
    part = tl.arange(0, block)
    value = tl.load(part_values + row * parts + part, mask=part < parts, other=float("-inf"))
    largest = tl.max(value, 0)
    token = tl.load(part_tokens + row * parts + part, mask=part < parts, other=2147483647)
    token = tl.min(tl.where(value == largest, token, 2147483647), 0)
    tl.store(results + row, token)
    tl.store(results + rows + row, (tl.abs(largest) < float("inf")).to(tl.int32))
    tl.store(last_token + tl.load(row_slots + row), token)


def enter(
    given: Tensor, positions: Tensor, cells: Tensor, slots: Tensor, last_token: Tensor, table: Tensor
) -> Tensor:
    """Token ids int32 [T]: those of `given`, and where that is negative the slot's of `last_token`.

    Writes `cells` [T] into `table` [slots + 1, width] at [slots, positions]. All int32.
    """
    tokens = given.shape[0]
    token_ids = torch.empty_like(given)
    if tokens:
        _enter_kernel[(ceil_div(tokens, TOKENS_PER_PROGRAM),)](
            given, positions, cells, slots, last_token, table, table.stride(0), token_ids, tokens,
            block=TOKENS_PER_PROGRAM, num_warps=4,
        )  # fmt: skip
    return token_ids


def leave(logits: Tensor, row_slots: Tensor, last_token: Tensor) -> Tensor:
    """The lowest token among the largest logits of each row of [R, V], and whether that logit is finite.

    Returns int32 [2, R], and writes the tokens into `last_token` int32 [slots + 1] at `row_slots` int32 [R].
    A row is not finite when it holds a NaN or +infinity, or -infinity alone; its token is then some token.
    """
    rows, vocabulary = logits.shape
    results = torch.empty(2, rows, dtype=torch.int32, device=logits.device)
    if not rows:
        return results
    if logits.stride(1) != 1:
        logits = logits.contiguous()
    block = FINE if rows <= FEW_ROWS else COARSE
    parts = ceil_div(vocabulary, block)
    part_values = torch.empty(rows, parts, dtype=torch.float32, device=logits.device)
    part_tokens = torch.empty(rows, parts, dtype=torch.int32, device=logits.device)
    _largest_kernel[(rows, parts)](
        logits, logits.stride(0), part_values, part_tokens, vocabulary, parts, block=block,
        num_warps=4 if block == FINE else 8,
    )  # fmt: skip
    _leave_kernel[(rows,)](
        part_values, part_tokens, row_slots, last_token, results, rows, parts,
        block=power_of_two(parts), num_warps=1 if parts <= 64 else 4,
    )  # fmt: skip
    return results
