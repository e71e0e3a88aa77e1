"""What every executor promises, and what the audit of a run looks for."""

from __future__ import annotations

from musebench.testing.laws.law import Law

TOKENS = Law(
    "tokens", "every request has its own tokens, whatever was in its batches and however they failed"
)
PLAN = Law("plan", "cutting a plan changes neither the plan nor its sequences")
SLICES = Law("slices", "the forwards of a plan hold its tokens, in its order, and nothing else")
LIMITS = Law("limits", "no forward exceeds the executor's limits, which are within the run's")
BATCHES = Law("batches", "the backend gets each batch once, as it was packed")
PADDING = Law("padding", "padding writes scratch alone, and nobody attends a cell that is not its own")
GRAPHS = Law(
    "graphs", "a graph is replayed with its own layout, over rows that have not moved, while it is kept"
)
WAITED = Law("waited", "tokens and seconds are the backend's, given once the device was waited for")
OUTPUT = Law("output", "wait gives int32, one token a logit row, and the same when it is asked again")
FAILURES = Law("failures", "a forward that fails is seen as failed, and the next step is as good as any")
COUNTERS = Law("counters", "counters are numbers of at least 0 that never fall")
PREPARE = Law("prepare", "prepare gives finite seconds of at least 0 by name")
CLOSE = Law("close", "closing frees all that was captured, twice and in any order with the backend")

EXECUTOR_LAWS = (
    TOKENS, PLAN, SLICES, LIMITS, BATCHES, PADDING, GRAPHS, WAITED, OUTPUT, FAILURES, COUNTERS, PREPARE,
    CLOSE,
)  # fmt: skip

AUDITED = {
    "not launched": BATCHES,
    "launched twice": BATCHES,
    "changed batches": BATCHES,
    "changed plans": SLICES,
    "not waited": WAITED,
    "changed tokens": WAITED,
    "changed seconds": WAITED,
}
"""The law that each finding of `musebench.core.audit` breaks."""
