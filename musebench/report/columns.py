"""The raw data of one run, as the recorder hands it over: columns of plain values, one row a request, a step
or a growth of the pool.

    RunData(
        requests=RequestColumns.of(id=[...], arrival_seconds=array, ...),
        steps=StepColumns.of(start=array, end=array, ...),
        pool=PoolData(..., growths=GrowthColumns.of(...)),
    )

`of` takes lists and numpy arrays alike; a NaN in a numpy array stands for a missing value and becomes None.
Seconds and bytes throughout. Times are on the run's own clock: 0 is where the run starts.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from musebench.core.plan import Limits
from musebench.core.protocols import RowRule
from musebench.core.request import FinishReason
from musebench.report.codec import Mismatch
from musebench.report.column import Column, bounds_of


def _plain(column: Any) -> Any:
    if not isinstance(column, np.ndarray):
        return list(column) if isinstance(column, tuple | range) else column
    if column.dtype.kind == "f" and np.isnan(column).any():
        return [None if value != value else value for value in column.tolist()]
    return Column(column) if column.dtype.kind in "fi" else column.tolist()


@dataclass(frozen=True)
class Columns:
    """Lists of one length, one value a row; those named in `FLAT` are of another length or absent, those in
    `LATER` may be absent (None)."""

    FLAT: ClassVar[tuple[str, ...]] = ()
    LATER: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def of(cls, **columns: Any) -> Self:
        """From lists and numpy arrays; NaN in an array becomes None."""
        return cls(**{name: _plain(column) for name, column in columns.items()})

    def __post_init__(self) -> None:
        names = [e.name for e in dataclasses.fields(self) if e.name not in self.FLAT]
        names = [name for name in names if name not in self.LATER or getattr(self, name) is not None]
        first = names[0]
        for name in names[1:]:
            if len(getattr(self, name)) != len(self):
                raise Mismatch(
                    f"column {name} has {len(getattr(self, name)):,} values, column {first} has {len(self):,}"
                )

    def __len__(self) -> int:
        return len(getattr(self, dataclasses.fields(self)[0].name))


@dataclass(frozen=True)
class RequestColumns(Columns):
    """All requests of one run, in the workload's order, however they ended.

    `id` is the request's, `session` the sequence's (None: refused before there was one). Times in seconds:
    `arrival_seconds` as the workload asked, `scheduled_seconds` when it was first admitted,
    `first_token_seconds` and `last_token_seconds` the end of the steps that made these tokens,
    `finish_seconds` when it ended in whatever way. `generated_tokens` counts ids that came out,
    `max_new_tokens` those asked for. `finish_reason` None: the run ended first. `message` says why it was
    refused or failed. `correct` is None where nothing was expected. `prompt_sha256` is over the prompt's ids
    as little-endian int32. `tags` are the request's.

    Flat over all generated tokens, request after request (`generated_tokens` cuts them), or None where they
    were not kept: `token_ids`; `token_steps`, the row in `StepColumns` of the step that made the token;
    `margins`, the difference of the two largest logits; `token_seconds`, when the token was known to the host
    (of engines that do not tell their steps; None for a token of which nobody knows).

    `chunks`, of the same engines: in how many pieces a request's output came. Where there are fewer than
    tokens, its times are those of pieces.

    `pauses`, a list a request (None where nobody was preempted, and in reports older than it): seconds at
    which it was preempted, admitted again, preempted again, and so on; of odd length when it ended while it
    was out. `reused_tokens`, over all admissions the tokens that were not computed because the pool had their
    cells (None where it had none, and in reports older than it). `replica` which of several served it, from 0
    (None where there is one).
    """

    FLAT: ClassVar[tuple[str, ...]] = ("token_ids", "token_steps", "margins", "token_seconds")
    LATER: ClassVar[tuple[str, ...]] = ("pauses", "reused_tokens", "chunks", "replica")

    id: list[str]
    session: list[int | None]
    arrival_seconds: list[float]
    scheduled_seconds: list[float | None]
    first_token_seconds: list[float | None]
    last_token_seconds: list[float | None]
    finish_seconds: list[float | None]
    prompt_tokens: list[int]
    generated_tokens: list[int]
    max_new_tokens: list[int]
    finish_reason: list[FinishReason | None]
    message: list[str | None]
    preemptions: list[int]
    expect: list[str | None]
    correct: list[bool | None]
    text: list[str | None]
    prompt_sha256: list[str | None]
    tags: list[dict[str, Any]]
    token_ids: list[int] | None = None
    token_steps: list[int] | None = None
    margins: list[float | None] | None = None
    pauses: list[list[float]] | None = None
    reused_tokens: list[int] | None = None
    token_seconds: list[float | None] | None = None
    chunks: list[int] | None = None
    replica: list[int] | None = None

    @classmethod
    def of(cls, **columns: Any) -> Self:
        ends = [None if end is None else FinishReason(end) for end in columns["finish_reason"]]
        return super().of(**{**columns, "finish_reason": ends})

    @cached_property
    def counted(self) -> np.ndarray:
        """Rows of the requests that succeeded and made a token, int64, in order."""
        good = [reason is not None and reason.succeeded for reason in self.finish_reason]
        return np.flatnonzero(np.array(good, bool) & (np.asarray(self.generated_tokens, np.int64) > 0))

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("prompt_tokens", "generated_tokens", "max_new_tokens", "preemptions", "reused_tokens"):
            column = getattr(self, name)
            if column and (low := bounds_of(column)[0]) < 0:
                raise Mismatch(f"column {name} holds {low:,}; at least 0 is wanted")
        total = int(np.sum(np.asarray(self.generated_tokens, np.int64)))
        for name in self.FLAT:
            column = getattr(self, name)
            if column is not None and len(column) != total:
                raise Mismatch(f"{name} has {len(column):,} values for {total:,} generated tokens")


@dataclass(frozen=True)
class StepColumns(Columns):
    """All steps of one run, in order; row 0 is the run's first step.

    `start` is when its plan was made, `end` when its tokens were known to the host: the time of every token
    that it made. Both never fall from step to step; steps may overlap. `device_seconds` is the time of its
    forwards on the device and `host_seconds` what the host spent on it (None: not measured). Tokens:
    `decode_tokens` and `prefill_tokens` real ones, `padded_tokens` those added. `forwards` counts forwards,
    `programs` the same by program (one column a program, their sum is `forwards`). `rows` (scratch included),
    `in_use` (cells) and `generation` are the pool's after the step's reservation; `waiting` and `running`
    count sequences when it was planned.

    None in reports from before they were kept: `attended_cells`, over the step's slices the cells of the
    slice's sequence up to its last token; `attended_pairs` of query and cell; `logit_rows`, next tokens made.
    `replica` of several, None where there is one; the starts of different ones are in no order.
    """

    FLAT: ClassVar[tuple[str, ...]] = (
        "programs",
        "attended_cells",
        "attended_pairs",
        "logit_rows",
        "replica",
    )

    start: list[float]
    end: list[float]
    device_seconds: list[float | None]
    host_seconds: list[float | None]
    decode_tokens: list[int]
    prefill_tokens: list[int]
    padded_tokens: list[int]
    sequences: list[int]
    forwards: list[int]
    rows: list[int]
    in_use: list[int]
    generation: list[int]
    waiting: list[int]
    running: list[int]
    programs: dict[str, list[int]] = field(default_factory=dict)
    attended_cells: list[int] | None = None
    attended_pairs: list[int] | None = None
    logit_rows: list[int] | None = None
    replica: list[int] | None = None

    @classmethod
    def of(cls, **columns: Any) -> Self:
        programs = {name: _plain(column) for name, column in columns.pop("programs", {}).items()}
        return super().of(**columns, programs=programs)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, column in self.programs.items():
            if len(column) != len(self):
                raise Mismatch(f"programs.{name} has {len(column):,} values for {len(self):,} steps")
        for name in self.FLAT[1:]:
            column = getattr(self, name)
            if column is not None and len(column) != len(self):
                raise Mismatch(f"{name} has {len(column):,} values for {len(self):,} steps")


@dataclass(frozen=True)
class GrowthColumns(Columns):
    """Each change of the pool's rows: `step` in which it happened (-1: before the first), `rows` (scratch
    included) and `bytes` after it, `copied_bytes` of old rows, `seconds` it took, `peak_bytes` its passing
    peak, old and new together."""

    step: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    copied_bytes: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class PoolData:
    """The pool in one run. `capacity` and `most_in_use` count cells, scratch left out.

    `start_rows` are the rows when the run started (0: nothing was allocated yet; a pool keeps what it grew
    in warm-up), `bytes` the storage's own size at the end. The first of `growths` after 0 rows is the first
    allocation, not a growth. `refusals` counts reservations refused, `counters` are the policy's own.
    `slack_bytes` is what a storage that takes memory in granules may hold beyond rows x `cell_bytes`;
    `row_rule` what the policy promises about its rows, None where it says nothing.
    """

    policy: str
    capacity: int | None
    cell_bytes: int
    start_rows: int
    bytes: int
    most_in_use: int
    refusals: int = 0
    preemptions: int = 0
    growths: GrowthColumns = GrowthColumns()
    counters: dict[str, Any] = field(default_factory=dict)
    slack_bytes: int = 0
    row_rule: RowRule | None = None


@dataclass(frozen=True)
class ReplicaData:
    """What one of several replicas has of its own in a run; the steps that its pool's growths name are those
    of the run. The rest is told apart by the columns `replica` (musebench.report.replicas.parts)."""

    pool: PoolData
    counters: dict[str, Any] = field(default_factory=dict)
    left_in_use: int | None = None


@dataclass(frozen=True)
class RunData:
    """The raw data of one repeat. `energy_joules` is the device's over the run, or None with a reason;
    `counters` are the executor's over this run (replays, fallbacks, ...). `shrinks` counts how often the
    limits were halved after an out-of-memory, `last_limits` are those at the end, None where none was.

    `wall_seconds` is the run by the host's monotonic clock, whatever the run's own clock says,
    `waited_seconds` as much of it as had passed when its last forward had been waited for, and `audit` what
    musebench.core.audit counted over it, `left_in_use` the cells that were still owned at its end; all
    None in reports from before they were kept, and in virtual time the two of the host are None.

    `pool` is None where a whole engine served (musebench.core.peer), which tells neither pool nor steps:
    `steps` then have no row, which says nothing of how many there were (`told_steps`).

    `replicas`, where several served it: `pool` then holds their sums (of `most_in_use` too, which they need
    not have reached together), with the rows of each in its growths."""

    requests: RequestColumns
    steps: StepColumns
    pool: PoolData | None
    energy_joules: float | None = None
    energy_reason: str | None = None
    counters: dict[str, Any] = field(default_factory=dict)
    shrinks: int = 0
    last_limits: Limits | None = None
    wall_seconds: float | None = None
    waited_seconds: float | None = None
    audit: dict[str, int] | None = None
    left_in_use: int | None = None
    replicas: list[ReplicaData] = field(default_factory=list)

    @property
    def told_steps(self) -> bool:
        """Whether the engine told its steps: with no row there was none."""
        return self.pool is not None

    def __post_init__(self) -> None:
        made = self.requests.token_steps
        if made:
            first, last = bounds_of(made)
            if first < 0 or last >= len(self.steps):
                raise Mismatch(
                    f"token_steps names steps {first} to {last}; the run has {len(self.steps)} steps"
                )
