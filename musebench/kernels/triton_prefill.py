"""Slices of many tokens: tiles of queries over the cells of their own sequence.

A program takes one KV head and one tile, tokens of one sequence times the query heads of the group. Which
sequence and which tokens those are it finds in `starts`, so that the grid follows from shapes alone; programs
beyond the last tile end at once.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from musebench.kernels.triton_configs import PrefillConfig
from musebench.kernels.triton_layout import NO_WINDOW, power_of_two, stride_unit
from musebench.kernels.triton_softmax import fold_logits, fold_sink, logit_scales, to_logits

LONGEST_SEARCH = 1024


@triton.jit
def _find_tile(
    tile: tl.tensor,
    tokens: tl.tensor,
    sequences: tl.tensor,
    starts: tl.tensor,
    tile_tokens: tl.constexpr,
    search: tl.constexpr,
) -> tl.tensor:
    """Sequence of a tile, its first token, and one past the last token of that sequence.

    Sequence s begins at tile starts[s] // tile_tokens + s, which leaves it room enough. Sequence number
    `sequences` stands for the padding after the last one.
    """
    found = tile * 0
    for begin in range(0, sequences + 1, search):
        index = begin + tl.arange(0, search)
        start = tl.load(starts + index, mask=index <= sequences, other=0)
        found += tl.sum(((start // tile_tokens + index <= tile) & (index <= sequences)).to(tl.int32), 0)
    sequence = found - 1
    start = tl.load(starts + sequence)
    end = tl.load(starts + sequence + 1, mask=sequence < sequences, other=0)
    end = tl.where(sequence < sequences, end, tokens)
    return sequence, start, start + (tile - start // tile_tokens - sequence) * tile_tokens, end


@triton.jit
def _attend(
    query_block: tl.tensor, mix: tl.tensor, top: tl.tensor, total: tl.tensor, begin: tl.tensor,
    end: tl.tensor, position: tl.tensor, window: tl.tensor, table_row: tl.tensor, key_head: tl.tensor,
    value_head: tl.tensor, key_stride: tl.tensor, value_stride: tl.tensor, inner_scale: tl.tensor,
    outer_scale: tl.tensor, head_dim: tl.constexpr, value_dim: tl.constexpr, rows_unit: tl.constexpr,
    capped: tl.constexpr, masked: tl.constexpr, block_n: tl.constexpr, block_d: tl.constexpr,
    block_v: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Fold cells begin..end - 1 of the sequence into the sums of all queries; -> mix, top and total.

    `masked` False: every query attends to every one of them, and their number is a multiple of `block_n`.
    """
    column = tl.arange(0, block_d)
    column_v = tl.arange(0, block_v)
    for start in range(begin, end, block_n):
        offset = start + tl.arange(0, block_n)
        key_mask = (column < head_dim)[None, :]
        value_mask = (column_v < value_dim)[None, :]
        if masked:
            inside = offset < end
            row = tl.load(table_row + offset, mask=inside, other=0).to(tl.int64)
            key_mask = inside[:, None] & key_mask
            value_mask = inside[:, None] & value_mask
        else:
            row = tl.load(table_row + offset).to(tl.int64)
        key_block = tl.load(
            key_head + row[:, None] * key_stride * rows_unit + column[None, :], mask=key_mask, other=0.0
        )
        value_at = value_head + row[:, None] * value_stride * rows_unit + column_v[None, :]
        value_block = tl.load(value_at, mask=value_mask, other=0.0)
        logits = to_logits(
            tl.dot(query_block, tl.trans(key_block), input_precision="ieee"), inner_scale, outer_scale, capped
        )
        if masked:
            seen = (offset[None, :] <= position[:, None]) & (offset[None, :] > position[:, None] - window)
            logits = tl.where(seen, logits, float("-inf"))
        weights, mix, top, total = fold_logits(mix, top, total, logits)
        spoilt = 0
        if masked:
            spoilt = tl.max(
                tl.max((tl.abs(value_block.to(tl.float32)) < float("inf")).to(tl.int32) ^ 1, 1), 0
            )
        if spoilt > 0:
            # A query must not meet a NaN or infinity that it does not see as 0 x NaN either.
            for index in range(start, tl.minimum(start + block_n, end)):
                chosen = (offset == index)[None, :] & (offset[None, :] <= position[:, None])
                chosen = chosen & (offset[None, :] > position[:, None] - window)
                weight = tl.sum(tl.where(chosen, weights, 0.0), 1)
                sees = tl.sum(chosen.to(tl.int32), 1) > 0
                row_value = tl.load(
                    value_head
                    + tl.load(table_row + index).to(tl.int64) * value_stride * rows_unit
                    + column_v,
                    mask=column_v < value_dim,
                    other=0.0,
                ).to(tl.float32)
                mix += tl.where(sees[:, None], weight[:, None] * row_value[None, :], 0.0)
        else:
            mix = tl.dot(weights.to(value_block.dtype), value_block, mix, input_precision="ieee")
    return mix, top, total


@triton.jit(
    do_not_specialize=[
        "tokens", "sequences", "table_width", "window",
        "query_stride_t", "query_stride_h",
    ]
)  # fmt: skip
def _prefill_kernel(
    query: tl.tensor,
    key_rows: tl.tensor,
    value_rows: tl.tensor,
    cells: tl.tensor,
    positions: tl.tensor,
    starts: tl.tensor,
    sequence_slots: tl.tensor,
    table: tl.tensor,
    sinks: tl.tensor,
    out: tl.tensor,
    inner_scale: tl.tensor,
    outer_scale: tl.tensor,
    window: tl.tensor,
    tokens: tl.tensor,
    sequences: tl.tensor,
    table_width: tl.tensor,
    query_stride_t: tl.tensor,
    query_stride_h: tl.tensor,
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
    windowed: tl.constexpr,
    capped: tl.constexpr,
    search: tl.constexpr,
    block_m: tl.constexpr,
    block_n: tl.constexpr,
    block_d: tl.constexpr,
    block_v: tl.constexpr,
) -> None:
    """Program (tile x KV head), the last tiles first because they have the most to read."""
    tile_tokens: tl.constexpr = block_m // group
    heads: tl.constexpr = kv_heads * group
    head = tl.program_id(0) % kv_heads
    tile = (tl.num_programs(0) - 1 - tl.program_id(0)) // kv_heads
    sequence, start, first_token, end_token = _find_tile(tile, tokens, sequences, starts, tile_tokens, search)
    if first_token >= end_token:
        return
    if mixed & (end_token - start == 1) & (sequence < sequences):
        return
    slot = tl.load(sequence_slots + sequence, mask=sequence < sequences, other=0)

    member = tl.arange(0, block_m)
    token = first_token + member // group
    query_head = head * group + member % group
    present = (member < tile_tokens * group) & (token < end_token)
    cell = tl.load(cells + token, mask=present, other=0)
    position = tl.load(positions + token, mask=present, other=0)
    real = present & (cell != 0) & (sequence < sequences)
    token = token.to(tl.int64)
    column = tl.arange(0, block_d)
    column_v = tl.arange(0, block_v)
    source = token * query_stride_t * unit + query_head * query_stride_h * unit
    query_block = tl.load(
        query + source[:, None] + column[None, :],
        mask=real[:, None] & (column < head_dim)[None, :],
        other=0.0,
    )
    key_head = key_rows + head * key_rows_stride_h * rows_unit
    value_head = value_rows + head * value_rows_stride_h * rows_unit
    table_row = table + slot.to(tl.int64) * table_width

    top = tl.full([block_m], float("-inf"), tl.float32)
    total = tl.zeros([block_m], tl.float32)
    mix = tl.zeros([block_m, block_v], tl.float32)

    # Between the cells that a window has passed for some queries of the tile and those that are newer than
    # some, all queries attend to all cells, and nothing needs to be masked.
    end = tl.max(tl.where(real, position + 1, 0), 0)
    lowest = tl.minimum(tl.min(tl.where(real, position, 2147483647), 0), end)
    shared_begin = lowest * 0
    if windowed:
        begin = tl.maximum(lowest + 1 - window, 0)
        passed = tl.maximum(end - window, 0) - begin
        shared_begin = tl.minimum(begin + tl.cdiv(passed, block_n) * block_n, end)
        mix, top, total = _attend(
            query_block, mix, top, total, begin, shared_begin, position, window,
            table_row, key_head, value_head, key_rows_stride, value_rows_stride, inner_scale, outer_scale,
            head_dim, value_dim, rows_unit, capped, True, block_n, block_d, block_v,
        )  # fmt: skip
    shared_end = shared_begin + tl.maximum(lowest + 1 - shared_begin, 0) // block_n * block_n
    mix, top, total = _attend(
        query_block, mix, top, total, shared_begin, shared_end, position, window,
        table_row, key_head, value_head, key_rows_stride, value_rows_stride, inner_scale, outer_scale,
        head_dim, value_dim, rows_unit, capped, False, block_n, block_d, block_v,
    )  # fmt: skip
    mix, top, total = _attend(
        query_block, mix, top, total, shared_end, end, position, window,
        table_row, key_head, value_head, key_rows_stride, value_rows_stride, inner_scale, outer_scale,
        head_dim, value_dim, rows_unit, capped, True, block_n, block_d, block_v,
    )  # fmt: skip

    if sinks is not None:
        mix, total = fold_sink(mix, top, total, tl.load(sinks + query_head))
    result = tl.where(real[:, None], mix / total[:, None], 0.0)
    tl.store(
        out + ((token * heads + query_head) * value_dim)[:, None] + column_v[None, :],
        result.to(out.dtype.element_ty),
        mask=present[:, None] & (column_v < value_dim)[None, :],
    )


def prefill(
    query: Tensor,
    key_rows: Tensor,
    value_rows: Tensor,
    cells: Tensor,
    positions: Tensor,
    starts: Tensor,
    sequence_slots: Tensor,
    table: Tensor,
    scale: float,
    window: int,
    softcap: float,
    sinks: Tensor | None,
    out: Tensor,
    config: PrefillConfig,
    mixed: bool = False,
) -> None:
    """Attend, after this step's keys and values are written; arguments as in `update_and_attend`.

    `out` [T, Hq, Dv] is contiguous; its padding becomes zero. `mixed` leaves sequences of exactly one token
    out, for `triton_decode.decode`.
    """
    tokens, heads, head_dim = query.shape
    kv_heads, value_dim = value_rows.shape[1:]
    group = heads // kv_heads
    sequences = sequence_slots.shape[0]
    block_m = max(config.block_m, power_of_two(group))
    tiles = tokens // (block_m // group) + sequences + 1
    inner_scale, outer_scale = logit_scales(scale, softcap)
    unit, rows_unit = stride_unit(query), stride_unit(key_rows, value_rows)
    _prefill_kernel[(tiles * kv_heads,)](
        query,
        key_rows,
        value_rows,
        cells,
        positions,
        starts,
        sequence_slots,
        table,
        sinks,
        out,
        inner_scale,
        outer_scale,
        min(window or NO_WINDOW, NO_WINDOW),
        tokens,
        sequences,
        table.stride(0),
        query.stride(0) // unit,
        query.stride(1) // unit,
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
        windowed=window != 0,
        capped=softcap != 0,
        search=min(LONGEST_SEARCH, power_of_two(sequences + 1)),
        block_m=block_m,
        block_n=config.block_n,
        block_d=max(16, power_of_two(head_dim)),
        block_v=max(16, power_of_two(value_dim)),
        num_warps=config.warps,
        num_stages=config.stages,
    )
