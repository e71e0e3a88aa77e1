"""Contents of trace files, and what reading one gave."""

from __future__ import annotations

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
MOONCAKE = '{"timestamp": 0, "input_length": 513, "output_length": 3, "hash_ids": [0, 1]}\n'
PLAIN = "arrival,prompt_tokens,output_tokens\n"


def figures(trace):
    return [(row.arrival_seconds, row.prompt_tokens, row.output_tokens) for row in trace.rows]
