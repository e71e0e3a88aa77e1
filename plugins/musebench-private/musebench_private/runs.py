"""Runs of neighbouring cells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Run:
    """Cells `first`..`first` + `length` - 1, for a sequence's positions from `base` on."""

    first: int
    length: int
    base: int = 0

    @property
    def end(self) -> int:
        return self.first + self.length


def first_fit(busy: np.ndarray, length: int) -> int | None:
    """The lowest cell from which `length` cells are not `busy` (bool, by cell); None where there is none."""
    edges = np.flatnonzero(np.diff(np.concatenate(([True], busy, [True])).astype(np.int8)))
    starts, ends = edges[::2], edges[1::2]
    fits = np.flatnonzero(ends - starts >= length)
    return int(starts[fits[0]]) if len(fits) else None


def neighbours(sources: np.ndarray, targets: np.ndarray) -> list[tuple[int, int, int]]:
    """Copies (source, target, count) of cells int32 [n], neighbours together; what stays is left out."""
    moved = sources != targets
    sources, targets = sources[moved], targets[moved]
    if not len(sources):
        return []
    breaks = np.flatnonzero((np.diff(sources) != 1) | (np.diff(targets) != 1)) + 1
    starts = np.concatenate(([0], breaks))
    counts = np.diff(np.concatenate((starts, [len(sources)])))
    return [
        (int(sources[start]), int(targets[start]), int(count))
        for start, count in zip(starts, counts, strict=True)
    ]
