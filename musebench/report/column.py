"""Columns of numbers that read as lists and take eight bytes a value, or less."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

CHUNK = 1 << 16

NARROW = (np.int8, np.int16, np.int32, np.int64)


class Column(Sequence[Any]):
    """Over a numpy array without NaN, whole numbers in as few bytes as they need; gives Python's own numbers.
    Slices are lists, and as an array whole numbers are int64."""

    __slots__ = ("array",)

    array: np.ndarray

    def __init__(self, array: np.ndarray) -> None:
        self.array = _narrow(array) if array.dtype.kind == "i" else array

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, place: Any) -> Any:
        made = self.array[place]
        return made.tolist() if isinstance(place, slice) else made.item()

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), CHUNK):
            yield from self[start : start + CHUNK]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if dtype is None and self.array.dtype.kind == "i":
            dtype = np.int64  # sums of narrow ones would overflow
        return np.array(self.array, dtype) if copy else np.asarray(self.array, dtype)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Column):
            return bool(np.array_equal(self.array, other.array))
        return isinstance(other, list) and len(other) == len(self) and self.array.tolist() == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.array.tolist())

    def at(self, places: np.ndarray) -> np.ndarray:
        """The values at these places, float64 or int64."""
        made: np.ndarray = self.array[places]
        return made.astype(np.int64) if made.dtype.kind == "i" else made

    def falls(self) -> np.ndarray:
        """Places whose value is below the one before, ascending, int64."""
        return np.flatnonzero(self.array[1:] < self.array[:-1]) + 1

    def bounds(self) -> tuple[Any, Any]:
        """The lowest and the highest value; of a column that has one."""
        return self.array.min().item(), self.array.max().item()

    def json(self) -> str:
        """As JSON text, like `json.dumps` of the list."""
        parts = (
            repr(self[start : start + CHUNK])[1:-1].replace(", ", ",") for start in range(0, len(self), CHUNK)
        )
        return f"[{','.join(parts)}]"


def _narrow(array: np.ndarray) -> np.ndarray:
    if not len(array):
        return array
    low, high = array.min(), array.max()
    fits = (kind for kind in NARROW if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)
    return array.astype(next(fits), copy=False)


class Runs(Column):
    """Whole numbers that mostly count up by one, as runs: `firsts` and how many `counts` from each, both
    int64 [runs], no count below 1. `array` is worked out each time that it is asked for."""

    __slots__ = ("_ends", "counts", "firsts")

    def __init__(self, firsts: np.ndarray, counts: np.ndarray) -> None:
        self.firsts = firsts
        self.counts = counts
        self._ends = np.cumsum(counts, dtype=np.int64)

    @property
    def array(self) -> np.ndarray:  # type: ignore[override]
        return self.at(np.arange(len(self)))

    @property
    def starts(self) -> np.ndarray:
        """The place of each run's first value, int64."""
        made: np.ndarray = self._ends - self.counts
        return made

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return self.at(np.arange(*place.indices(len(self)))).tolist()
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        return self.at(np.array([place % len(self)])).item()

    def at(self, places: np.ndarray) -> np.ndarray:
        runs = np.searchsorted(self._ends, places, side="right")
        made: np.ndarray = self.firsts[runs] + (places - self._ends[runs] + self.counts[runs])
        return made

    def falls(self) -> np.ndarray:
        lasts = self.firsts + self.counts - 1
        made: np.ndarray = self.starts[1:][self.firsts[1:] < lasts[:-1]]
        return made

    def bounds(self) -> tuple[int, int]:
        return int(self.firsts.min()), int((self.firsts + self.counts - 1).max())


def column_of(values: Sequence[Any]) -> Column:
    """Numbers as a column; those that are one as they are."""
    return values if isinstance(values, Column) else Column(np.asarray(values))


def total_of(values: Sequence[int]) -> int:
    """The sum, of whole numbers however large."""
    return int(values.array.sum()) if isinstance(values, Column) else sum(values)


def bounds_of(values: Sequence[Any]) -> tuple[Any, Any]:
    """The lowest and the highest of some numbers."""
    return values.bounds() if isinstance(values, Column) else (min(values), max(values))
