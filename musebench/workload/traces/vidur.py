"""Vidur's processed traces: num_prefill_tokens, num_decode_tokens, and arrived_at (seconds) in some."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from musebench.workload.traces.numbers import time, tokens
from musebench.workload.traces.reader import CsvReader, Record


class VidurReader(CsvReader):
    """One request a row; without arrived_at, rows have no times."""

    columns = ("num_prefill_tokens", "num_decode_tokens")

    def converter(self, places: Mapping[str, int]) -> Callable[[list[str]], Record | str]:
        prompt, output = (places[name] for name in self.columns)
        at = places.get("arrived_at")

        def convert(fields: list[str]) -> Record:
            return (
                None if at is None else time(fields[at], "arrived_at"),
                tokens(fields[prompt], "num_prefill_tokens", 1),
                tokens(fields[output], "num_decode_tokens", 0),
                None,
                None,
            )

        return convert
