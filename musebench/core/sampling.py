"""The next token from its logits, in numpy: what every backend's own sampling must equal.

The random number of a token is a hash of (seed, position) alone, so that neither the batch nor the executor
changes it. Drawing is done in whole numbers: probabilities become weights of 32 bits relative to the largest,
whose sums are exact in any order, on any device, beside any neighbour.
"""

from __future__ import annotations

import numpy as np

from musebench.core.request import Sampling

GAMMA = 0x9E3779B97F4A7C15
FIRST_MULTIPLIER = 0xBF58476D1CE4E5B9
SECOND_MULTIPLIER = 0x94D049BB133111EB
SHIFTS = (30, 27, 31)
WEIGHT_BITS = 32
"""A token less likely than 2**-32 of the likeliest has weight 0 and is never drawn."""

_WORD = (1 << 64) - 1


def hashed(seed: int, position: int) -> int:
    """64 random bits: the output number `position` (from 0) of SplitMix64 started at `seed`.

    SplitMix64 is the generator of Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
    OOPSLA 2014; its n-th output is a mix of seed + (n + 1) x gamma, so none before it need be made.
    """
    word = (seed + (position + 1) * GAMMA) & _WORD
    word = ((word ^ (word >> SHIFTS[0])) * FIRST_MULTIPLIER) & _WORD
    word = ((word ^ (word >> SHIFTS[1])) * SECOND_MULTIPLIER) & _WORD
    return word ^ (word >> SHIFTS[2])


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) from the upper 53 of the hashed bits."""
    return (hashed(seed, position) >> 11) * 2.0**-53


def seed_words(seed: int) -> tuple[int, int]:
    """The lower and upper 32 bits of a seed as signed int32, as a packed batch carries them."""
    low, high = seed & 0xFFFFFFFF, seed >> 32
    return low - (1 << 32) if low >= 1 << 31 else low, high


def choose(logits: np.ndarray, sampling: Sampling, position: int) -> int:
    """The token id that `sampling` takes from finite `logits` [vocabulary] for the given position.

    Temperature 0: the lowest id among the largest logits. Else, with the ids in falling order of their logits
    (rising id where equal): the first `top_k`, of these the fewest whose weight reaches `top_p` of the sum,
    and of these the one in whose share of the sum the random number falls. Temperature and `top_p` are taken
    as float32, as a packed batch carries them.
    """
    logits = np.asarray(logits, np.float64)
    if sampling.greedy:
        return int(np.argmax(logits))
    order = np.argsort(-logits, kind="stable")
    falling = logits[order]
    temperature, top_p = float(np.float32(sampling.temperature)), float(np.float32(sampling.top_p))
    weights = np.floor(np.exp((falling - falling[0]) / temperature) * 2.0**WEIGHT_BITS).astype(np.int64)
    if sampling.top_k:
        weights[sampling.top_k :] = 0
    sums = np.cumsum(weights)
    weights[(sums - weights).astype(np.float64) >= top_p * float(sums[-1])] = 0
    sums = np.cumsum(weights)
    total = int(sums[-1])
    target = min(int(uniform(sampling.seed, position) * total), total - 1)
    return int(order[np.searchsorted(sums, target, side="right")])
