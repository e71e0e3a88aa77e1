"""`honest`: the numbers can be true: not faster than the floor, all samples there, the device waited for,
tokens made and not remembered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from musebench.checks.options import HonestOptions
from musebench.checks.verdicts import Judge, runs
from musebench.core.audit import FINDINGS
from musebench.measure.roofline import floors
from musebench.report.schema import Report, RunData
from musebench.report.table import pretty
from musebench.report.verdict import TIME_TOLERANCE, Verdict, check_samples

MEASURING = ("cpu", "cuda")
"""Backends that always know a step's time on the device."""


class HonestCheck:
    covers: ClassVar[tuple[str, ...]] = ("samples",)

    def __init__(self, options: HonestOptions) -> None:
        self.options = options

    def check(self, reports: Sequence[Report]) -> list[Verdict]:
        return [verdict for report in reports for verdict in self._of(report)]

    def _of(self, report: Report) -> list[Verdict]:
        judge = Judge("honest", report.id)
        missing = list(check_samples(report))
        again = Judge("honest", report.id, restates=True)
        made = [again.found("samples", missing, "times of requests that succeeded, device time of steps")]
        for where, run in runs(report):
            made.append(_audit(judge, where, run))
            if report.conditions.clock == "host":
                made.append(_device_time(judge, where, report, run))
                made.append(self._clock(judge, where, run))
                made.append(self._floor(judge, where, report, run))
        return made

    def _clock(self, judge: Judge, where: str, run: RunData) -> Verdict:
        """The run's last moment by its own clock against the host's; a clock that lies runs slow.

        It came after the last forward had been waited for, and before the run was over: however long the host
        was held up between them, an honest clock lies within.
        """
        what, wall = f"clock{where}", run.wall_seconds
        times = [time for time in [*run.requests.finish_seconds, *run.steps.end] if time is not None]
        if wall is None or not times:
            return judge.missing(what, "the host's own time of the run is not in the report")
        passed = wall if run.waited_seconds is None else run.waited_seconds
        least = self.options.clock_share * passed - self.options.clock_slack
        most = wall + self.options.clock_slack
        return judge.held(
            what,
            least <= max(times) <= most,
            f"{max(times):.3f} s",
            f"{max(least, 0.0):.3f} to {most:.3f} s",
            f"the run by its own clock; {self.options.clock_share:g} x {passed:.3f} s by the host's - "
            f"{self.options.clock_slack:g} s, to its {wall:.3f} s in all + {self.options.clock_slack:g} s",
        )

    def _floor(self, judge: Judge, where: str, report: Report, run: RunData) -> Verdict:
        """No step takes less than bytes over bandwidth, or operations over rate, whichever is more."""
        what, steps = f"not faster than the floor{where}", run.steps
        facts, ceilings = report.conditions.model.facts, report.conditions.ceilings
        if ceilings is None or facts is None:
            finds = "" if report.conditions.clock == "virtual" else "; musebench doctor --measure"
            return judge.missing(what, f"the device's ceilings are not known{finds}")
        if steps.attended_cells is None or not len(steps):
            return judge.missing(what, "the report does not hold the steps' shapes")
        least = floors(
            facts,
            ceilings,
            np.array(steps.decode_tokens) + np.array(steps.prefill_tokens),
            np.array(steps.logit_rows),
            np.array(steps.attended_cells),
            np.array(steps.attended_pairs),
            np.array(steps.forwards),
        )
        large = least.moved_bytes >= self.options.floor_bytes
        if not large.any():
            most = pretty(int(least.moved_bytes.max()), "bytes")
            limit = pretty(self.options.floor_bytes, "bytes")
            return judge.missing(what, f"the largest step moves {most}, below {limit} caches may serve it")
        device = np.array(steps.device_seconds, np.float64)
        # Without a device time: what the host could see of the step, an upper bound of it.
        seen = np.where(np.isnan(device), _seen_seconds(run), device)
        allowed = self.options.floor_share
        if report.choices.backend.name == "cpu":
            allowed = self.options.host_floor_share
        share = np.where(large, least.seconds / np.maximum(seen, 1e-12), 0.0)
        worst = int(share.argmax())
        return judge.held(
            what,
            bool(share[worst] <= allowed),
            f"step {worst} took {pretty(float(seen[worst]), 's')}",
            f"at least {pretty(float(least.seconds[worst] / allowed), 's')}",
            f"{int(least.moved_bytes[worst]):,} bytes at {ceilings.copy_bytes_per_second:.4g} bytes/s and "
            f"operations at {ceilings.flops_per_second:.4g}/s, over {allowed:g}; the worst "
            f"of {int(large.sum()):,} steps",
        )


def _audit(judge: Judge, where: str, run: RunData) -> Verdict:
    what, audit = f"executor held to its word{where}", run.audit
    if audit is None:
        return judge.missing(what, "the report holds no audit")
    found = [f"{audit[name]:,} {why}" for name, why in FINDINGS.items() if audit.get(name)]
    launched, counted = audit.get("forwards", 0), sum(run.steps.forwards)
    if launched < counted:
        found.append(f"{counted:,} forwards are counted and {launched:,} were asked for")
    return judge.found(what, found, f"{launched:,} forwards as packed, launched, waited for and given on")


def _device_time(judge: Judge, where: str, report: Report, run: RunData) -> Verdict:
    """A step that ran took time on the device, and no more than the host saw pass: tokens that are known
    before the device is done were not waited for."""
    what, steps = f"device synchronised{where}", run.steps
    known = [row for row, seconds in enumerate(steps.device_seconds) if seconds is not None]
    if not known:
        if report.choices.backend.name in MEASURING and len(steps) and run.audit is not None:
            return judge.found(what, ["device time is missing for all steps"], "the backend measures it")
        return judge.missing(what, "device time was not measured")
    found = []
    for row in known:
        seconds, passed = steps.device_seconds[row], steps.end[row] - steps.start[row]
        assert seconds is not None
        if seconds <= 0 and steps.forwards[row]:
            found.append(f"step {row} ran {steps.forwards[row]:,} forwards in {seconds:g} s on the device")
        elif seconds > passed + TIME_TOLERANCE:
            found.append(
                f"step {row} took {seconds:.6f} s on the device, and its tokens were known after "
                f"{passed:.6f} s"
            )
    return judge.found(what, found, "0 < device time <= the time until the step's tokens were known")


def _seen_seconds(run: RunData) -> np.ndarray:
    steps = run.steps
    end, start = np.array(steps.end, np.float64), np.array(steps.start, np.float64)
    return end - np.maximum(start, np.concatenate([[-np.inf], end[:-1]]))
