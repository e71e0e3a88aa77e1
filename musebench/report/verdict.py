"""Whether a report's numbers may be believed: VALID, or INVALID with every reason.

`CHECKS` are what every report is held to, alone and without a threshold: functions of one report that yield
reasons, one line each. A check of the kind `check` (musebench/checks, and those of plugins) sees all reports
that are shown together and answers with `Verdict`s, each with what was measured, its bound and the sum.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from musebench.core.answers import wrong
from musebench.core.blame import told
from musebench.report import metrics
from musebench.report.column import Column, bounds_of, column_of, total_of
from musebench.report.replicas import parts
from musebench.report.schema import COMPLETE, PoolData, Report, RequestColumns, RunData, StepColumns

TIME_TOLERANCE = 1e-6
"""Seconds by which two readings of one moment may differ."""


@dataclass(frozen=True)
class Verdict:
    """What one check says of the report with the id `report`; `reason` is one line, "" when it is valid.

    `what` was held: `measured` against `bound`, and `sums` say how both came about. Not `judged`: the report
    does not hold what it takes, and `reason` says what is missing; that is valid. With `strikes` False a
    verdict that is not valid fails `musebench check`, but the report's numbers may be believed. One that
    `restates` gives with its sums what one of `CHECKS` finds, which speaks for itself in a judgement.
    """

    report: str
    check: str
    valid: bool
    reason: str = ""
    what: str = ""
    measured: str = ""
    bound: str = ""
    sums: str = ""
    judged: bool = True
    strikes: bool = True
    restates: bool = False

    @property
    def outcome(self) -> str:
        """ "passed", "FAILED" or "not judged"."""
        return ("passed" if self.judged else "not judged") if self.valid else "FAILED"


class Check(Protocol):
    """Sees all reports together, answers for each it has something to say about.

    A check may have `covers`, names of `CHECKS` that its verdicts restate.
    """

    def check(self, reports: Sequence[Report]) -> list[Verdict]: ...


@dataclass(frozen=True)
class Judgement:
    """All reasons against one report, in the order of the checks."""

    reasons: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        return not self.reasons

    def line(self) -> str:
        """ "VALID", or "INVALID: ..." with all reasons."""
        return "VALID" if self.valid else f"INVALID: {'; '.join(self.reasons)}"


def ask(check: Check, reports: Sequence[Report]) -> list[Verdict]:
    """Its verdicts; where it fails, or answers with something else, one against each report: what could not
    be judged is not believed."""
    try:
        made = check.check(reports)
        if not isinstance(made, list) or not all(isinstance(one, Verdict) for one in made):
            raise wrong(made, "a list of verdicts", check, "check")
        return made
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:
        name, reason = type(check).__name__, f"it could not judge: {told(error)}"
        return [Verdict(report.id, name, False, reason, what=name) for report in reports]


def judge(reports: Sequence[Report], checks: Iterable[Check] = ()) -> list[Judgement]:
    """One judgement a report: `CHECKS`, then `checks`."""
    reasons = [[reason for check in CHECKS.values() for reason in check(report)] for report in reports]
    for check in checks:
        for verdict in ask(check, reports):
            for report, found in zip(reports, reasons, strict=True):
                struck = not verdict.valid and verdict.strikes and not verdict.restates
                if struck and verdict.report == report.id:
                    found.append(f"{verdict.check}: {verdict.reason}")
    return [Judgement(tuple(found)) for found in reasons]


def verdicts_of(reports: Sequence[Report], checks: Iterable[Check]) -> list[Verdict]:
    """Every verdict of every check, report after report; of `CHECKS` that no check covers, those that find
    something."""
    given = list(checks)
    covered = {name for check in given for name in getattr(check, "covers", ())}
    made = [
        Verdict(report.id, name, False, reason, what=name)
        for report in reports
        for name, check in CHECKS.items()
        if name not in covered
        for reason in check(report)
    ]
    for check in given:
        made += ask(check, reports)
    order = {report.id: place for place, report in enumerate(reports)}
    return sorted(made, key=lambda verdict: order.get(verdict.report, len(order)))


def exit_code(report: Report, checks: Iterable[Check] = ()) -> int:
    """0 for a valid report, 1 for one that is INVALID (one in which no request succeeded among them)."""
    (judgement,) = judge([report], checks)
    return 0 if judgement.valid else 1


def check_complete(report: Report) -> Iterator[str]:
    """The run ended, and every repeat that was asked for is there."""
    if report.status != COMPLETE:
        yield f"the run is incomplete ({report.message or 'no message'})"
    elif len(report.runs) != report.conditions.repeats:
        yield f"{len(report.runs)} of {report.conditions.repeats} repeats are there"


def check_success(report: Report) -> Iterator[str]:
    """Some request succeeded; otherwise how all of them ended."""
    outcome = metrics.outcome(report)
    if not outcome.requests:
        yield "there is no request in it"
    elif not outcome.succeeded:
        ends = [
            f"{count:,} {reason}{f' ({message})' if message else ''}"
            for (reason, message), count in list(outcome.reasons.items())[:3]
        ]
        more = f" and {len(outcome.reasons) - 3:,} more reasons" if len(outcome.reasons) > 3 else ""
        yield f"none of {outcome.requests:,} requests succeeded: {', '.join(ends)}{more}"


def check_answers(report: Report) -> Iterator[str]:
    """Every expected answer came."""
    outcome = metrics.outcome(report)
    if outcome.wrong:
        yield f"{outcome.wrong:,} of {outcome.expected:,} answers are wrong"


def check_samples(report: Report) -> Iterator[str]:
    """No request that succeeded lacks a time, and device time is measured for every step or for none."""
    for where, run in _runs(report):
        requests, steps = run.requests, run.steps
        for name in ("scheduled_seconds", "first_token_seconds", "last_token_seconds", "finish_seconds"):
            known = np.array(getattr(requests, name), np.float64)[requests.counted]
            missing = int(np.isnan(known).sum())
            if missing:
                yield f"{where}{missing:,} requests that succeeded have no {name}"
        unfinished = sum(reason is None for reason in requests.finish_reason)
        if unfinished and report.status == COMPLETE:
            yield f"{where}{unfinished:,} requests neither finished nor failed"
        seconds = steps.device_seconds
        unknown = 0 if isinstance(seconds, Column) else sum(time is None for time in seconds)
        if 0 < unknown < len(steps):
            yield f"{where}device time is missing for {unknown:,} of {len(steps):,} steps"


def check_times(report: Report) -> Iterator[str]:
    """Times of a request and of the steps are in order, and a token is as old as the step that made it."""
    for where, run in _runs(report):
        yield from (where + reason for reason in _request_times(run.requests))
        yield from (where + reason for reason in _step_times(run.steps))
        yield from (where + reason for reason in _token_times(run))


def check_sums(report: Report) -> Iterator[str]:
    """Tokens, forwards, cells and bytes add up."""
    for where, run in _runs(report):
        yield from (where + reason for reason in _token_sums(run))
        if run.pool is not None:
            yield from (where + reason for reason in _pool_sums(run.pool, run.steps))


CHECKS: dict[str, Callable[[Report], Iterator[str]]] = {
    "complete": check_complete,
    "success": check_success,
    "answers": check_answers,
    "samples": check_samples,
    "times": check_times,
    "sums": check_sums,
}
"""By name."""


def _runs(report: Report) -> Iterator[tuple[str, RunData]]:
    """Each run, or each of its replicas, with the words that name it in a reason: none when there is one
    only."""
    for index, run in enumerate(report.runs):
        where = f"run {index + 1}: " if len(report.runs) > 1 else ""
        for place, part in enumerate(parts(run)):
            yield (f"{where}replica {place}: " if run.replicas else where), part


def _request_times(requests: RequestColumns) -> Iterator[str]:
    columns: list[tuple[str, Sequence[float | None]]] = [
        ("arrival", requests.arrival_seconds),
        ("admission", requests.scheduled_seconds),
        ("first token", requests.first_token_seconds),
        ("last token", requests.last_token_seconds),
        ("finish", requests.finish_seconds),
    ]
    for row in _suspect_requests([np.array(column, np.float64) for _, column in columns]):
        known = [(what, column[row]) for what, column in columns if column[row] is not None]
        for (before, start), (after, end) in itertools.pairwise(known):
            if end < start:  # type: ignore[operator]
                yield f"request {requests.id[row]!r}: {after} at {end} s is before {before} at {start} s"
                return


def _suspect_requests(columns: list[np.ndarray]) -> list[int]:
    """Rows in which a time is before one that should be earlier; NaN where there is none."""
    latest = np.maximum.accumulate(np.nan_to_num(np.stack(columns), nan=-np.inf))
    late = np.stack(columns[1:]) < latest[:-1]
    return [int(row) for row in np.flatnonzero(late.any(0))]


def _step_times(steps: StepColumns) -> Iterator[str]:
    for row in _suspect_steps(steps):
        if steps.end[row] < steps.start[row]:
            yield f"step {row} ends at {steps.end[row]} s, before its start at {steps.start[row]} s"
            return
        if row and (steps.end[row] < steps.end[row - 1] or steps.start[row] < steps.start[row - 1]):
            yield f"step {row} is earlier than step {row - 1}"
            return
        for what, seconds in (("device", steps.device_seconds[row]), ("host", steps.host_seconds[row])):
            if seconds is not None and seconds < 0:
                yield f"step {row} took {seconds} s on the {what}"
                return


def _suspect_steps(steps: StepColumns) -> list[int]:
    """Rows in which something may be wrong with a time, in order: all at once, for there are many steps."""
    start, end = (np.array(column, np.float64) for column in (steps.start, steps.end))
    wrong = end < start
    wrong[1:] |= (np.diff(end) < 0) | (np.diff(start) < 0)
    for column in (steps.device_seconds, steps.host_seconds):
        wrong |= np.array(column, np.float64) < 0  # None becomes NaN, which is not below 0
    return [int(row) for row in np.flatnonzero(wrong)]


def _token_times(run: RunData) -> Iterator[str]:
    requests, made = run.requests, run.requests.token_steps
    if not made:
        yield from _told_times(requests)
        return
    rows = column_of(made)
    counts = np.asarray(requests.generated_tokens, np.int64)
    ends_of = np.cumsum(counts)
    falls = rows.falls()  # a token whose step is before that of the one before it
    inside = falls[~np.isin(falls, ends_of)]  # where the next request begins it may be
    wrong = int(np.searchsorted(ends_of, inside[0], side="right")) if len(inside) else len(counts)
    some = np.flatnonzero(counts)
    steps_end = np.array(run.steps.end, np.float64)
    found = []  # in a request: the first of these
    for what, places, column in (
        ("first", ends_of[some] - counts[some], requests.first_token_seconds),
        ("last", ends_of[some] - 1, requests.last_token_seconds),
    ):
        steps, seen = rows.at(places), np.array(column, np.float64)[some]
        off = np.flatnonzero(np.abs(seen - steps_end[steps]) > TIME_TOLERANCE)  # NaN is not off
        if len(off):
            found.append((int(some[off[0]]), what, int(steps[off[0]]), column))
    row, what, step, column = min(found, key=lambda one: one[0], default=(len(counts), "", 0, []))
    if wrong < len(counts) and wrong <= row:
        yield f"request {requests.id[wrong]!r}: its tokens are not in the order of their steps"
    elif found:
        yield (
            f"request {requests.id[row]!r}: {what} token at {column[row]} s, but its step {step} ended at "
            f"{run.steps.end[step]} s"
        )


def _told_times(requests: RequestColumns) -> Iterator[str]:
    """Of tokens whose times an engine told: in order, between the first and the last."""
    at = 0
    for row, (name, count) in enumerate(zip(requests.id, requests.generated_tokens, strict=True)):
        if requests.token_seconds is None:
            return
        mine = [seconds for seconds in requests.token_seconds[at : at + count] if seconds is not None]
        at += count
        for before, after in itertools.pairwise(mine):
            if after < before:
                yield f"request {name!r}: a token at {after} s comes after one at {before} s"
                return
        last = requests.last_token_seconds[row]
        if mine and last is not None and mine[-1] > last + TIME_TOLERANCE:
            yield f"request {name!r}: a token at {mine[-1]} s, and its last at {last} s"
            return


def _token_sums(run: RunData) -> Iterator[str]:
    requests, steps = run.requests, run.steps
    for name, made, most in zip(requests.id, requests.generated_tokens, requests.max_new_tokens, strict=True):
        if made > most:
            yield f"request {name!r} made {made:,} tokens of at most {most:,}"
            return
    if not run.told_steps:
        return
    made_by_decode = sum(requests.generated_tokens) - sum(made > 0 for made in requests.generated_tokens)
    # The first token after a preemption comes from the prefill that computes the sequence again.
    decode_tokens = total_of(steps.decode_tokens)
    decoded = decode_tokens + sum(requests.preemptions)
    if made_by_decode > decoded:
        yield (
            f"{made_by_decode:,} tokens after the first came out of {decode_tokens:,} decode "
            f"tokens and {sum(requests.preemptions):,} preemptions"
        )
    if steps.programs:
        sums = sum((np.asarray(column, np.int64) for column in steps.programs.values()), start=np.int64(0))
        for row in np.flatnonzero(sums != np.asarray(steps.forwards, np.int64)).tolist():
            forwards, by_program = steps.forwards[row], sum(one[row] for one in steps.programs.values())
            if by_program != forwards:
                yield f"step {row} counts {forwards} forwards, its programs {by_program}"
                return


def _pool_sums(pool: PoolData, steps: StepColumns) -> Iterator[str]:
    held, there = np.asarray(steps.in_use, np.int64), np.asarray(steps.rows, np.int64)
    for row in np.flatnonzero(held > np.maximum(there - 1, 0)).tolist():
        rows, in_use = steps.rows[row], steps.in_use[row]
        if in_use > max(rows - 1, 0):
            yield f"step {row}: {in_use:,} cells in use of {max(rows - 1, 0):,}"
            return
    most = bounds_of(steps.in_use)[1] if steps.in_use else 0
    if pool.most_in_use < most:
        yield f"the pool says that {pool.most_in_use:,} cells were in use at most, a step had {most:,}"
    if pool.capacity is not None and pool.most_in_use > pool.capacity:
        yield f"{pool.most_in_use:,} cells in use exceed the capacity of {pool.capacity:,}"
    if steps.rows and pool.bytes < steps.rows[-1] * pool.cell_bytes:
        sum_of_rows = f"{steps.rows[-1]:,} rows x {pool.cell_bytes:,} bytes"
        yield f"the pool's {pool.bytes:,} bytes are less than {sum_of_rows}"
