"""What happened in a run, as columns. The engine feeds it; the report is made of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from musebench.core.flight import Flight
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

    def add_margins(self, flight: Flight) -> None:
        """Those of a step that came back, if it has any."""
        if flight.margins is None:
            return
        keep = flight.kept()
        keep = np.ones(len(flight.slots), bool) if keep is None else keep
        sequences = {sequence.slot: sequence for sequence in flight.sequences}
        rows = zip(
            flight.slots[keep].tolist(), flight.positions[keep].tolist(), flight.margins[keep], strict=True
        )
        for slot, position, margin in rows:
            sequence = sequences[slot]
            self.margins.setdefault(sequence.session, {})[position - sequence.prompt_tokens] = float(margin)

    def last_token_seconds(self, sequence: Sequence) -> float | None:
        """When the last token of a sequence that has ended came back; None where none did."""
        steps = sequence.rest_steps
        if steps is None or not len(steps):
            return None
        last = int(steps[-1])
        return self.steps[last].end if 0 <= last < len(self.steps) else None
