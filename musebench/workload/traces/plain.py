"""Plain CSV and JSONL: named columns for arrival, prompt tokens and output tokens, in any order.

A column is found by its own name or an alias (`ALIASES`); small and capital letters, blanks, hyphens and
underscores are alike. `arrival` may be left out; `arrival_ms`, `arrival_us` and `arrival_ns` say their unit.
All other columns become tags.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from musebench.core.errors import InputError
from musebench.core.options import option
from musebench.workload.traces.head import csv_header, json_keys
from musebench.workload.traces.numbers import ids, time, tokens
from musebench.workload.traces.reader import CsvReader, JsonReader, Record
from musebench.workload.traces.row import BadRow, RowOptions, listed

ALIASES: dict[str, tuple[str, ...]] = {
    "arrival": (
        "arrival", "arrival_seconds", "arrival_s", "arrival_time", "arrival_timestamp", "arrived_at",
        "timestamp", "time", "arrival_ms", "arrival_us", "arrival_ns",
    ),
    "prompt_tokens": (
        "prompt_tokens", "input_tokens", "prompt_length", "input_length", "prompt_len", "input_len",
        "context_tokens", "prefill_tokens", "request_tokens", "prompt_size",
    ),
    "output_tokens": (
        "output_tokens", "generated_tokens", "completion_tokens", "response_tokens", "decode_tokens",
        "output_length", "output_len", "max_new_tokens", "max_tokens", "output_size",
    ),
    "prompt_ids": ("prompt_ids", "prompt_token_ids", "input_ids"),
}  # fmt: skip
"""Names that a column may have; JSONL may have prompt_ids, a list of token ids, too."""

UNITS = {"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}


@dataclass(frozen=True)
class PlainOptions(RowOptions):
    """Names of columns that no alias covers, and the unit of times."""

    arrival: str = option("", "name of the column of arrival times; empty: by alias")
    prompt_tokens: str = option("", "name of the column of prompt tokens; empty: by alias")
    output_tokens: str = option("", "name of the column of output tokens; empty: by alias")
    unit: str = option(
        "", "unit of times: s, ms, us or ns; empty: by the column's name, or s", choices=("", *UNITS)
    )


class _Names:
    """Finds the columns that matter among a file's names."""

    def __init__(self, options: PlainOptions, names: Iterable[str]) -> None:
        self.names = list(names)
        self.options = options
        self.problem = ""
        self.arrival = self._find("arrival")
        self.prompt_tokens = self._find("prompt_tokens")
        self.output_tokens = self._find("output_tokens")
        self.prompt_ids = self._find("prompt_ids")
        for what in ("prompt_tokens", "output_tokens"):
            if getattr(self, what) is None and not (what == "prompt_tokens" and self.prompt_ids):
                self.problem = (
                    self.problem
                    or f"there is no column {what!r}, nor an alias of it; found: {listed(self.names)}"
                )

    @property
    def used(self) -> set[str | None]:
        return {self.arrival, self.prompt_tokens, self.output_tokens, self.prompt_ids}

    @property
    def units_per_second(self) -> float:
        ending = _plain_name(self.arrival or "").rpartition("_")[2]
        return UNITS[self.options.unit or (ending if ending in UNITS else "s")]

    def _find(self, what: str) -> str | None:
        given = getattr(self.options, what, "")
        wanted = (given,) if given else ALIASES[what]
        plain = {_plain_name(name) for name in wanted}
        matching = [name for name in self.names if _plain_name(name) in plain]
        if len(matching) > 1:
            self.problem = self.problem or (
                f"the columns {' and '.join(map(repr, matching))} both say {what}; name one with the option "
                f"{what}"
            )
        if given and not matching:
            self.problem = self.problem or f"there is no column {given!r}, which option {what} names"
        return matching[0] if matching else None


def _plain_name(name: str) -> str:
    return re.sub(r"[\s_-]+", "_", name.strip().lower())


class PlainCsvReader(CsvReader):
    """One request a row; other columns become tags, as text."""

    Options = PlainOptions
    fallback = True
    columns = ("prompt_tokens", "output_tokens")

    def __init__(self, options: PlainOptions | None = None) -> None:
        super().__init__(options)
        self._options = options or PlainOptions()

    def recognises(self, head: bytes, filename: str) -> bool:
        names = csv_header(head)
        found = _Names(self._options, names)
        return bool(names) and (found.prompt_tokens is not None or found.output_tokens is not None)

    def places(self, path: Path, header: list[str]) -> dict[str, int]:
        found = _Names(self._options, header)
        if found.prompt_tokens is None and not found.problem:
            found.problem = "there is no column 'prompt_tokens', nor an alias of it"
        if found.problem:
            raise InputError(f"{path} row 1: {found.problem}")
        self.units_per_second = found.units_per_second
        self._found = found
        return {name: place for place, name in enumerate(header)}

    def converter(self, places: Mapping[str, int]) -> Callable[[list[str]], Record | str]:
        found = self._found
        assert found.prompt_tokens is not None
        assert found.output_tokens is not None
        at = None if found.arrival is None else places[found.arrival]
        prompt, output = places[found.prompt_tokens], places[found.output_tokens]
        kept = [(place, name.strip()) for name, place in places.items() if name not in found.used]

        def convert(fields: list[str]) -> Record:
            return (
                None if at is None else time(fields[at], found.arrival or ""),
                tokens(fields[prompt], found.prompt_tokens or "", 1),
                tokens(fields[output], found.output_tokens or "", 0),
                None,
                {name: sys.intern(fields[place]) for place, name in kept if fields[place]},
            )

        return convert


class PlainJsonReader(JsonReader):
    """One request a line; other keys become tags. With prompt_ids, prompt_tokens may be left out."""

    Options = PlainOptions
    fallback = True
    keys = ()

    def __init__(self, options: PlainOptions | None = None) -> None:
        super().__init__(options)
        self._options = options or PlainOptions()
        self._seen: tuple[tuple[str, ...], _Names] | None = None

    def recognises(self, head: bytes, filename: str) -> bool:
        names = json_keys(head)
        found = _Names(self._options, names)
        return bool(names) and not (found.prompt_tokens is found.output_tokens is found.prompt_ids is None)

    def convert(self, value: dict[str, Any]) -> Record:
        found = self._names(tuple(value))
        if found.problem:
            raise BadRow("", found.problem)
        assert found.output_tokens is not None
        prompt_ids = None
        if found.prompt_ids is not None and value[found.prompt_ids] is not None:
            prompt_ids = ids(value[found.prompt_ids], found.prompt_ids)
            if not prompt_ids:
                raise BadRow(found.prompt_ids, "no ids; at least 1 is wanted")
        if found.prompt_tokens is not None:
            prompt_tokens = tokens(value[found.prompt_tokens], found.prompt_tokens, 1)
        elif prompt_ids is not None:
            prompt_tokens = len(prompt_ids)
        else:
            raise BadRow(found.prompt_ids or "", "nothing; a list of token ids is wanted")
        if prompt_ids is not None and len(prompt_ids) != prompt_tokens:
            raise BadRow(
                found.prompt_ids or "", f"{len(prompt_ids):,} ids for {prompt_tokens:,} prompt tokens"
            )
        tags = {name: item for name, item in value.items() if name not in found.used}
        return (
            None if found.arrival is None else time(value[found.arrival], found.arrival),
            prompt_tokens,
            tokens(value[found.output_tokens], found.output_tokens, 0),
            prompt_ids,
            tags,
        )

    def _names(self, names: tuple[str, ...]) -> _Names:
        """The columns of a row; of a row like the one before, those of that one."""
        if self._seen is not None and self._seen[0] == names:
            return self._seen[1]
        found = _Names(self._options, names)
        if found.problem:
            return found
        if self._seen is None:
            self.units_per_second = found.units_per_second
        elif found.arrival != self._seen[1].arrival:
            found.problem = f"its times are in {found.arrival!r}, those before in {self._seen[1].arrival!r}"
            return found
        self._seen = names, found
        return found

    def _start(self) -> None:
        super()._start()
        self._seen = None
