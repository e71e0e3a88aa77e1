"""What happened in a run, as columns. The engine feeds it; the report is made of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from musebench.core.protocols import Resize
from musebench.core.sequence import Sequence
from musebench.core.steplog import StepLog, StepRecord

__all__ = ["GrowthRecord", "Recorder", "StepRecord"]


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

    steps: StepLog = field(default_factory=StepLog)
    growths: list[GrowthRecord] = field(default_factory=list)
    sequences: list[Sequence] = field(default_factory=list)
    ended: list[Sequence] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    margins: dict[int, dict[int, float]] = field(default_factory=dict)
    preemptions: int = 0
    failed_steps: int = 0
