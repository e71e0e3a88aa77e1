"""`weights`: loading costs the weights' bytes once, however many sessions a run reserves for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from musebench.checks.options import WeightsOptions
from musebench.checks.verdicts import Judge
from musebench.report.schema import Report
from musebench.report.table import pretty
from musebench.report.verdict import Verdict


@dataclass(frozen=True)
class Load:
    """What loading added to the device's allocator, or to the process on a CPU."""

    bytes: int
    source: str
    sums: str
    on_host: bool


def load_of(report: Report) -> Load | None:
    """None where the report does not say what there was before and after."""
    start, loaded = (report.memory.snapshots.get(phase) for phase in ("start", "loaded"))
    if start is None or loaded is None:
        return None
    for source, field, on_host in (
        ("torch's allocator", "allocated", False),
        ("the process's resident set", "host_resident", True),
    ):
        before, after = getattr(start, field), getattr(loaded, field)
        if before is not None and after is not None:
            return Load(after - before, source, f"{after:,} loaded - {before:,} at the start", on_host)
        if not on_host and report.choices.backend.name == "cuda":
            return None  # what loading adds to the process says nothing about the device
    return None


class WeightsCheck:
    def __init__(self, options: WeightsOptions) -> None:
        self.options = options

    def check(self, reports: Sequence[Report]) -> list[Verdict]:
        return [self._once(report) for report in reports] + self._alike(reports)

    def _once(self, report: Report) -> Verdict:
        judge, what = Judge("weights", report.id), "weights load once"
        load, weights = load_of(report), report.memory.computed.weights
        if load is None:
            return judge.missing(what, "memory at the start or after loading is not in the report")
        if not weights:
            return judge.missing(what, "the weights' bytes are not in the report")
        factor, allowance = self.options.weights_factor, self.options.load_allowance
        bound = int(factor * weights) + allowance
        beside = "code and tokenizer" if load.on_host else "libraries' workspaces"
        more = f" + {allowance:,} for {beside}"
        return judge.held(
            what,
            load.bytes <= bound,
            pretty(load.bytes, "bytes"),
            pretty(bound, "bytes"),
            f"{load.source}: {load.sums}; bound {factor:g} x {weights:,} bytes of weights{more}",
        )

    def _alike(self, reports: Sequence[Report]) -> list[Verdict]:
        """Loads of one model on one device, by runs that reserve different numbers of sessions."""
        groups: dict[Any, list[Report]] = {}
        for report in reports:
            model = report.conditions.model
            key = (model.weights_sha256 or model.source, model.dtype, report.choices.device)
            groups.setdefault(key, []).append(report)
        made = []
        for group in groups.values():
            loads = [(report, load) for report in group if (load := load_of(report)) is not None]
            sessions = {
                bounds.max_sessions for report, _ in loads if (bounds := report.choices.bounds) is not None
            }
            if len(sessions) < 2:
                continue
            (_, least), (report, most) = (
                min(loads, key=lambda one: one[1].bytes), max(loads, key=lambda one: one[1].bytes),
            )  # fmt: skip
            made.append(
                Judge("weights", report.id).held(
                    "loads alike",
                    most.bytes - least.bytes <= self.options.load_difference,
                    pretty(most.bytes - least.bytes, "bytes"),
                    pretty(self.options.load_difference, "bytes"),
                    f"{most.bytes:,} - {least.bytes:,} over runs that reserve {sorted(sessions)} sessions",
                )
            )
        return made
