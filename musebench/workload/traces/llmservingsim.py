"""LLMServingSim workloads: input_toks, output_toks, arrival_time_ns, and input_tok_ids in some."""

from __future__ import annotations

from typing import Any

from musebench.workload.traces.numbers import ids, time, tokens
from musebench.workload.traces.reader import JsonReader, Record
from musebench.workload.traces.row import BadRow


class LlmServingSimReader(JsonReader):
    """One request a line, with the prompt's token ids where the file has them."""

    keys = ("input_toks", "output_toks", "arrival_time_ns")
    units_per_second = 1e9

    def convert(self, value: dict[str, Any]) -> Record:
        prompt_tokens = tokens(value["input_toks"], "input_toks", 1)
        prompt_ids = value.get("input_tok_ids")
        if prompt_ids is not None and len(ids(prompt_ids, "input_tok_ids")) != prompt_tokens:
            raise BadRow(
                "input_tok_ids", f"{len(prompt_ids):,} ids; input_toks says {prompt_tokens:,} are wanted"
            )
        return (
            time(value["arrival_time_ns"], "arrival_time_ns"),
            prompt_tokens,
            tokens(value["output_toks"], "output_toks", 0),
            prompt_ids,
            None,
        )
