"""From what the recorder kept to the columns of a report."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from musebench.core.counted import CountedTable, StepRuns, expand
from musebench.core.engine import Engine
from musebench.core.protocols import Storage
from musebench.core.recorder import Recorder
from musebench.core.request import Request
from musebench.core.sequence import Sequence
from musebench.core.steplog import COUNTS, SECONDS
from musebench.measure.energy import Energy
from musebench.models.source import Model
from musebench.report.columns import GrowthColumns, PoolData, RequestColumns, RunData, StepColumns

NOT_MEASURED = Energy(None)


def run_data(
    engine: Engine,
    storage: Storage,
    model: Model,
    start_rows: int,
    counters: Mapping[str, int | float],
    margins: bool = False,
    energy: Energy = NOT_MEASURED,
) -> RunData:
    """What one run of `engine` left, finished or not. `start_rows` are the rows before it, `counters`
    the executor's over it; `margins` says whether they were recorded; `energy` is the device's over it."""
    recorder, pool = engine.recorder, engine.pool
    growths = recorder.growths
    return RunData(
        requests=_request_columns(recorder, model, margins, isinstance(engine.table, CountedTable)),
        steps=_step_columns(recorder),
        pool=PoolData(
            policy=pool.name,
            capacity=pool.capacity,
            cell_bytes=storage.cell_bytes,
            start_rows=start_rows,
            bytes=storage.bytes,
            most_in_use=pool.most_in_use,
            refusals=int(pool.counters().get("refusals", 0)),
            preemptions=recorder.preemptions,
            growths=GrowthColumns.of(
                step=[growth.step for growth in growths],
                rows=[growth.rows for growth in growths],
                bytes=[growth.bytes for growth in growths],
                copied_bytes=[growth.resize.copied_bytes for growth in growths],
                seconds=[growth.resize.seconds for growth in growths],
                peak_bytes=[growth.resize.peak_bytes for growth in growths],
            ),
            counters=dict(pool.counters()),
        ),
        energy_joules=energy.joules,
        energy_reason=energy.reason,
        counters=dict(counters),
    )


def _request_columns(recorder: Recorder, model: Model, margins: bool, counted: bool) -> RequestColumns:
    sequences, tokenizer, stop_tokens = recorder.sequences, model.tokenizer, model.stop_tokens
    if counted:
        return _counted_columns(recorder)
    made = [sequence.generated_tokens() for sequence in sequences]
    steps = [
        [] if sequence.rest_steps is None else np.asarray(sequence.rest_steps)[: len(tokens)].tolist()
        for sequence, tokens in zip(sequences, made, strict=True)
    ]
    texts = [
        None
        if tokenizer is None
        else tokenizer.decode([token for token in tokens if token not in stop_tokens])
        for tokens in made
    ]
    expected = [sequence.request.expect for sequence in sequences]
    correct = [
        None if expect is None or text is None else expect in text
        for expect, text in zip(expected, texts, strict=True)
    ]
    gaps = None
    if margins:
        gaps = [
            recorder.margins.get(sequence.session, {}).get(place)
            for sequence, tokens in zip(sequences, made, strict=True)
            for place in range(len(tokens))
        ]
    return RequestColumns.of(
        **_plain_columns(sequences),
        generated_tokens=[len(tokens) for tokens in made],
        expect=expected,
        correct=correct,
        text=texts,
        prompt_sha256=[_prompt_sha256(sequence.request) for sequence in sequences],
        token_ids=[token for tokens in made for token in tokens],
        token_steps=[step for row in steps for step in row],
        margins=gaps,
    )


def _counted_columns(recorder: Recorder) -> RequestColumns:
    """Of a run that kept no token: how many each request made, and in which steps."""
    sequences = recorder.sequences
    runs = [one.rest_steps if isinstance(one.rest_steps, StepRuns) else StepRuns() for one in sequences]
    nothing: list[None] = [None] * len(sequences)
    return RequestColumns.of(
        **_plain_columns(sequences),
        generated_tokens=[len(one) for one in runs],
        expect=nothing,
        correct=nothing,
        text=nothing,
        prompt_sha256=nothing,
        token_steps=expand(runs).astype(np.int32),
    )


def _plain_columns(sequences: list[Sequence]) -> dict[str, list[Any]]:
    return {
        "id": [sequence.request.id for sequence in sequences],
        "session": [sequence.session for sequence in sequences],
        "arrival_seconds": [sequence.arrival_seconds for sequence in sequences],
        "scheduled_seconds": [sequence.scheduled_seconds for sequence in sequences],
        "first_token_seconds": [sequence.first_token_seconds for sequence in sequences],
        "last_token_seconds": [sequence.last_token_seconds for sequence in sequences],
        "finish_seconds": [sequence.finish_seconds for sequence in sequences],
        "prompt_tokens": [sequence.prompt_tokens for sequence in sequences],
        "max_new_tokens": [sequence.request.max_new_tokens for sequence in sequences],
        "finish_reason": [sequence.finish_reason for sequence in sequences],
        "message": [sequence.message for sequence in sequences],
        "preemptions": [sequence.preemptions for sequence in sequences],
        "tags": [dict(sequence.request.tags) for sequence in sequences],
    }


def _prompt_sha256(request: Request) -> str | None:
    if isinstance(request.prompt, range):  # stands for ids that nobody reads
        return None
    return hashlib.sha256(np.asarray(request.prompt, "<i4").tobytes()).hexdigest()


def _step_columns(recorder: Recorder) -> StepColumns:
    steps = recorder.steps
    programs = steps.program_columns()
    forwards = sum(programs.values(), np.zeros(len(steps), np.int64))
    return StepColumns.of(
        **{name: steps.column(name) for name in (*SECONDS, *COUNTS)}, forwards=forwards, programs=programs
    )
