"""From what a whole engine told of its requests to the columns of a report."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from musebench.core.request import Request
from musebench.core.service import Served, Service
from musebench.measure.energy import Energy
from musebench.models.source import Tokenizer
from musebench.report.columns import RequestColumns, RunData, StepColumns
from musebench.report.recorded import prompt_sha256

NO_STEPS = StepColumns(
    start=[], end=[], device_seconds=[], host_seconds=[], decode_tokens=[], prefill_tokens=[],
    padded_tokens=[], sequences=[], forwards=[], rows=[], in_use=[], generation=[], waiting=[], running=[],
)  # fmt: skip


def served_run(
    service: Service,
    tokenizer: Tokenizer | None,
    stop_tokens: Collection[int],
    counters: Mapping[str, int | float],
    energy: Energy,
    wall_seconds: float,
) -> RunData:
    """What one run left, finished or not. `counters` are the engine's over it."""
    records = list(service.records.values())
    return RunData(
        requests=_columns(records, tokenizer, stop_tokens),
        steps=NO_STEPS,
        pool=None,
        energy_joules=energy.joules,
        energy_reason=energy.reason,
        counters=dict(counters),
        wall_seconds=wall_seconds,
    )


def _columns(
    records: list[Served], tokenizer: Tokenizer | None, stop_tokens: Collection[int]
) -> RequestColumns:
    texts = [_text(one, tokenizer, stop_tokens) for one in records]
    with_ids = all(len(one.token_ids) == one.generated_tokens for one in records)
    moments: list[float | None] = [second for one in records for second in one.token_seconds()]
    every: dict[str, list[Any] | None] = {
        "id": [one.request.id for one in records],
        "session": [None] * len(records),
        "arrival_seconds": [one.arrival_seconds for one in records],
        "scheduled_seconds": [one.scheduled_seconds for one in records],
        "first_token_seconds": [next(iter(one.chunk_seconds), None) for one in records],
        "last_token_seconds": [next(reversed(one.chunk_seconds), None) for one in records],
        "finish_seconds": [one.finish_seconds for one in records],
        "prompt_tokens": [_prompt_tokens(one) for one in records],
        "generated_tokens": [one.generated_tokens for one in records],
        "max_new_tokens": [one.request.max_new_tokens for one in records],
        "finish_reason": [one.finish_reason for one in records],
        "message": [one.message for one in records],
        "preemptions": [0] * len(records),
        "expect": [one.request.expect for one in records],
        "correct": [_correct(one.request, text) for one, text in zip(records, texts, strict=True)],
        "text": texts,
        "prompt_sha256": [_sha256(one) for one in records],
        "tags": [dict(one.request.tags) for one in records],
        "chunks": [len(one.chunk_seconds) for one in records],
        "token_ids": [token for one in records for token in one.token_ids] if with_ids else None,
        "token_seconds": moments if any(moment is not None for moment in moments) else None,
    }
    return RequestColumns.of(**every)


def _text(one: Served, tokenizer: Tokenizer | None, stop_tokens: Collection[int]) -> str | None:
    if one.text:
        return "".join(one.text)
    if tokenizer is None or not one.token_ids:
        return None
    return tokenizer.decode([token for token in one.token_ids if token not in stop_tokens])


def _correct(request: Request, text: str | None) -> bool | None:
    return None if request.expect is None or text is None else request.expect in text


def _prompt_tokens(one: Served) -> int:
    return len(one.request.prompt) if one.prompt_tokens is None else one.prompt_tokens


def _sha256(one: Served) -> str | None:
    """None where the engine counted another prompt than it was given ids of: it saw other ids."""
    return prompt_sha256(one.request) if _prompt_tokens(one) == len(one.request.prompt) else None
