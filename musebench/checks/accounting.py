"""`accounting`: tokens add up across requests, steps and metrics, and times are in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from musebench.checks.verdicts import Judge, runs
from musebench.core.options import NoOptions
from musebench.report import metrics
from musebench.report.column import total_of
from musebench.report.schema import COMPLETE, Report, RunData
from musebench.report.verdict import TIME_TOLERANCE, Verdict, check_sums, check_times


class AccountingCheck:
    """Output tokens: what requests hold, what decodes and prefills can have made, what throughput counts.
    Prompt tokens: every one of a request that succeeded was computed, or its cell was there already, and no
    more than once unless a sequence was preempted or a step failed."""

    covers: ClassVar[tuple[str, ...]] = ("times", "sums")

    def __init__(self, options: NoOptions) -> None:
        self.options = options

    def check(self, reports: Sequence[Report]) -> list[Verdict]:
        return [verdict for report in reports for verdict in self._of(report)]

    def _of(self, report: Report) -> list[Verdict]:
        judge, again = Judge("accounting", report.id), Judge("accounting", report.id, restates=True)
        made = [
            again.found("sums", list(check_sums(report)), "tokens, forwards, cells and bytes of every step"),
            again.found(
                "times", list(check_times(report)), "arrival <= scheduled <= first token <= last <= finish"
            ),
            _output_tokens(judge, report),
        ]
        for where, run in runs(report):
            made.append(_prompt_tokens(judge, where, run, report.status == COMPLETE))
            made += _durations(judge, where, run)
        return made


def _output_tokens(judge: Judge, report: Report) -> Verdict:
    total = metrics.throughput(report).output_tokens
    by_request = sum(
        run.requests.generated_tokens[row] for run in report.runs for row in run.requests.counted.tolist()
    )
    held = [len(ids) for run in report.runs if (ids := run.requests.token_ids) is not None]
    by_request_all = sum(
        sum(run.requests.generated_tokens) for run in report.runs if run.requests.token_ids is not None
    )
    return judge.held(
        "output tokens",
        total == by_request and sum(held) == by_request_all,
        f"{total:,} in throughput, {sum(held):,} ids",
        f"{by_request:,} of counted requests, {by_request_all:,} of all",
        "ids that came out, never those asked for",
    )


def _prompt_tokens(judge: Judge, where: str, run: RunData, complete: bool) -> Verdict:
    requests, steps = run.requests, run.steps
    if not run.told_steps:
        return judge.missing(f"prompt tokens{where}", "the engine does not tell its steps")
    computed = total_of(steps.prefill_tokens)
    served = [
        row
        for row, reason in enumerate(requests.finish_reason)
        if reason is not None and reason.succeeded and requests.generated_tokens[row]
    ]
    prompts = sum(requests.prompt_tokens[row] for row in served)
    asked = [row for row, most in enumerate(requests.max_new_tokens) if most]
    once = complete and len(served) == len(asked) and not sum(requests.preemptions)
    reused = sum(requests.reused_tokens or ())
    valid = computed + reused == prompts if once else computed + reused >= prompts
    return judge.held(
        f"prompt tokens{where}",
        valid,
        f"{computed:,} prefilled" + (f" + {reused:,} reused" if reused else ""),
        f"{prompts:,}" + ("" if once else " or more"),
        f"the prompts of {len(served):,} requests"
        + ("" if once else "; sequences that were preempted or failed are computed again or in part"),
    )


def _durations(judge: Judge, where: str, run: RunData) -> list[Verdict]:
    steps = run.steps
    if not len(steps):
        why = "there is no step" if run.told_steps else "the engine does not tell its steps"
        return [judge.missing(f"durations{where}", why)]
    starts, ends = np.asarray(steps.start, np.float64), np.asarray(steps.end, np.float64)
    span = float(ends.max() - starts.min())
    slack = TIME_TOLERANCE * len(steps)
    made = []
    parts = [("device", _seconds(steps.device_seconds)), ("host", _seconds(steps.host_seconds))]
    if (starts[1:] >= ends[:-1] - TIME_TOLERANCE).all():
        parts.append(("steps", ends - starts))
    for name, seconds in parts:
        if np.isnan(seconds).any():
            made.append(judge.missing(f"durations, {name}{where}", "not measured for every step"))
            continue
        total = float(seconds.sum())
        # The host's work on the last step goes on after that step's end.
        least = max(span, run.wall_seconds or 0.0) if name == "host" else span
        made.append(
            judge.held(
                f"durations, {name}{where}",
                total <= least + slack,
                f"{total:.6f} s",
                f"{least:.6f} s",
                f"the sum over {len(steps):,} steps; from the first step's start to the last one's end"
                + (", or the host's own time of the run" if least > span else ""),
            )
        )
    return made


def _seconds(column: Sequence[float | None]) -> np.ndarray:
    return np.array(column, np.float64)  # None becomes NaN
