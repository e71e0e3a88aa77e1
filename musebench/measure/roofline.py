"""The least time that steps could take on a device: the sum over their operations of the larger of bytes over
the copy bandwidth and operations over the matrix rate.

Counted are the bytes that had to move, weights and keys and values, and the operations of the products and of
attention; activations and everything small are free here, so that no real step beats its floor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from musebench.core.facts import ModelFacts


@dataclass(frozen=True)
class Ceilings:
    """What a device was measured to do at best: bytes read plus written a second by a large copy, and
    operations (two a multiply-add) a second by a large product of matrices of random numbers in `dtype`."""

    copy_bytes_per_second: float
    flops_per_second: float
    dtype: str


class Floors(NamedTuple):
    """For each step: `moved_bytes` int64 and `seconds` float64."""

    moved_bytes: np.ndarray
    seconds: np.ndarray


def floors(
    facts: ModelFacts,
    ceilings: Ceilings,
    tokens: np.ndarray,
    logit_rows: np.ndarray,
    attended_cells: np.ndarray,
    attended_pairs: np.ndarray,
    forwards: np.ndarray,
) -> Floors:
    """Of steps given by int arrays of one length: real `tokens`, `logit_rows` whose next token is wanted,
    `attended_cells` summed over the slices (the cells of a slice's sequence up to its last token),
    `attended_pairs` of query and cell, and the `forwards` that each was cut into, each of which reads the
    weights.

    A layer with a window is charged for no more cells than one sequence's window: less than it reads.
    Experts that a step reads are those expected if each token chose its own at random.
    """
    tokens, logit_rows = np.asarray(tokens, np.int64), np.asarray(logit_rows, np.int64)
    size, bandwidth, rate = facts.element_bytes, ceilings.copy_bytes_per_second, ceilings.flops_per_second
    moved = np.zeros(len(tokens))
    seconds = np.zeros(len(tokens))
    for weights, operations, rows in _products(facts, tokens, logit_rows):
        read = np.where(rows > 0, weights * size, 0.0) * forwards
        moved += read
        seconds += np.maximum(read / bandwidth, rows * operations / rate)
    windows = facts.windows or (None,) * facts.layers
    cell = 2 * facts.kv_heads * facts.head_dim * size
    for window in set(windows):
        layers = windows.count(window)
        cells = attended_cells if window is None else np.minimum(attended_cells, window)
        pairs = attended_pairs if window is None else np.minimum(attended_pairs, tokens)
        bytes_moved = (cells + tokens) * float(cell)  # this step's own are written, then read
        moved += layers * bytes_moved
        seconds += layers * np.maximum(
            bytes_moved / bandwidth, 4.0 * facts.heads * facts.head_dim * pairs / rate
        )
    return Floors(moved.astype(np.int64), seconds)


def _products(
    facts: ModelFacts, tokens: np.ndarray, logit_rows: np.ndarray
) -> list[tuple[np.ndarray | float, float, np.ndarray]]:
    """(weights read, operations a row, rows) of each kind of product, layers multiplied in."""
    hidden, layers = facts.hidden, facts.layers
    heads = (facts.heads + 2 * facts.kv_heads) * facts.head_dim
    matrices = 3 if facts.gated_mlp else 2
    parts: list[tuple[np.ndarray | float, float, np.ndarray]] = []
    for weights in (hidden * heads, facts.heads * facts.head_dim * hidden):
        parts.append((float(layers * weights), 2.0 * layers * weights, tokens))
    if facts.experts:
        expert = float(matrices * hidden * (facts.moe_intermediate or facts.intermediate))
        missed = (1.0 - facts.experts_per_token / facts.experts) ** tokens
        distinct = facts.experts * (1.0 - missed)
        parts.append((layers * expert * distinct, 2.0 * layers * expert * facts.experts_per_token, tokens))
    else:
        parts += _dense(hidden, facts.intermediate, matrices, layers, tokens)
    vocabulary = float(facts.vocab * hidden)
    parts.append((vocabulary, 2.0 * vocabulary, logit_rows))
    return parts


def _dense(
    hidden: int, intermediate: int, matrices: int, layers: int, tokens: np.ndarray
) -> list[tuple[np.ndarray | float, float, np.ndarray]]:
    into, out = float(layers * (matrices - 1) * hidden * intermediate), float(layers * hidden * intermediate)
    return [(into, 2.0 * into, tokens), (out, 2.0 * out, tokens)]
