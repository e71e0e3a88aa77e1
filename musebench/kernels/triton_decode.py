"""Decode: one new token a sequence, which attends to the cells of its context.

A program takes one sequence, one KV head with its query heads, and one split of the context, so that a
single sequence fills the device too; a second kernel merges the splits. The new token's key and value come
from the inputs and not from their cell, and the first split writes them there: no program reads what another
writes. Query and key may come without their rotary embedding, which each program then makes of what it loads:
that hides behind the cells' arrival, where a kernel of its own would not. How many splits there may be
follows from shapes; where they lie, from the sequence's own position as well, so that nothing of a neighbour
reaches a row, not even through rounding.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents

from musebench.kernels.triton_configs import DecodeConfig, splits_of
from musebench.kernels.triton_layout import NO_WINDOW, power_of_two, stride_unit
from musebench.kernels.triton_merge import find_token, launches_early, merge
from musebench.kernels.triton_softmax import fold_logits, fold_sink, logit_scales, to_logits


@triton.jit(
    do_not_specialize=[
        "splits", "table_width", "window",
        "query_stride_t", "query_stride_h", "key_stride_t", "key_stride_h",
        "value_stride_t", "value_stride_h",
    ]
)  # fmt: skip
def _decode_kernel(
    query: tl.tensor,
    key: tl.tensor,
    value: tl.tensor,
    key_rows: tl.tensor,
    value_rows: tl.tensor,
    cells: tl.tensor,
    positions: tl.tensor,
    slots: tl.tensor,
    starts: tl.tensor,
    table: tl.tensor,
    sinks: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    out: tl.tensor,
    split_mix: tl.tensor,
    split_sums: tl.tensor,
    inner_scale: tl.tensor,
    outer_scale: tl.tensor,
    window: tl.tensor,
    splits: tl.tensor,
    table_width: tl.tensor,
    query_stride_t: tl.tensor,
    query_stride_h: tl.tensor,
    key_stride_t: tl.tensor,
    key_stride_h: tl.tensor,
    value_stride_t: tl.tensor,
    value_stride_h: tl.tensor,
    key_rows_stride: tl.tensor,
    key_rows_stride_h: tl.tensor,
    value_rows_stride: tl.tensor,
    value_rows_stride_h: tl.tensor,
    kv_heads: tl.constexpr,
    group: tl.constexpr,
    head_dim: tl.constexpr,
    value_dim: tl.constexpr,
    unit: tl.constexpr,
    rows_unit: tl.constexpr,
    mixed: tl.constexpr,
    merged: tl.constexpr,
    capped: tl.constexpr,
    early_merge: tl.constexpr,
    split_cells: tl.constexpr,
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    block_d: tl.constexpr,
    block_v: tl.constexpr,
) -> None:
    """Program (sequence x KV head, split). `merged`: leave sums for `triton_merge` rather than outputs."""
    if early_merge:
        gdc_launch_dependents()
    head = tl.program_id(0) % kv_heads
    sequence = tl.program_id(0) // kv_heads
    split = tl.program_id(1)
    heads: tl.constexpr = kv_heads * group

    token, cell, position, slot, first, share, used = find_token(
        sequence, starts, cells, positions, slots, window, splits, mixed, split_cells
    )
    if (token < 0) | (split >= used):
        return
    member = tl.arange(0, block_m)
    real_member = member < group
    query_head = head * group + member
    column_v = tl.arange(0, block_v)
    token = token.to(tl.int64)
    out_at = out + (token * heads + query_head[:, None]) * value_dim + column_v[None, :]
    out_mask = real_member[:, None] & (column_v < value_dim)[None, :]
    if cell == 0:
        if not merged:
            tl.store(out_at, tl.zeros([block_m, block_v], out.dtype.element_ty), mask=out_mask)
        return

    column = tl.arange(0, block_d)
    query_at = query + token * query_stride_t * unit + query_head[:, None] * query_stride_h * unit
    query_mask = real_member[:, None] & (column < head_dim)[None, :]
    angle = token * head_dim
    query_block = load_rotated(query_at, column, query_mask, cos, sin, angle, head_dim)
    # The first split takes the new token as well. What it loads here it uses last, when it has arrived.
    newest = split == 0
    new_key = load_rotated(
        key + token * key_stride_t * unit + head * key_stride_h * unit,
        column,
        (column < head_dim) & newest,
        cos,
        sin,
        angle,
        head_dim,
    )
    new_value = tl.load(
        value + token * value_stride_t * unit + head * value_stride_h * unit + column_v,
        mask=(column_v < value_dim) & newest,
        other=0.0,
    )

    key_head = key_rows + head * key_rows_stride_h * rows_unit
    value_head = value_rows + head * value_rows_stride_h * rows_unit
    table_row = table + slot.to(tl.int64) * table_width
    top = tl.full([block_m], float("-inf"), tl.float32)
    total = tl.zeros([block_m], tl.float32)
    mix = tl.zeros([block_m, block_v], tl.float32)
    begin = first + split * share
    end = tl.minimum(begin + share, position)
    for start in range(begin, end, block_n):
        offset = start + tl.arange(0, block_n)
        inside = offset < end
        row = tl.load(table_row + offset, mask=inside, other=0).to(tl.int64)
        key_block = tl.load(
            key_head + row[:, None] * key_rows_stride * rows_unit + column[None, :],
            mask=inside[:, None] & (column < head_dim)[None, :],
            other=0.0,
        )
        value_block = tl.load(
            value_head + row[:, None] * value_rows_stride * rows_unit + column_v[None, :],
            mask=inside[:, None] & (column_v < value_dim)[None, :],
            other=0.0,
        )
        products = tl.dot(query_block, tl.trans(key_block), input_precision="ieee")
        logits = to_logits(products, inner_scale, outer_scale, capped)
        logits = tl.where(inside[None, :], logits, float("-inf"))
        weights, mix, top, total = fold_logits(mix, top, total, logits)
        mix = tl.dot(weights.to(value_block.dtype), value_block, mix, input_precision="ieee")

    wide_cell = cell.to(tl.int64)
    tl.store(
        key_head + wide_cell * key_rows_stride * rows_unit + column,
        new_key,
        mask=(column < head_dim) & newest,
    )
    tl.store(
        value_head + wide_cell * value_rows_stride * rows_unit + column_v,
        new_value,
        mask=(column_v < value_dim) & newest,
    )
    # Loaded again rather than kept in registers over the loop.
    query_block = load_rotated(query_at, column, query_mask, cos, sin, angle, head_dim)
    new_product = tl.sum(query_block.to(tl.float32) * new_key.to(tl.float32)[None, :], 1)
    new_logit = to_logits(new_product, inner_scale, outer_scale, capped)
    new_logit = tl.where(newest, new_logit, float("-inf"))
    weight, mix, top, total = fold_logits(mix, top, total, new_logit[:, None])
    mix += weight * new_value.to(tl.float32)[None, :]

    if merged:
        at = (sequence * heads + query_head) * splits + split
        tl.store(split_mix + at[:, None].to(tl.int64) * value_dim + column_v[None, :], mix, mask=out_mask)
        tl.store(split_sums + at * 2, top, mask=real_member)
        tl.store(split_sums + at * 2 + 1, total, mask=real_member)
    else:
        if sinks is not None:
            mix, total = fold_sink(mix, top, total, tl.load(sinks + query_head, mask=real_member, other=0.0))
        tl.store(out_at, (mix / total[:, None]).to(out.dtype.element_ty), mask=out_mask)


@triton.jit
def load_rotated(
    at: tl.tensor,
    column: tl.tensor,
    mask: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    angle: tl.tensor,
    head_dim: tl.constexpr,
) -> tl.tensor:
    """What lies `column` after `at`; where there is a `cos`, rotated by `head_dim` angles from `angle` on."""
    loaded = tl.load(at + column, mask=mask, other=0.0)
    if cos is not None:
        half: tl.constexpr = head_dim // 2
        first = column < half
        partner = tl.load(at + tl.where(first, column + half, column - half), mask=mask, other=0.0)
        inside = column < head_dim
        turn = tl.load(sin + angle + column, mask=inside, other=0.0).to(tl.float32)
        kept = tl.load(cos + angle + column, mask=inside, other=0.0).to(tl.float32)
        turned = loaded.to(tl.float32) * kept + partner.to(tl.float32) * tl.where(first, -turn, turn)
        loaded = turned.to(loaded.dtype)
    return loaded


def decode(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_rows: Tensor,
    value_rows: Tensor,
    cells: Tensor,
    positions: Tensor,
    slots: Tensor,
    starts: Tensor,
    table: Tensor,
    scale: float,
    window: int,
    softcap: float,
    sinks: Tensor | None,
    out: Tensor,
    config: DecodeConfig,
    mixed: bool = False,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
) -> None:
    """Write and attend for sequences of one token; arguments as in `update_and_attend`.

    `out` [T, Hq, Dv] is contiguous. `mixed` False: token s is all of sequence s. True: only sequences that
    `starts` gives exactly one token are served, the others are left alone, in rows and in `out`.
    """
    sequences = starts.shape[0] - 1 if mixed else query.shape[0]
    heads, head_dim = query.shape[1:]
    kv_heads, value_dim = value.shape[1:]
    group = heads // kv_heads
    table_width = table.stride(0)
    splits = splits_of(config, sequences * kv_heads, table.shape[1])
    merged = splits > 1
    early_merge = merged and config.early_merge and launches_early(query.device)
    split_mix = split_sums = out
    if merged:
        split_mix = torch.empty(
            (sequences, heads, splits, value_dim), dtype=torch.float32, device=query.device
        )
        split_sums = torch.empty((sequences, heads, splits, 2), dtype=torch.float32, device=query.device)
    inner_scale, outer_scale = logit_scales(scale, softcap)
    window = min(window or NO_WINDOW, NO_WINDOW)
    block_m = max(config.block_m, power_of_two(group))
    unit, rows_unit = stride_unit(query, key, value), stride_unit(key_rows, value_rows)
    _decode_kernel[(sequences * kv_heads, splits)](
        query,
        key,
        value,
        key_rows,
        value_rows,
        cells,
        positions,
        slots,
        starts,
        table,
        sinks,
        cos,
        sin,
        out,
        split_mix,
        split_sums,
        inner_scale,
        outer_scale,
        window,
        splits,
        table_width,
        query.stride(0) // unit,
        query.stride(1) // unit,
        key.stride(0) // unit,
        key.stride(1) // unit,
        value.stride(0) // unit,
        value.stride(1) // unit,
        key_rows.stride(0) // rows_unit,
        key_rows.stride(1) // rows_unit,
        value_rows.stride(0) // rows_unit,
        value_rows.stride(1) // rows_unit,
        kv_heads=kv_heads,
        group=group,
        head_dim=head_dim,
        value_dim=value_dim,
        unit=unit,
        rows_unit=rows_unit,
        mixed=mixed,
        merged=merged,
        capped=softcap != 0,
        early_merge=early_merge,
        split_cells=config.split_cells,
        block_m=block_m,
        block_n=config.block_n,
        block_d=max(16, power_of_two(head_dim)),
        block_v=max(16, power_of_two(value_dim)),
        num_warps=max(config.warps, min(8, config.warps * block_m // 16)),  # more heads, more registers
        num_stages=config.stages,
    )
    if merged:
        merge(
            cells, positions, slots, starts, sinks, out, split_mix, split_sums,
            window, splits, config.split_cells, early_merge, mixed,
        )  # fmt: skip
