"""From what the recorder kept to the columns of a report."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from collections.abc import Sequence as Ordered
from dataclasses import replace
from typing import Any

import numpy as np

from musebench.core.counted import CountedTable, StepRuns, expand
from musebench.core.engine import Engine
from musebench.core.protocols import Storage
from musebench.core.recorder import Recorder
from musebench.core.request import FinishReason, Request
from musebench.core.sequence import Sequence
from musebench.core.steplog import COUNTS, SECONDS
from musebench.measure.energy import Energy
from musebench.models.source import Model
from musebench.report.column import Runs
from musebench.report.columns import GrowthColumns, PoolData, RequestColumns, RunData, StepColumns
from musebench.report.journal import EndedColumns, JournalEntry

NOT_MEASURED = Energy(None)


def run_data(
    engine: Engine,
    storage: Storage,
    model: Model,
    start_rows: int,
    counters: Mapping[str, int | float],
    margins: bool = False,
    energy: Energy = NOT_MEASURED,
    wall_seconds: float | None = None,
    audit: Mapping[str, int] | None = None,
    waited_seconds: float | None = None,
) -> RunData:
    """What one run of `engine` left, finished or not. `start_rows` are the rows before it, `counters`
    the executor's over it; `margins` says whether they were recorded; `energy` is the device's over it,
    `wall_seconds` the host's, `waited_seconds` the same until its last forward had been waited for, and
    `audit` what an audit counted over it."""
    recorder = engine.recorder
    return RunData(
        requests=_request_columns(recorder, model, margins, isinstance(engine.table, CountedTable)),
        steps=_step_columns(recorder),
        pool=_pool_data(engine, storage, start_rows),
        energy_joules=energy.joules,
        energy_reason=energy.reason,
        counters=dict(counters),
        wall_seconds=wall_seconds,
        audit=None if audit is None else dict(audit),
        waited_seconds=waited_seconds,
        left_in_use=engine.pool.in_use,
    )


class EndedSince:
    """What a run has added since last asked, for its journal (musebench.report.journal)."""

    def __init__(self, run: int, engine: Engine, storage: Storage, margins: bool) -> None:
        self.run = run
        self._engine = engine
        self._storage = storage
        self._margins = margins
        self._start_rows = storage.rows
        self._pool: PoolData | None = None
        self._ended = self._steps = 0

    @property
    def anything(self) -> bool:
        """Whether a request has ended since."""
        return len(self._engine.recorder.ended) > self._ended

    def take(self, counters: Mapping[str, int | float]) -> JournalEntry:
        """It; `counters` are the executor's over the run."""
        recorder = self._engine.recorder
        added = Recorder(steps=recorder.steps.since(self._steps))
        requests = self._columns(recorder, recorder.ended[self._ended :])
        self._steps, self._ended = len(recorder.steps), len(recorder.ended)
        return JournalEntry(
            run=self.run,
            requests=requests,
            steps=_step_columns(added),
            pool=self._pool_now(),
            counters=dict(counters),
        )

    def _pool_now(self) -> PoolData:
        """The pool's numbers. Its bytes change with growths only, and cost time to ask for."""
        engine, known = self._engine, self._pool
        if known is None or len(known.growths) != len(engine.recorder.growths):
            self._pool = _pool_data(engine, self._storage, self._start_rows)
            return self._pool
        counters = engine.pool.counters()
        return replace(
            known,
            most_in_use=engine.pool.most_in_use,
            refusals=int(counters.get("refusals", 0)),
            preemptions=engine.recorder.preemptions,
            counters=dict(counters),
        )

    def _columns(self, recorder: Recorder, ended: list[Sequence]) -> EndedColumns:
        made = [one.generated_tokens() for one in ended]
        margins = None
        if self._margins:
            margins = [
                recorder.margins.get(one.session, {}).get(place)
                for one, tokens in zip(ended, made, strict=True)
                for place in range(len(tokens))
            ]
        return EndedColumns(
            row=[one.session for one in ended],  # sessions are issued in the order of the requests
            scheduled_seconds=[one.scheduled_seconds for one in ended],
            first_token_seconds=[one.first_token_seconds for one in ended],
            last_token_seconds=[one.last_token_seconds for one in ended],
            finish_seconds=[one.finish_seconds for one in ended],
            generated_tokens=[len(tokens) for tokens in made],
            finish_reason=[FinishReason(one.finish_reason or "") for one in ended],
            message=[one.message for one in ended],
            preemptions=[one.preemptions for one in ended],
            token_ids=[token for tokens in made for token in tokens],
            token_steps=[
                step
                for one, tokens in zip(ended, made, strict=True)
                if one.rest_steps is not None
                for step in _steps_of(one)[: len(tokens)].tolist()
            ],
            margins=margins,
            pauses=_pauses(ended),
            reused_tokens=_reused(ended),
            arrival_seconds=[one.arrival_seconds for one in ended],
            prompt_tokens=[one.prompt_tokens for one in ended],
            prompt_sha256=[prompt_sha256(one.request) for one in ended],
        )


def _steps_of(sequence: Sequence) -> np.ndarray:
    """Rows of the steps that made its tokens."""
    steps = sequence.rest_steps
    return expand([steps]) if isinstance(steps, StepRuns) else np.asarray(steps)


def before_the_run(requests: Ordered[Request], model: Model) -> RequestColumns:
    """The columns of requests of which none has been served yet."""
    nothing: list[None] = [None] * len(requests)
    zeros = [0] * len(requests)
    return RequestColumns.of(
        id=[request.id for request in requests],
        session=list(range(len(requests))),
        arrival_seconds=[request.arrival_seconds for request in requests],
        scheduled_seconds=nothing,
        first_token_seconds=nothing,
        last_token_seconds=nothing,
        finish_seconds=nothing,
        prompt_tokens=[len(request.prompt) for request in requests],
        generated_tokens=zeros,
        max_new_tokens=[request.max_new_tokens for request in requests],
        finish_reason=nothing,
        message=nothing,
        preemptions=zeros,
        expect=[request.expect for request in requests],
        correct=nothing,
        text=nothing,
        prompt_sha256=[prompt_sha256(request) for request in requests],
        tags=[request.tags for request in requests],
        token_ids=[],
        token_steps=[],
    )


def _pool_data(engine: Engine, storage: Storage, start_rows: int) -> PoolData:
    pool, growths = engine.pool, engine.recorder.growths
    return PoolData(
        policy=pool.name,
        capacity=pool.capacity,
        cell_bytes=storage.cell_bytes,
        start_rows=start_rows,
        bytes=storage.bytes,
        most_in_use=pool.most_in_use,
        refusals=int(pool.counters().get("refusals", 0)),
        preemptions=engine.recorder.preemptions,
        growths=GrowthColumns.of(
            step=[growth.step for growth in growths],
            rows=[growth.rows for growth in growths],
            bytes=[growth.bytes for growth in growths],
            copied_bytes=[growth.resize.copied_bytes for growth in growths],
            seconds=[growth.resize.seconds for growth in growths],
            peak_bytes=[growth.resize.peak_bytes for growth in growths],
        ),
        counters=dict(pool.counters()),
        slack_bytes=getattr(storage, "slack_bytes", 0),
        row_rule=getattr(pool, "row_rule", None),
    )


def _request_columns(recorder: Recorder, model: Model, margins: bool, counted: bool) -> RequestColumns:
    sequences, tokenizer, stop_tokens = recorder.sequences, model.tokenizer, model.stop_tokens
    if counted:
        return _counted_columns(recorder)
    made = [sequence.generated_tokens() for sequence in sequences]
    steps = [
        sequence.generated_steps()[: len(tokens)] for sequence, tokens in zip(sequences, made, strict=True)
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
        prompt_sha256=[prompt_sha256(sequence.request) for sequence in sequences],
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
        token_steps=_token_steps(runs),
    )


def _token_steps(all_runs: list[StepRuns]) -> Runs:
    flat = np.array([run for one in all_runs for run in one.runs], np.int64).reshape(-1, 2)
    return Runs(flat[:, 0], flat[:, 1] - flat[:, 0])


def _plain_columns(sequences: list[Sequence]) -> dict[str, list[Any] | None]:
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
        "tags": [sequence.request.tags for sequence in sequences],
        "pauses": _pauses(sequences),
        "reused_tokens": _reused(sequences),
    }


def _pauses(sequences: list[Sequence]) -> list[list[float]] | None:
    """None where nobody was preempted: a list a request would be much for a large run."""
    if not any(sequence.pauses for sequence in sequences):
        return None
    return [list(sequence.pauses) for sequence in sequences]


def _reused(sequences: list[Sequence]) -> list[int] | None:
    """None where nothing was."""
    counts = [sequence.reused for sequence in sequences]
    return counts if any(counts) else None


def prompt_sha256(request: Request) -> str | None:
    """Over the prompt's ids as little-endian int32; None where nobody reads them."""
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
