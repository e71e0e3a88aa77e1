"""A column of numbers that reads as a list and takes eight bytes a value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

CHUNK = 1 << 16


class Column(Sequence[Any]):
    """Over a numpy array without NaN; gives Python's own numbers. Slices are lists."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, place: Any) -> Any:
        made = self.array[place]
        return made.tolist() if isinstance(place, slice) else made.item()

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self.array), CHUNK):
            yield from self.array[start : start + CHUNK].tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.array, dtype) if copy else np.asarray(self.array, dtype)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Column):
            return bool(np.array_equal(self.array, other.array))
        return isinstance(other, list) and len(other) == len(self) and self.array.tolist() == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.array.tolist())

    def json(self) -> str:
        """As JSON text, like `json.dumps` of the list."""
        parts = (
            repr(self.array[start : start + CHUNK].tolist())[1:-1].replace(", ", ",")
            for start in range(0, len(self.array), CHUNK)
        )
        return f"[{','.join(parts)}]"
