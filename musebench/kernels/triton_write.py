"""Writes a step's keys and values into their cells, in one launch."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from musebench.kernels.triton_layout import ceil_div, power_of_two, stride_unit

PAIRS_PER_PROGRAM = 16


@triton.jit(do_not_specialize=["pairs", "key_stride_t", "key_stride_h", "value_stride_t", "value_stride_h"])
def _write_kernel(
    key: tl.tensor,
    value: tl.tensor,
    key_rows: tl.tensor,
    value_rows: tl.tensor,
    cells: tl.tensor,
    pairs: tl.tensor,
    key_stride_t: tl.tensor,
    key_stride_h: tl.tensor,
    value_stride_t: tl.tensor,
    value_stride_h: tl.tensor,
    key_rows_stride: tl.tensor,
    key_rows_stride_h: tl.tensor,
    value_rows_stride: tl.tensor,
    value_rows_stride_h: tl.tensor,
    kv_heads: tl.constexpr,
    head_dim: tl.constexpr,
    value_dim: tl.constexpr,
    block_d: tl.constexpr,
    block_v: tl.constexpr,
    unit: tl.constexpr,
    rows_unit: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """One program a block of (token, head) pairs. Padding (cell 0) writes nothing."""
    pair = tl.program_id(0) * block + tl.arange(0, block)
    token = pair // kv_heads
    head = pair % kv_heads
    cell = tl.load(cells + token, mask=pair < pairs, other=0).to(tl.int64)
    real = (cell != 0)[:, None]
    token = token.to(tl.int64)

    column = tl.arange(0, block_d)[None, :]
    source = token * key_stride_t * unit + head * key_stride_h * unit
    target = cell * key_rows_stride * rows_unit + head * key_rows_stride_h * rows_unit
    wanted = real & (column < head_dim)
    tl.store(
        key_rows + target[:, None] + column,
        tl.load(key + source[:, None] + column, mask=wanted),
        mask=wanted,
    )

    column = tl.arange(0, block_v)[None, :]
    source = token * value_stride_t * unit + head * value_stride_h * unit
    target = cell * value_rows_stride * rows_unit + head * value_rows_stride_h * rows_unit
    wanted = real & (column < value_dim)
    tl.store(
        value_rows + target[:, None] + column,
        tl.load(value + source[:, None] + column, mask=wanted),
        mask=wanted,
    )


def write(key: Tensor, value: Tensor, key_rows: Tensor, value_rows: Tensor, cells: Tensor) -> None:
    """Write key [T, Hk, D] and value [T, Hk, Dv] into rows `cells` [T] of [rows, Hk, D] and [rows, Hk, Dv].

    Tokens with cell 0 are padding and write nothing.
    """
    tokens, kv_heads, head_dim = key.shape
    value_dim = value.shape[2]
    pairs = tokens * kv_heads
    unit, rows_unit = stride_unit(key, value), stride_unit(key_rows, value_rows)
    _write_kernel[(ceil_div(pairs, PAIRS_PER_PROGRAM),)](
        key,
        value,
        key_rows,
        value_rows,
        cells,
        pairs,
        key.stride(0) // unit,
        key.stride(1) // unit,
        value.stride(0) // unit,
        value.stride(1) // unit,
        key_rows.stride(0) // rows_unit,
        key_rows.stride(1) // rows_unit,
        value_rows.stride(0) // rows_unit,
        value_rows.stride(1) // rows_unit,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=value_dim,
        block_d=power_of_two(head_dim),
        block_v=power_of_two(value_dim),
        unit=unit,
        rows_unit=rows_unit,
        block=PAIRS_PER_PROGRAM,
        num_warps=4,
    )
