"""What is exact in a report, held exactly against a baseline: nothing here is measured, so nothing flakes.

Exact are the counts and bytes of every step, growth and request, the launches that the executor counted and
what an audit found beside them, the bytes that were computed, and on a virtual clock every time too. Tokens
themselves are not: another processor rounds otherwise, and other checks hold them. Times of a host's clock
are not judged at all.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

from musebench.core.audit import FINDINGS
from musebench.report.codec import encode
from musebench.report.difference import Difference, Samples, difference
from musebench.report.numbers import METRICS
from musebench.report.schema import Report, RunData

REQUEST_COLUMNS = (
    "id", "prompt_tokens", "generated_tokens", "max_new_tokens", "finish_reason", "preemptions", "correct",
    "prompt_sha256",
)  # fmt: skip
VIRTUAL_REQUEST_COLUMNS = (
    "arrival_seconds", "scheduled_seconds", "first_token_seconds", "last_token_seconds", "finish_seconds",
)  # fmt: skip
HOST_STEP_COLUMNS = ("start", "end", "device_seconds", "host_seconds")
HOST_GROWTH_COLUMNS = ("seconds",)

LAST_DIGITS = 1e-9


def gate(report: Report, baseline: Report) -> list[str]:
    """One line for each thing that differs, totals first; none when all that is exact is the same.

    A baseline of something else (other choices, workload, model or seed) is one line that says what.
    """
    other = list(_other_work(report, baseline))
    if other:
        return [f"the baseline is of something else, and judges nothing: {'; '.join(other)}"]
    new, old = _facts(report), _facts(baseline)
    lines = list(_totals(report, baseline))
    lines += [_line(name, old.get(name), new.get(name)) for name in _names(old, new)]
    return lines


def depends_on_speed(report: Report) -> bool:
    """Whether requests arrive over time on a host's clock: what is in a step then depends on its speed."""
    late = any(arrival > 0 for run in report.runs for arrival in run.requests.arrival_seconds)
    return late and report.conditions.clock != "virtual"


def _other_work(report: Report, baseline: Report) -> Iterator[str]:
    """What was asked for and differs. Dimensions that follow from it (limits, bounds) are facts."""
    for name, new, old in (
        ("clock", report.conditions.clock, baseline.conditions.clock),
        ("workload", report.conditions.workload, baseline.conditions.workload),
        ("model", report.conditions.model.name, baseline.conditions.model.name),
        ("weights", report.conditions.model.weights_sha256, baseline.conditions.model.weights_sha256),
        ("dtype", report.conditions.model.dtype, baseline.conditions.model.dtype),
        ("seed", report.conditions.seed, baseline.conditions.seed),
        ("warmup", report.conditions.warmup, baseline.conditions.warmup),
        ("repeats", report.conditions.repeats, baseline.conditions.repeats),
        ("device", report.choices.device, baseline.choices.device),
        *(
            (kind, _chosen(report, kind), _chosen(baseline, kind))
            for kind in ("engine", "executor", "pool", "scheduler")
        ),
    ):
        if new != old:
            yield f"{name} is {new}, the baseline's {old}"


def _chosen(report: Report, kind: str) -> tuple[str, dict[str, Any]]:
    choice = getattr(report.choices, kind)
    return ("none", {}) if choice is None else (choice.name, choice.options)


def _totals(report: Report, baseline: Report) -> Iterator[str]:
    """Metrics as a comparison has them: what a person wants to know first."""
    old, new = Samples([baseline]), Samples([report])
    for metric in METRICS:
        if not metric.shown:
            continue
        made = difference(metric, old.measured(metric), new.measured(metric), struck=False, judged=True)
        if made.exact and not _same(list(made.old.samples), list(made.new.samples)):
            yield f"{metric.name}: {_total(made)}"


def _total(made: Difference) -> str:
    return f"{_plain(made.old.value)} -> {_plain(made.new.value)} ({made.remark()})"


def _facts(report: Report) -> dict[str, Any]:
    """Everything exact, by the place it has in the report."""
    virtual = report.conditions.clock == "virtual"
    computed = encode(report.memory.computed)
    made = {f"memory.computed.{name}": value for name, value in computed.items()}
    made |= {f"costs.counters.{name}": value for name, value in _whole(report.costs.counters, virtual)}
    made |= {"status": report.status, "message": report.message, "runs": len(report.runs)}
    made |= {f"limits.{name}": value for name, value in (encode(report.choices.limits) or {}).items()}
    made |= {f"bounds.{name}": value for name, value in (encode(report.choices.bounds) or {}).items()}
    for index, run in enumerate(report.runs):
        made |= {f"runs[{index}].{name}": value for name, value in _run_facts(run, virtual)}
    return made


def _run_facts(run: RunData, virtual: bool) -> Iterator[tuple[str, Any]]:
    for name in (*REQUEST_COLUMNS, *(VIRTUAL_REQUEST_COLUMNS if virtual else ())):
        yield f"requests.{name}", getattr(run.requests, name)
    for field in dataclasses.fields(run.steps):
        if field.name != "programs" and (virtual or field.name not in HOST_STEP_COLUMNS):
            yield f"steps.{field.name}", getattr(run.steps, field.name)
    for name, column in run.steps.programs.items():
        yield f"steps.programs.{name}", column
    for field in dataclasses.fields(run.pool) if run.pool is not None else ():
        value = getattr(run.pool, field.name)
        if field.name == "growths":
            for entry in dataclasses.fields(value):
                if virtual or entry.name not in HOST_GROWTH_COLUMNS:
                    yield f"pool.growths.{entry.name}", getattr(value, entry.name)
        elif field.name == "counters":
            yield from ((f"pool.counters.{name}", count) for name, count in _whole(value, virtual))
        else:
            yield f"pool.{field.name}", value
    yield from ((f"counters.{name}", count) for name, count in _whole(run.counters, virtual))
    # What an executor did behind its own counts: an honest one nothing, and older baselines did not look.
    found = (run.audit or {}).items()
    yield from ((f"audit.{name}", count) for name, count in found if name in FINDINGS and count)


def _whole(counters: dict[str, Any], virtual: bool) -> Iterator[tuple[str, Any]]:
    """Counters that are whole numbers: others are a host's seconds, exact on a virtual clock alone."""
    for name, value in counters.items():
        if isinstance(value, int) or virtual:
            yield name, value


def _names(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What differs. A column that the baseline has as null was not recorded when it was made."""
    unknown = {name for name, value in old.items() if value is None and _is_column(new.get(name))}
    differing = [name for name in dict.fromkeys([*old, *new]) if not _same(old.get(name), new.get(name))]
    return [name for name in differing if name not in unknown]


def _same(old: Any, new: Any) -> bool:
    """Equal; of times on a virtual clock all but the last digits, in which processors may differ."""
    if _is_column(old) and _is_column(new):
        return bool(old == new) or (
            len(old) == len(new) and all(_same(a, b) for a, b in zip(old, new, strict=True))
        )
    if isinstance(old, float) and isinstance(new, float):
        return math.isclose(old, new, rel_tol=LAST_DIGITS, abs_tol=LAST_DIGITS**2)
    return bool(old == new)


def _is_column(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _line(name: str, old: Any, new: Any) -> str:
    if _is_column(old) and _is_column(new):
        return f"{name}: {_column(old, new)}"
    return f"{name}: {_plain(old)} -> {_plain(new)}"


def _column(old: Sequence[Any], new: Sequence[Any]) -> str:
    if len(old) != len(new):
        return f"{len(old):,} rows -> {len(new):,} rows"
    rows = [row for row, (a, b) in enumerate(zip(old, new, strict=True)) if not _same(a, b)]
    first = rows[0]
    return f"{len(rows):,} of {len(old):,} rows differ, first row {first}: {old[first]} -> {new[first]}"


def _plain(value: Any) -> str:
    if value is None:
        return "none"
    if _is_column(value):
        return f"{len(value):,} rows"
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
