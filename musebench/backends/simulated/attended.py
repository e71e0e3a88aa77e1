"""How many cells a step's queries attend to: exact whole numbers, for many sequences and steps at once."""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from typing import NamedTuple

import numpy as np


class Attended(NamedTuple):
    """Cells that single decodes read, and what slices of more tokens do: how many there are, the cells that
    each reads once, and their pairs of query and cell."""

    decode_cells: int
    prefills: int
    prefill_cells: int
    pairs: int


def attended(queries: np.ndarray, contexts: np.ndarray, window: int | None) -> Attended:
    """What one layer with this window attends to; `queries` and `contexts` int64 [slices], see `StepShape`.

    A query at position p attends to min(p + 1, window) cells; a slice's queries are the last of its context.
    """
    decoding = queries == 1
    prefills = len(queries) - int(np.count_nonzero(decoding))
    seen = contexts if window is None else np.minimum(contexts, window)
    if prefills == 0:
        return Attended(int(seen.sum()), 0, 0, 0)
    decode_cells = int(seen[decoding].sum())
    several = ~decoding
    count, last = queries[several], contexts[several]
    cells = last if window is None else np.minimum(last, window + count - 1)
    pairs = _up_to(last, window) - _up_to(last - count, window)
    return Attended(decode_cells, prefills, int(cells.sum()), int(pairs.sum()))


def _up_to(position: np.ndarray, window: int | None) -> np.ndarray:
    """Pairs of a sequence's first `position` queries: the sum of min(i, window) over i = 1..position."""
    inside = position if window is None else np.minimum(position, window)
    pairs = inside * (inside + 1) // 2
    return pairs if window is None else pairs + (position - inside) * window


def decode_cells_over(contexts: np.ndarray, steps: int, window: int | None) -> np.ndarray:
    """`Attended.decode_cells` of each of `steps` steps in which every sequence decodes one token more, int64
    [steps]: the sum over sequences of min(context + step, window)."""
    count = len(contexts)
    if window is None:
        return int(contexts.sum()) + count * np.arange(steps, dtype=np.int64)
    first = int(np.minimum(contexts, window).sum())
    # A sequence still grows in its first window - context steps.
    left = np.clip(window - contexts, 0, steps)
    stopped = np.cumsum(np.bincount(left, minlength=steps + 1))
    grown = np.concatenate(([0], np.cumsum(count - stopped[: steps - 1]))) if steps else np.zeros(0, np.int64)
    return (first + grown).astype(np.int64)


def window_groups(windows: Ordered[int | None], layers: int) -> list[tuple[int | None, int]]:
    """Windows and how many layers have each; a model that names none has no window."""
    counts: dict[int | None, int] = {}
    for window in windows or (None,) * layers:
        counts[window] = counts.get(window, 0) + 1
    return list(counts.items())
