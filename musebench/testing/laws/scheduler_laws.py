"""What every scheduler promises: the contracts of limits, progress and steps."""

from __future__ import annotations

from musebench.testing.laws.law import Law

LIMITS = Law("limits", "no plan exceeds the most tokens, sequences or tokens of a prefill")
FEWEST = Law("fewest", "no slice, and no rest that it leaves, is below the fewest tokens of a prefill")
KNOWN = Law("known", "only sequences that wait or run are planned, once, with no more tokens than are left")
PROGRESS = Law("progress", "something is planned while anybody can run")
ENDS = Law("ends", "every request ends with its own tokens")
WAITING = Law("waiting", "nobody who waits is overtaken by more later requests than its patience")
RUNNING = Law("running", "nobody who runs waits for more than what all others may compute")
PREEMPTIONS = Law("preemptions", "preemptions end: at most two a pair of requests")
ORDER = Law("order", "of requests that differ in their arrival alone, the earlier starts first")
READS = Law("reads", "planning changes no sequence, no pool and no plan made before")
SAME = Law("same", "the same requests give the same plans again")
STEADY = Law("steady", "a plan stays as long as steady says, while nothing changes")

SCHEDULER_LAWS = (
    LIMITS, FEWEST, KNOWN, PROGRESS, ENDS, WAITING, RUNNING, PREEMPTIONS, ORDER, READS, SAME, STEADY,
)  # fmt: skip

PATIENCE = 32
"""Later requests that may overtake one who waits, unless the scheduler has a `patience` of its own."""
