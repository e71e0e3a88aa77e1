"""Azure LLM inference traces (AzurePublicDataset): TIMESTAMP, ContextTokens, GeneratedTokens.

The 2023 files have CRLF line ends, no line end at the end, and local times with seven fractional digits;
those of 2024 an offset behind the time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date

from musebench.workload.traces.numbers import shown, tokens
from musebench.workload.traces.reader import CsvReader, Record
from musebench.workload.traces.row import BadRow

_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T]([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d{1,9}))?(?:Z|([-+])(\d\d):?([0-5]\d))?",
    re.ASCII,
)


class AzureReader(CsvReader):
    """One request a row. Times are exact to the nanosecond before they become seconds."""

    columns = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
    units_per_second = 1e9

    def converter(self, places: Mapping[str, int]) -> Callable[[list[str]], Record | str]:
        at, prompt, output = (places[name.lower()] for name in self.columns)
        days: dict[str, int] = {}

        def convert(fields: list[str]) -> Record:
            return (
                _nanoseconds(fields[at], days),
                tokens(fields[prompt], "ContextTokens", 1),
                tokens(fields[output], "GeneratedTokens", 0),
                None,
                None,
            )

        return convert


def _nanoseconds(text: str, days: dict[str, int]) -> int:
    """Since the year 1, UTC where there is an offset. `days` remembers dates that were seen."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise BadRow("TIMESTAMP", f"{shown(text)}; a time like 2023-11-16 18:15:46.6805900 is wanted")
    day, hours, minutes, seconds, fraction, sign, offset_hours, offset_minutes = match.groups()
    number = days.get(day)
    if number is None:
        try:
            number = days[day] = date.fromisoformat(day).toordinal()
        except ValueError:
            raise BadRow("TIMESTAMP", f"{shown(text)}; there is no such day") from None
    whole = number * 86_400 + int(hours) * 3_600 + int(minutes) * 60 + int(seconds)
    if sign:
        whole -= int(sign + "1") * (int(offset_hours) * 3_600 + int(offset_minutes) * 60)
    return whole * 1_000_000_000 + (int(fraction.ljust(9, "0")) if fraction else 0)
