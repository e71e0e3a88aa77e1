"""Where the splits of a decode lie, and the kernel that merges them."""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_wait

from musebench.kernels.triton_configs import merge_warps
from musebench.kernels.triton_layout import power_of_two
from musebench.kernels.triton_softmax import safe_top


@triton.jit
def find_token(
    sequence: tl.tensor, starts: tl.tensor, cells: tl.tensor, positions: tl.tensor, slots: tl.tensor,
    window: tl.tensor, splits: tl.tensor, mixed: tl.constexpr, split_cells: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Token of a sequence (-1 if it has not exactly one), its cell, position and slot; then the older cells
    it attends to: the first, how many a split takes, and how many splits take any (at least 1).
    """
    token = sequence
    alone = token >= 0
    if mixed:
        token = tl.load(starts + sequence)
        alone = tl.load(starts + sequence + 1) == token + 1
    cell = tl.load(cells + token, mask=alone, other=0)
    position = tl.load(positions + token, mask=alone, other=0)
    slot = tl.load(slots + token, mask=alone, other=0)
    first = tl.maximum(position + 1 - window, 0)
    count = position - first
    wanted = tl.minimum(splits, tl.maximum(1, tl.cdiv(count, split_cells)))
    # In runs of 16 cells: finer than a block, so that splits come out even; a block's rest is not loaded.
    share = tl.maximum(1, tl.cdiv(tl.cdiv(count, wanted), 16)) * 16
    used = tl.maximum(1, tl.cdiv(count, share))
    return tl.where(alone, token, -1), cell, position, slot, first, share, used


@triton.jit(do_not_specialize=["splits", "window"])
def _merge_kernel(
    cells: tl.tensor,
    positions: tl.tensor,
    slots: tl.tensor,
    starts: tl.tensor,
    sinks: tl.tensor,
    out: tl.tensor,
    split_mix: tl.tensor,
    split_sums: tl.tensor,
    window: tl.tensor,
    splits: tl.tensor,
    heads: tl.constexpr,
    value_dim: tl.constexpr,
    mixed: tl.constexpr,
    early_merge: tl.constexpr,
    split_cells: tl.constexpr,
    block_s: tl.constexpr,
    block_v: tl.constexpr,
) -> None:
    """Program (sequence x query head): merge its splits' sums into the output."""
    head = tl.program_id(0) % heads
    sequence = tl.program_id(0) // heads
    token, cell, _position, _slot, _first, _share, used = find_token(
        sequence, starts, cells, positions, slots, window, splits, mixed, split_cells
    )
    if token < 0:
        return
    column = tl.arange(0, block_v)
    real_column = column < value_dim
    split = tl.arange(0, block_s)
    made = (split < used) & (cell != 0)
    at = tl.program_id(0) * splits + split
    if early_merge:
        gdc_wait()
    top = tl.load(split_sums + at * 2, mask=made, other=float("-inf"))
    total = tl.load(split_sums + at * 2 + 1, mask=made, other=0.0)
    mix = tl.load(
        split_mix + at[:, None].to(tl.int64) * value_dim + column[None, :],
        mask=made[:, None] & real_column[None, :],
        other=0.0,
    )
    best = tl.max(top, 0)
    if sinks is not None:
        sink = tl.load(sinks + head).to(tl.float32) * 1.4426950408889634
        best = tl.maximum(best, sink)
    best = safe_top(best)
    weight = tl.exp2(top - best)
    whole = tl.sum(total * weight, 0)
    if sinks is not None:
        whole += tl.exp2(sink - best)
    result = tl.where(cell != 0, tl.sum(mix * weight[:, None], 0) / whole, 0.0)
    out_at = out + (token.to(tl.int64) * heads + head) * value_dim + column
    tl.store(out_at, result.to(out.dtype.element_ty), mask=real_column)


@cache
def launches_early(device: torch.device) -> bool:
    """Whether a kernel can be launched while the one it depends on runs (programmatic dependent launch)."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


def merge(
    cells: Tensor,
    positions: Tensor,
    slots: Tensor,
    starts: Tensor,
    sinks: Tensor | None,
    out: Tensor,
    split_mix: Tensor,
    split_sums: Tensor,
    window: int,
    splits: int,
    split_cells: int,
    early: bool,
    mixed: bool,
) -> None:
    """Merge `split_mix` [S, Hq, splits, Dv] and `split_sums` [S, Hq, splits, 2] into `out` [T, Hq, Dv].

    The sums are float32: top and total of each split. `early` launches it while the splits still run.
    """
    sequences, heads, _, value_dim = split_mix.shape
    _merge_kernel[(sequences * heads,)](
        cells,
        positions,
        slots,
        starts,
        sinks,
        out,
        split_mix,
        split_sums,
        window,
        splits,
        heads=heads,
        value_dim=value_dim,
        mixed=mixed,
        early_merge=early,
        split_cells=split_cells,
        block_s=power_of_two(splits),
        block_v=power_of_two(value_dim),
        num_warps=merge_warps(splits, value_dim),
        launch_pdl=early,
    )
