"""The running softmax that the attention kernels share (Milakov and Gimelshein, arXiv 1805.02867).

A row of it is `top` (the largest logit so far), `total` (the sum of 2^(logit - top)) and `mix` (the same
sum with each term times its value row), all float32. Logits are kept in units of log2(e), so that 2^x
serves for e^x. The functions with `triton.jit` run inside kernels.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = 1.4426950408889634


@triton.jit
def to_logits(
    products: tl.tensor, inner_scale: tl.tensor, outer_scale: tl.tensor, capped: tl.constexpr
) -> tl.tensor:
    """Logits, in units of log2(e), of query-key products; `logit_scales` makes the two factors."""
    if capped:
        # tanh(x) = 1 - 2 / (1 + e^2x), which is right at both infinities.
        return outer_scale * (1.0 - 2.0 / (1.0 + tl.exp2(products * inner_scale)))
    else:  # noqa: RET505 (a compiled kernel takes one branch of the two, so it needs both)
        return products * inner_scale


@triton.jit
def safe_top(top: tl.tensor) -> tl.tensor:
    """`top`, but 0 where no logit was met yet: subtracting minus infinity from itself would give NaN."""
    return tl.where(top == float("-inf"), 0.0, top)


@triton.jit
def fold_logits(mix: tl.tensor, top: tl.tensor, total: tl.tensor, logits: tl.tensor) -> tl.tensor:
    """Let a block of logits [M, N] into the sums; -> weights [M, N], then mix, top and total.

    The caller adds weights times values to mix.
    """
    new_top = tl.maximum(top, tl.max(logits, 1))
    base = safe_top(new_top)
    fade = tl.exp2(top - base)
    weights = tl.exp2(logits - base[:, None])
    return weights, mix * fade[:, None], new_top, total * fade + tl.sum(weights, 1)


@triton.jit
def fold_sink(mix: tl.tensor, top: tl.tensor, total: tl.tensor, sink: tl.tensor) -> tl.tensor:
    """Let one more logit a row, which has no value, into the denominator [M]; -> mix and total."""
    logit = sink.to(tl.float32) * 1.4426950408889634
    base = safe_top(tl.maximum(top, logit))
    fade = tl.exp2(top - base)
    return mix * fade[:, None], total * fade + tl.exp2(logit - base)


def logit_scales(scale: float, softcap: float) -> tuple[float, float]:
    """`inner_scale` and `outer_scale` for logit = softcap * tanh(scale * product / softcap).

    A softcap of 0 means none: logit = scale * product.
    """
    if softcap:
        return 2.0 * LOG2_E * scale / softcap, LOG2_E * softcap
    return LOG2_E * scale, 1.0
