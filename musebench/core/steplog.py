"""The steps of a run as columns: eight bytes a number, however many steps there are."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, overload

import numpy as np


@dataclass(slots=True)
class StepRecord:
    """One step. Seconds on the run's clock; `end` is when its tokens were known to the host.

    `attended_cells` sums over its slices the cells of the slice's sequence up to its last token,
    `attended_pairs` the pairs of query and cell; `logit_rows` counts next tokens.
    """

    start: float
    end: float
    device_seconds: float | None
    host_seconds: float
    decode_tokens: int
    prefill_tokens: int
    padded_tokens: int
    sequences: int
    programs: dict[str, int]
    rows: int
    in_use: int
    generation: int
    waiting: int
    running: int
    attended_cells: int
    attended_pairs: int
    logit_rows: int


SECONDS = ("start", "end", "device_seconds", "host_seconds")
COUNTS = (
    "decode_tokens", "prefill_tokens", "padded_tokens", "sequences", "rows", "in_use", "generation",
    "waiting", "running", "attended_cells", "attended_pairs", "logit_rows",
)  # fmt: skip


class StepLog(Sequence[StepRecord]):
    """Reads as a list of `StepRecord`s; `column` gives all values of one field at once."""

    def __init__(self) -> None:
        self._columns: dict[str, Any] = {name: array("d") for name in SECONDS}
        self._columns |= {name: array("q") for name in COUNTS}
        self._mixes: list[dict[str, int]] = []  # of programs, each once
        self._mix = array("q")
        self._places: dict[tuple[tuple[str, int], ...], int] = {}
        self._appends = [(attrgetter(name), self._columns[name].append) for name in COUNTS]

    def __len__(self) -> int:
        return len(self._mix)

    def append(self, record: StepRecord) -> None:
        columns = self._columns
        columns["start"].append(record.start)
        columns["end"].append(record.end)
        columns["host_seconds"].append(record.host_seconds)
        seconds = record.device_seconds
        columns["device_seconds"].append(np.nan if seconds is None else seconds)
        for get, append in self._appends:
            append(get(record))
        self._mix.append(self._place(record.programs))

    def extend(
        self, programs: dict[str, int], seconds: dict[str, list[float]], counts: dict[str, int | list[int]]
    ) -> None:
        """Steps of one mix of programs: lists of `SECONDS`, and each of `COUNTS` as a list or as the one
        value of all of them."""
        number = len(seconds["start"])
        for name in SECONDS:
            self._columns[name].extend(seconds[name])
        for name in COUNTS:
            value = counts[name]
            self._columns[name].extend(value if isinstance(value, list) else [value] * number)
        self._mix.extend([self._place(programs)] * number)

    def _place(self, programs: dict[str, int]) -> int:
        key = tuple(programs.items())
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self._mixes)
            self._mixes.append(dict(programs))
        return place

    def column(self, name: str) -> np.ndarray:
        """All values of one field: float64 (missing ones NaN) or int64, one a step; a copy."""
        column = self._columns[name]
        return np.array(column, np.float64 if column.typecode == "d" else np.int64)

    def program_columns(self) -> dict[str, np.ndarray]:
        """Forwards by program, int64, one value a step; in order of name."""
        mix = np.array(self._mix, np.int64)
        names = sorted({name for programs in self._mixes for name in programs})
        counts = {name: np.array([programs.get(name, 0) for programs in self._mixes]) for name in names}
        return {name: counts[name][mix] for name in names}

    def since(self, first: int) -> StepLog:
        """The steps from row `first` on."""
        made = StepLog()
        for place in range(first, len(self)):
            made.append(self[place])
        return made

    @overload
    def __getitem__(self, index: int) -> StepRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[StepRecord]: ...
    def __getitem__(self, index: int | slice) -> StepRecord | list[StepRecord]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        values = {name: column[index] for name, column in self._columns.items()}
        seconds = values.pop("device_seconds")
        return StepRecord(
            **values,
            device_seconds=None if seconds != seconds else seconds,
            programs=dict(self._mixes[self._mix[index]]),
        )

    def __iter__(self) -> Iterator[StepRecord]:
        return (self[place] for place in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]
