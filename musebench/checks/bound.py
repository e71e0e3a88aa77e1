"""`bound`: each phase's measured peak against the memory that was stated before the run."""

from __future__ import annotations

from collections.abc import Sequence

from musebench.checks.options import BoundOptions
from musebench.checks.verdicts import Judge
from musebench.core.protocols import MemorySnapshot
from musebench.report.schema import PHASES, MemoryBound, Report
from musebench.report.table import pretty
from musebench.report.verdict import Verdict


class BoundCheck:
    """Counted from the start: torch's allocator on a GPU, the process's resident set on a CPU.

    loaded: weights, in passing `load_passing` times, and activations (a model is tried out when it is
    opened). opened: and workspace, rows and growth, for a pool may take them at once. warm, peak: the whole
    bound. closed: weights and a slack.
    """

    def __init__(self, options: BoundOptions) -> None:
        self.options = options

    def check(self, reports: Sequence[Report]) -> list[Verdict]:
        return [verdict for report in reports for verdict in self._of(report)]

    def _of(self, report: Report) -> list[Verdict]:
        judge, bound = Judge("bound", report.id), report.memory.bound
        snapshots = report.memory.snapshots
        if bound is None:
            return [judge.missing("bound", "the report states none")]
        start = snapshots.get("start")
        on_gpu = start is not None and start.allocated is not None
        base = None if start is None else start.allocated if on_gpu else start.host_resident
        if base is None:
            return [judge.missing("bound", "memory at the start is not in the report")]
        made = []
        for phase in PHASES[1:]:
            if phase not in snapshots:
                continue
            seen = _measured(phase, snapshots[phase], on_gpu)
            if seen is None:
                made.append(judge.missing(f"peak, {phase}", "not in the report"))
                continue
            most, sums = self._limit(phase, bound)
            made.append(
                judge.held(
                    f"peak, {phase}",
                    seen - base <= most,
                    pretty(max(seen - base, 0), "bytes"),
                    pretty(most, "bytes"),
                    f"{seen:,} - {base:,} at the start; bound: {sums}",
                )
            )
        return made

    def _limit(self, phase: str, bound: MemoryBound) -> tuple[int, str]:
        passing = int(self.options.load_passing * bound.weights)
        loading = passing + bound.activations
        load_sum = (
            f"{self.options.load_passing:g} x weights {bound.weights:,} + activations {bound.activations:,}"
        )
        if phase == "loaded":
            return loading, load_sum
        if phase == "closed":
            slack = self.options.closed_slack
            return bound.weights + slack, f"weights {bound.weights:,} + slack {slack:,}"
        parts = ("weights", "rows", "growth", "workspace", "graphs", "activations")
        total = " + ".join(f"{part} {getattr(bound, part):,}" for part in parts)
        if phase == "opened":  # the peak of loading may still stand in it
            more = bound.rows + bound.growth + bound.workspace + bound.graphs
            return loading + more, f"{load_sum} + rows, growth, workspace, graphs {more:,}"
        return bound.total, total


def _measured(phase: str, snapshot: MemorySnapshot, on_gpu: bool) -> int | None:
    if phase == "closed":
        return snapshot.allocated if on_gpu else snapshot.host_resident
    return snapshot.peak if on_gpu else snapshot.host_peak
