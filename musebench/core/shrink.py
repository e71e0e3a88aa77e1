"""What a run does when a step finds no memory: try it again with less in it."""

from __future__ import annotations

from dataclasses import replace

from musebench.core.engine import Engine
from musebench.core.errors import OutOfMemory, StepFailed
from musebench.core.plan import Limits


class Shrink:
    """An `on_failure` of the engine: halves what a step may hold, until it fits or holds one sequence.

    A growth of the pool that failed halves the sequences that may run: the newest are preempted, and their
    cells serve the others. A forward that failed halves the step's tokens where it had prompts in it, else
    its sequences. Limits stay halved for the rest of the run. `times` counts halvings.
    """

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, engine: Engine, failure: StepFailed) -> bool:
        """Whether the step may be tried again; not when it failed otherwise, or nothing is left to halve."""
        if not isinstance(failure.cause, OutOfMemory):
            return False
        limits = _halved(engine.limits, failure, len(engine.running))
        if limits is None:
            return False
        self.times += 1
        engine.narrow(limits)
        return True


def _halved(limits: Limits, failure: StepFailed, running: int) -> Limits | None:
    fewest_tokens = 2 * limits.fewest_prefill - 1
    if failure.prefill_tokens and not failure.reserving and limits.most_tokens > fewest_tokens:
        # Nothing is planned beyond what the failed step held: half of a limit far above it changes nothing.
        tokens = max(min(limits.most_tokens, failure.prefill_tokens + failure.slices) // 2, fewest_tokens)
        return replace(limits, most_tokens=tokens, most_prefill=min(limits.most_prefill, tokens))
    held = max(failure.slices, running if failure.reserving else 0)
    sequences = min(limits.most_sequences, held) // 2
    return replace(limits, most_sequences=sequences) if sequences else None
