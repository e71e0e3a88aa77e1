"""The steps of a run as columns of numbers, however many steps there are.

Times take eight bytes each. Counts are kept by segment: steps in a row that differ in nothing but cells, of
which each has the same number more than the one before.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, overload

import numpy as np


class StepCounts(NamedTuple):
    """What is counted of a step, see `StepRecord`."""

    decode_tokens: int
    prefill_tokens: int
    padded_tokens: int
    sequences: int
    rows: int
    in_use: int
    generation: int
    waiting: int
    running: int
    attended_cells: int
    attended_pairs: int
    logit_rows: int


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
COUNTS = StepCounts._fields
RISING = ("in_use", "attended_cells", "attended_pairs")
"""Counts that rise within a segment."""

_counts_of = attrgetter(*COUNTS)
_WIDTH = 3 + len(COUNTS)  # of a segment: steps, mix of programs, rise, counts of its first step


class StepLog(Sequence[StepRecord]):
    """Reads as a list of `StepRecord`s; `column` gives all values of one field at once."""

    def __init__(self) -> None:
        self._seconds = {name: array("d") for name in SECONDS}
        self._start, self._end, self._device, self._host = self._seconds.values()
        self._segments = array("q")
        self._firsts = array("q")  # row of each segment's first step
        self._mixes: list[dict[str, int]] = []  # of programs, each once
        self._places: dict[tuple[tuple[str, int], ...], int] = {}

    def __len__(self) -> int:
        return len(self._start)

    def append(self, record: StepRecord) -> None:
        self.add(
            record.start, record.end, record.device_seconds, record.host_seconds, record.programs,
            StepCounts._make(_counts_of(record)),
        )  # fmt: skip

    def add(
        self,
        start: float,
        end: float,
        device_seconds: float | None,
        host_seconds: float,
        programs: dict[str, int],
        counts: StepCounts,
    ) -> None:
        """One step, see `StepRecord`."""
        self._segment(1, programs, 0, counts)
        self._start.append(start)
        self._end.append(end)
        self._device.append(np.nan if device_seconds is None else device_seconds)
        self._host.append(host_seconds)

    def extend(
        self,
        starts: list[float],
        ends: list[float],
        device_seconds: list[float],
        host_seconds: list[float],
        programs: dict[str, int],
        counts: StepCounts,
        rise: int,
    ) -> None:
        """Steps of one mix of programs with the `counts` of the first of them, which rise by `rise`."""
        if not starts:
            return
        self._segment(len(starts), programs, rise, counts)
        self._start.fromlist(starts)
        self._end.fromlist(ends)
        self._device.fromlist(device_seconds)
        self._host.fromlist(host_seconds)

    def _segment(self, steps: int, programs: dict[str, int], rise: int, counts: StepCounts) -> None:
        self._firsts.append(len(self._start))
        self._segments.fromlist([steps, self._place(programs), rise, *counts])

    def _place(self, programs: dict[str, int]) -> int:
        key = tuple(programs.items())
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self._mixes)
            self._mixes.append(dict(programs))
        return place

    def column(self, name: str) -> np.ndarray:
        """All values of one field: float64 (missing ones NaN) or int64, one a step; a copy."""
        if name in self._seconds:
            return np.array(self._seconds[name], np.float64)
        steps, values = self._of_segments(0), self._of_segments(3 + COUNTS.index(name))
        made = np.repeat(values, steps)
        if name in RISING:
            firsts = np.repeat(np.array(self._firsts, np.int64), steps)
            made += (np.arange(len(self)) - firsts) * np.repeat(self._of_segments(2), steps)
        return made

    def _of_segments(self, place: int) -> np.ndarray:
        return np.array(self._segments[place::_WIDTH], np.int64)

    def program_columns(self) -> dict[str, np.ndarray]:
        """Forwards by program, int64, one value a step; in order of name."""
        mix = np.repeat(self._of_segments(1), self._of_segments(0))
        names = sorted({name for programs in self._mixes for name in programs})
        counts = {name: np.array([programs.get(name, 0) for programs in self._mixes]) for name in names}
        return {name: counts[name][mix] for name in names}

    def since(self, first: int) -> StepLog:
        """The steps from row `first` on."""
        made = StepLog()
        if first >= len(self):
            return made
        for name in SECONDS:
            made._seconds[name].extend(self._seconds[name][first:])
        made._mixes, made._places = list(self._mixes), dict(self._places)
        place = bisect_right(self._firsts, first) - 1
        steps, mix, rise, *_ = self._segments[place * _WIDTH : (place + 1) * _WIDTH]
        left = steps - (first - self._firsts[place])
        made._firsts.append(0)
        made._segments.extend((left, mix, rise, *self._counts(first)))
        made._segments.extend(self._segments[(place + 1) * _WIDTH :])
        made._firsts.extend(array("q", [row - first for row in self._firsts[place + 1 :]]))
        return made

    def _counts(self, row: int) -> StepCounts:
        place = bisect_right(self._firsts, row) - 1
        rise = self._segments[place * _WIDTH + 2] * (row - self._firsts[place])
        counts = StepCounts._make(self._segments[place * _WIDTH + 3 : (place + 1) * _WIDTH])
        return counts._replace(**{name: getattr(counts, name) + rise for name in RISING}) if rise else counts

    @overload
    def __getitem__(self, index: int) -> StepRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[StepRecord]: ...
    def __getitem__(self, index: int | slice) -> StepRecord | list[StepRecord]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        seconds: dict[str, Any] = {name: column[index] for name, column in self._seconds.items()}
        if seconds["device_seconds"] != seconds["device_seconds"]:
            seconds["device_seconds"] = None
        row = index % len(self)
        mix = self._segments[(bisect_right(self._firsts, row) - 1) * _WIDTH + 1]
        return StepRecord(**seconds, **self._counts(row)._asdict(), programs=dict(self._mixes[mix]))

    def __iter__(self) -> Iterator[StepRecord]:
        return (self[place] for place in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]
