"""The op `musebench::update_and_attend` on an NVIDIA GPU, as Triton kernels.

Grids, splits and block sizes follow from shapes alone, and nothing waits for the device: a launch can be
captured in a CUDA graph and replayed over other sequences of the same shapes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from musebench.core.errors import UnsupportedError
from musebench.kernels.reference import rotated
from musebench.kernels.triton_configs import decode_config, prefill_config
from musebench.kernels.triton_decode import decode as launch_decode
from musebench.kernels.triton_prefill import prefill as launch_prefill
from musebench.kernels.triton_write import write as launch_write

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def update_and_attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_rows: Tensor,
    value_rows: Tensor,
    cells: Tensor,
    positions: Tensor,
    slots: Tensor,
    starts: Tensor,
    sequence_slots: Tensor,
    table: Tensor,
    scale: float,
    window: int,
    softcap: float,
    sinks: Tensor | None,
    decode: bool,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
) -> Tensor:
    """Write this step's keys and values into their cells, then attend; -> [T, Hq, Dv], contiguous.

    `query` [T, Hq, D], `key` [T, Hk, D] and `value` [T, Hk, Dv] may have any strides. `key_rows`
    [rows, Hk, D] and `value_rows` [rows, Hk, Dv] are written; their last axis is contiguous. All five are of
    one dtype: bfloat16, float16 or float32 (then without tf32). int32: `cells`, `positions` and `slots` [T],
    `starts` [S + 1], `sequence_slots` [S], `table` [slots + 1, width], whose row of a slot holds the cells of
    its tokens by position, this step's included.

    Token t attends to cells table[slots[t], j] for j <= positions[t], with a `window` (0 for none) only where
    positions[t] - j < window. Its logit is scale * query . key, then softcap * tanh(logit / softcap) unless
    `softcap` is 0. `sinks` [Hq] adds one more logit a head to the softmax's denominator. Tokens with
    cell 0, and those from starts[S] on, are padding: they write nothing, attend to nothing, and their outputs
    are zero. What is not attended to is not loaded, so that NaN in it reaches nobody.

    `cos` and `sin` [T, D] ask for the rotary embedding of query and key as `musebench.kernels.op`
    defines it: inside the kernel where every sequence decodes, by torch before it elsewhere.

    `decode` says that token s is the one token of sequence s. Otherwise sequence s has tokens
    starts[s]..starts[s + 1] - 1. Raises `UnsupportedError` for another dtype.
    """
    dtype = query.dtype
    if dtype not in DTYPES or not dtype == key.dtype == value.dtype == key_rows.dtype == value_rows.dtype:
        given = ", ".join(str(tensor.dtype) for tensor in (query, key, value, key_rows, value_rows))
        raise UnsupportedError(
            f"the Triton attention kernels take one dtype of bfloat16, float16 and float32, and got {given}; "
            "convert them, or use the reference in torch"
        )
    tokens, heads, head_dim = query.shape
    value_dim = value.shape[2]
    out = torch.empty((tokens, heads, value_dim), dtype=dtype, device=query.device)
    if tokens == 0:
        return out
    query, key, value = (
        tensor if tensor.stride(2) == 1 else tensor.contiguous() for tensor in (query, key, value)
    )
    if cos is not None and sin is not None:
        cos, sin = cos.contiguous(), sin.contiguous()
        if not decode:
            query, key = rotated(query, cos, sin), rotated(key, cos, sin)
    widest = max(head_dim, value_dim)
    sequences = sequence_slots.shape[0]
    decoding = decode_config(dtype, widest, sequences * value.shape[1])
    step = (query, key, value, key_rows, value_rows, cells, positions, slots, starts, table)
    rules = (scale, window, softcap, sinks, out)
    if decode:
        launch_decode(*step, *rules, decoding, cos=cos, sin=sin)
        return out
    # A sequence of one token would leave most of a tile empty, and a tile's context is not split.
    mixed = sequences > 1
    launch_write(key, value, key_rows, value_rows, cells)
    launch_prefill(
        query, key_rows, value_rows, cells, positions, starts, sequence_slots, table, *rules,
        prefill_config(dtype, widest, tokens * heads), mixed,
    )  # fmt: skip
    if mixed:
        launch_decode(*step, *rules, decoding, mixed=True)
    return out
