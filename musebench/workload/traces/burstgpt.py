"""BurstGPT traces: Timestamp, Model, Request tokens, Response tokens, Total tokens, Log Type.

Columns are found by name: later files put Session ID and Elapsed time in between. Times are seconds from the
start of day one. A response of 0 tokens is a request that failed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from musebench.core.options import option
from musebench.workload.traces.numbers import time, tokens
from musebench.workload.traces.reader import CsvReader, Record
from musebench.workload.traces.row import RowOptions


class BurstGptReader(CsvReader):
    """One request a row; tags: model, log_type, session."""

    @dataclass(frozen=True)
    class Options(RowOptions):
        failures: str = option(
            "skip",
            "what rows with 0 response tokens become: left out and counted, or requests for 0 tokens",
            choices=("skip", "keep"),
        )

    columns = ("Timestamp", "Model", "Request tokens", "Response tokens")
    _tags = (("model", "model"), ("log type", "log_type"), ("session id", "session"))

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        self._keep = options is not None and options.failures == "keep"

    def converter(self, places: Mapping[str, int]) -> Callable[[list[str]], Record | str]:
        at, _, prompt, output = (places[name.lower()] for name in self.columns)
        kept = [(places[column], tag) for column, tag in self._tags if column in places]

        def convert(fields: list[str]) -> Record | str:
            seconds = time(fields[at], "Timestamp")
            output_tokens = tokens(fields[output], "Response tokens", 0)
            if output_tokens == 0 and not self._keep:
                tokens(fields[prompt], "Request tokens", 0)
                return "failures (0 response tokens)"
            prompt_tokens = tokens(fields[prompt], "Request tokens", 1)
            # a few texts, over and over: one copy of each
            tags = {tag: sys.intern(fields[place]) for place, tag in kept if fields[place]}
            return seconds, prompt_tokens, output_tokens, None, tags

        return convert
