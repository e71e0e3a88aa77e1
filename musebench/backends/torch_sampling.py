"""Next tokens on the device, a row at a time in effect: no row's token depends on another row.

Equal to `musebench.core.sampling.choose`: sums are of whole numbers, so neither their order nor the number of
rows changes a bit. Nothing here waits for the device, and all of it can be captured in a graph.
"""

from __future__ import annotations

import torch
from torch import Tensor

from musebench.core.batch import BatchFields
from musebench.core.sampling import FIRST_MULTIPLIER, GAMMA, SECOND_MULTIPLIER, SHIFTS, WEIGHT_BITS

MOST_LOGITS = 1 << 22
"""Logits drawn from at a time; each needs about 50 bytes of workspace."""


def greedy(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The lowest id among the largest logits of [R, V], int64 [R], and whether that is finite, bool [R].

    A NaN counts as the largest, so a row is not finite when it holds a NaN or +infinity, or -infinity alone.
    """
    tokens = logits.argmax(-1)
    return tokens, torch.isfinite(logits.gather(1, tokens[:, None])[:, 0])


def margins(logits: Tensor) -> Tensor:
    """Difference of the two largest logits of each row, float32 [R]."""
    largest = logits.float().topk(2, -1).values
    return largest[:, 0] - largest[:, 1]


def uniform(seed_low: Tensor, seed_high: Tensor, positions: Tensor) -> Tensor:
    """`musebench.core.sampling.uniform` of each row, float64 [R], from int32 seed halves and positions."""
    word = (seed_high.long() << 32) | (seed_low.long() & 0xFFFFFFFF)
    word = word + (positions.long() + 1) * _signed(GAMMA)
    word = (word ^ _shifted(word, SHIFTS[0])) * _signed(FIRST_MULTIPLIER)
    word = (word ^ _shifted(word, SHIFTS[1])) * _signed(SECOND_MULTIPLIER)
    word = word ^ _shifted(word, SHIFTS[2])
    return _shifted(word, 11).double() * 2.0**-53


def choose(logits: Tensor, fields: BatchFields) -> Tensor:
    """Next tokens of logits [R, V], int64 [R], by the sampling fields of a batch whose layout is sampled.

    Rows with temperature 0 take the lowest id among the largest logits. A row whose logits are not finite
    gets some valid id.
    """
    numbers = uniform(fields.seed_low, fields.seed_high, fields.sample_positions)
    temperature = fields.temperature.view(torch.float32).double()
    top_p = fields.top_p.view(torch.float32).double()
    count = max(1, MOST_LOGITS // logits.shape[1])
    parts = [
        _choose(logits[at], temperature[at], fields.top_k[at], top_p[at], numbers[at])
        for at in (slice(start, start + count) for start in range(0, logits.shape[0], count))
    ]
    return torch.cat(parts) if parts else logits.new_zeros(0, dtype=torch.int64)


def _choose(logits: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor, numbers: Tensor) -> Tensor:
    # Adding 0 turns -0 into 0: some sorts tell them apart.
    falling, order = torch.sort(logits.float() + 0.0, dim=-1, descending=True, stable=True)
    falling = falling.double()
    drawn = temperature > 0
    divisor = torch.where(drawn, temperature, 1.0)[:, None]
    weights = (torch.exp((falling - falling[:, :1]) / divisor) * 2.0**WEIGHT_BITS).long()
    ranks = torch.arange(logits.shape[1], device=logits.device)
    outside = (top_k[:, None] > 0) & (ranks >= top_k[:, None])
    weights = weights.masked_fill(outside, 0)
    sums = weights.cumsum(-1)
    reached = (sums - weights).double() >= (top_p * sums[:, -1].double())[:, None]
    weights = weights.masked_fill(reached, 0)
    sums = weights.cumsum(-1)
    total = sums[:, -1]
    target = torch.minimum((numbers * total.double()).long(), total - 1)
    place = (sums <= target[:, None]).sum(-1).clamp(max=logits.shape[1] - 1)
    place = torch.where(drawn, place, 0)
    return order.gather(1, place[:, None])[:, 0]


def _signed(word: int) -> int:
    """The int64 with the bits of an unsigned 64-bit word; int64 products wrap, as the hash wants."""
    return word - (1 << 64) if word >= 1 << 63 else word


def _shifted(word: Tensor, count: int) -> Tensor:
    """Shifted right with zeros coming in, which int64 does not do by itself."""
    return (word >> count) & ((1 << (64 - count)) - 1)
