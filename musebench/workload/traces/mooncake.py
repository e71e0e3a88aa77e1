"""Mooncake traces: timestamp (milliseconds), input_length, output_length (tokens), hash_ids.

A hash id names a block of 512 prompt tokens together with all before it: rows that begin with the same ids
begin with the same tokens. Many rows may have one time, and prompts may exceed 128k tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from musebench.core.options import option
from musebench.workload.traces.numbers import ids, time, tokens
from musebench.workload.traces.reader import JsonReader, Record
from musebench.workload.traces.row import RowOptions


class MooncakeReader(JsonReader):
    """One request a line; tags: hash_ids and block_tokens."""

    @dataclass(frozen=True)
    class Options(RowOptions):
        block_tokens: int = option(512, "tokens of a block that a hash id names", minimum=1)

    keys = ("timestamp", "input_length", "output_length", "hash_ids")
    units_per_second = 1e3

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        self._block_tokens = (options or self.Options()).block_tokens

    def convert(self, value: dict[str, Any]) -> Record:
        return (
            time(value["timestamp"], "timestamp"),
            tokens(value["input_length"], "input_length", 1),
            tokens(value["output_length"], "output_length", 0),
            None,
            {"hash_ids": tuple(ids(value["hash_ids"], "hash_ids")), "block_tokens": self._block_tokens},
        )
