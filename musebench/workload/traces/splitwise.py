"""splitwise-sim traces: request_id, request_type, application_id, arrival_timestamp (seconds), batch_size,
prompt_size and token_size (tokens)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from musebench.workload.traces.numbers import shown, time, tokens
from musebench.workload.traces.reader import CsvReader, Record
from musebench.workload.traces.row import BadRow


class SplitwiseReader(CsvReader):
    """One request a row; tags: request_id, request_type, application_id. A row of several prompts
    (batch_size other than 1) is refused: it has one length for all of them."""

    columns = ("arrival_timestamp", "prompt_size", "token_size")
    _tags = ("request_id", "request_type", "application_id")

    def converter(self, places: Mapping[str, int]) -> Callable[[list[str]], Record | str]:
        at, prompt, output = (places[name] for name in self.columns)
        batch = places.get("batch_size")
        kept = [(places[name], name) for name in self._tags if name in places]

        def convert(fields: list[str]) -> Record:
            if batch is not None and tokens(fields[batch], "batch_size", 0) != 1:
                raise BadRow("batch_size", f"{shown(fields[batch])}; 1 is wanted")
            return (
                time(fields[at], "arrival_timestamp"),
                tokens(fields[prompt], "prompt_size", 1),
                tokens(fields[output], "token_size", 0),
                None,
                {name: fields[place] for place, name in kept},
            )

        return convert
