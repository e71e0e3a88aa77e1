"""The loops that all formats share: records in, rows out, and what happens to a bad one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from musebench.core.errors import InputError
from musebench.workload.traces.head import csv_header, json_keys
from musebench.workload.traces.lines import csv_records, json_records
from musebench.workload.traces.row import BadRow, RowOptions, TraceRow, listed

Record = tuple[int | float | None, int, int, list[int] | None, Mapping[str, object] | None]
"""Time in the format's own unit, prompt tokens, output tokens, prompt ids, tags."""


class Reader:
    """Base of the built-in readers: counts and refuses bad rows, and lets times start at the first row."""

    Options: ClassVar[type[RowOptions]] = RowOptions

    fallback: ClassVar[bool] = False
    """Asked only when no other format recognises a file."""

    units_per_second: float = 1
    """What the format's times are counted in: 1000 for milliseconds."""

    def __init__(self, options: RowOptions | None = None) -> None:
        self.skip_bad_rows = (options or RowOptions()).skip_bad_rows
        self.left_out: dict[str, int] = {}
        self.first_bad: str | None = None

    def _rows(
        self, path: Path, records: Iterator[tuple[int, Any]], convert: Callable[[Any], Record | str]
    ) -> Iterator[TraceRow]:
        """`convert` makes a record, raises `BadRow`, or gives the reason why the row is left out."""
        first: int | float | None = None
        for row, record in records:
            try:
                made = convert(record)
            except BadRow as error:
                self._bad(f"{path} row {row}{error}")
                continue
            if isinstance(made, str):
                self.left_out[made] = self.left_out.get(made, 0) + 1
                continue
            at, prompt_tokens, output_tokens, prompt_ids, tags = made
            seconds = None
            if at is not None:
                first = at if first is None else first
                seconds = (at - first) / self.units_per_second
            if tags:
                yield TraceRow(seconds, prompt_tokens, output_tokens, prompt_ids, tags, row)
            else:
                yield TraceRow(seconds, prompt_tokens, output_tokens, prompt_ids, row=row)

    def _start(self) -> None:
        self.left_out, self.first_bad = {}, None

    def _bad(self, problem: str) -> None:
        if not self.skip_bad_rows:
            raise InputError(problem)
        self.first_bad = self.first_bad or problem
        self.left_out["bad rows"] = self.left_out.get("bad rows", 0) + 1


class CsvReader(Reader):
    """A CSV format with a header; columns are found by their names."""

    columns: ClassVar[tuple[str, ...]] = ()
    """Names that the header must have, as the format spells them; small and capital letters are alike."""

    def recognises(self, head: bytes, filename: str) -> bool:
        return {name.lower() for name in self.columns} <= {name.lower() for name in csv_header(head)}

    def read(self, path: Path) -> Iterator[TraceRow]:
        self._start()
        records = csv_records(path)
        _, header = next(records, (1, None))
        if header is None:
            raise InputError(f"{path} is empty; a header with {', '.join(self.columns)} is wanted")
        places = self.places(path, header)
        width = len(header)
        convert = self.converter(places)

        def checked(fields: list[str]) -> Record | str:
            if len(fields) != width:
                raise BadRow("", f"{len(fields)} columns; the header has {width}")
            return convert(fields)

        yield from self._rows(path, records, checked)

    def places(self, path: Path, header: list[str]) -> dict[str, int]:
        """The place of each column by its name in small letters. Raises InputError for a missing one."""
        places: dict[str, int] = {}
        for place, name in enumerate(header):
            if places.setdefault(name.strip().lower(), place) != place and name.strip():
                raise InputError(f"{path} row 1 has the column {name.strip()!r} twice")
        for name in self.columns:
            if name.lower() not in places:
                raise InputError(f"{path} row 1: there is no column {name!r}; found: {listed(header)}")
        return places

    def converter(self, places: Mapping[str, int]) -> Callable[[list[str]], Record | str]:
        """A function from the fields of a row to a record."""
        raise NotImplementedError


class JsonReader(Reader):
    """A JSONL format: one object a line."""

    keys: ClassVar[tuple[str, ...]] = ()
    """Keys that each line must have."""

    def recognises(self, head: bytes, filename: str) -> bool:
        return set(self.keys) <= json_keys(head)

    def read(self, path: Path) -> Iterator[TraceRow]:
        self._start()
        empty = True

        def records() -> Iterator[tuple[int, dict[str, Any] | str]]:
            nonlocal empty
            for record in json_records(path):
                empty = False
                yield record

        yield from self._rows(path, records(), self._checked)
        if empty:
            raise InputError(f"{path} is empty; one JSON object a line with {', '.join(self.keys)} is wanted")

    def _checked(self, value: dict[str, Any] | str) -> Record | str:
        if isinstance(value, str):
            raise BadRow("", value)
        for key in self.keys:
            if key not in value:
                raise BadRow(key, f"missing; the row has {listed(value) or 'no keys'}")
        return self.convert(value)

    def convert(self, value: dict[str, Any]) -> Record | str:
        """A record from the object of one line."""
        raise NotImplementedError
