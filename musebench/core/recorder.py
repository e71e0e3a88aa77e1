"""What happened in a run, as columns. The engine feeds it; the report is made of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from musebench.core.protocols import Resize
from musebench.core.sequence import Sequence


@dataclass(slots=True)
class StepRecord:
    """One step. Seconds on the run's clock; `end` is when its tokens were known to the host.

    `attended_cells` sums over its slices the cells of the slice's sequence up to its last token,
    `attended_pairs` the pairs of query and cell; `logit_rows` counts next tokens.
    """

    start: float
    end: float
    device_seconds: float | None
    host_seconds: float
    decode_tokens: int
    prefill_tokens: int
    padded_tokens: int
    sequences: int
    programs: dict[str, int]
    rows: int
    in_use: int
    generation: int
    waiting: int
    running: int
    attended_cells: int
    attended_pairs: int
    logit_rows: int


@dataclass(frozen=True, slots=True)
class GrowthRecord:
    """One change of a pool's rows in step `step` (its row in the steps): scratch included in `rows`."""

    step: int
    rows: int
    bytes: int
    resize: Resize


@dataclass
class Recorder:
    """`steps` in order of commit, `growths`, all `sequences` in order of submission and, in `ended`, in the
    order in which they ended, and the margins of the two largest logits by session where they were asked
    for. `failures` are the texts of steps that failed and ended sequences."""

    steps: list[StepRecord] = field(default_factory=list)
    growths: list[GrowthRecord] = field(default_factory=list)
    sequences: list[Sequence] = field(default_factory=list)
    ended: list[Sequence] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    margins: dict[int, dict[int, float]] = field(default_factory=dict)
    preemptions: int = 0
    failed_steps: int = 0
