"""Reports as pytest-benchmark's JSON, and back.

A benchmark is one group of repeats (musebench.report.groups), a round is one repeat, and its time is the span
of that repeat on the run's own clock: from the first arrival to the last finish, without load, warm-up and
capture. `extra_info` holds the numbers of a comparison by key, what was chosen, and the reports themselves
(gzip, base64), which is what `from_benchmarks` reads. pytest-benchmark's own statistics are used.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from typing import Any

from musebench.core.errors import InputError, UnsupportedError
from musebench.report import files, metrics
from musebench.report.difference import Samples
from musebench.report.groups import Group
from musebench.report.numbers import METRICS
from musebench.report.schema import Report
from musebench.report.verdict import judge

REPORTS = "musebench_reports"
"""The key in `extra_info` under which whole reports are."""


def spans(report: Report) -> list[float]:
    """Seconds of each repeat, of those that finished."""
    made = [metrics.span(run.requests) for run in report.runs]
    return [span for span in made if span is not None]


def extra_info(reports: Sequence[Report]) -> dict[str, Any]:
    """Numbers by key (medians, SI units), what was chosen, and the reports."""
    samples = Samples(reports)
    numbers = {metric.key: samples.measured(metric).value for metric in METRICS if metric.shown}
    choices = reports[0].choices
    return {
        **{key: value for key, value in numbers.items() if value is not None},
        **choices.named(),
        "device": choices.device,
        REPORTS: [base64.b64encode(gzip.compress(files.dumps(one), mtime=0)).decode() for one in reports],
    }


def name_of(report: Report) -> str:
    """What pytest-benchmark matches benchmarks by: workload and choices, the same on every commit."""
    choices, conditions = report.choices, report.conditions
    parts = (
        conditions.model.name, conditions.model.dtype, choices.device,
        *choices.named().values(),
    )  # fmt: skip
    return f"{conditions.workload.name}[{'-'.join(parts)}]"


def to_benchmarks(groups: Sequence[Group]) -> dict[str, Any]:
    """pytest-benchmark's JSON object of these groups.

    Raises:
        InputError: a report that is INVALID, whose time must not be compared.
        UnsupportedError: pytest-benchmark is not installed.
    """
    version, statistics = _pytest_benchmark()
    reports = [report for group in groups for report in group.reports]
    for report, judgement in zip(reports, judge(reports), strict=True):
        if not judgement.valid:
            raise InputError(f"report {report.id} is {judgement.line()}; its time is not to be compared")
    names = [name_of(group.reports[0]) for group in groups]
    benchmarks = []
    for name, group in zip(names, groups, strict=True):
        made = statistics()
        for span in (span for report in group.reports for span in spans(report)):
            made.update(span)
        unique = name if names.count(name) == 1 else f"{name} {group.label}"
        conditions = group.reports[0].conditions
        benchmarks.append(
            {
                "group": conditions.workload.name,
                "name": unique,
                "fullname": f"musebench::{unique}",
                "params": None,
                "param": None,
                "extra_info": extra_info(group.reports),
                "options": {"timer": conditions.clock, "warmup": conditions.warmup},
                "stats": {**made.as_dict(), "data": made.data, "iterations": 1},
            }
        )
    first = min(reports, key=lambda report: report.created)
    conditions = first.conditions
    return {
        "machine_info": {
            "node": "", "processor": conditions.cpu, "machine": conditions.device,
            "system": conditions.platform, "python_version": conditions.versions.get("python"),
            "cpu": {"brand_raw": conditions.cpu, "count": conditions.cores},
        },
        "commit_info": {
            "id": conditions.commit or "unversioned", "dirty": bool(conditions.dirty), "time": first.created,
            "project": "musebench", "branch": "(unknown)",
        },
        "benchmarks": benchmarks,
        "datetime": first.created,
        "version": version,
    }  # fmt: skip


def from_benchmarks(data: bytes, name: str) -> list[Report]:
    """The reports inside a pytest-benchmark JSON file; `name` starts each error.

    Raises:
        InputError: it is no such file, or a benchmark in it holds no musebench report.
    """
    try:
        values = json.loads(data)
        benchmarks = [(one["fullname"], one["extra_info"]) for one in values["benchmarks"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{name} is no JSON file of pytest-benchmark: {type(error).__name__}: {error}"
        ) from error
    made = []
    for benchmark, info in benchmarks:
        packed = info.get(REPORTS) if isinstance(info, dict) else None
        if not isinstance(packed, list) or not packed:
            raise InputError(
                f"{name}: benchmark {benchmark!r} holds no musebench report; those of the fixture "
                "`musebench` and of `musebench convert` do"
            )
        for text in packed:
            try:
                content = base64.b64decode(text, validate=True)
            except (TypeError, ValueError) as error:
                raise InputError(
                    f"{name}: benchmark {benchmark!r}: its report is broken ({error})"
                ) from error
            made.append(files.loads_any(content, f"{name}: the report of {benchmark!r}"))
    if not made:
        raise InputError(f"{name} holds no benchmark")
    return made


def _pytest_benchmark() -> tuple[str, Any]:
    try:
        import pytest_benchmark
        from pytest_benchmark.stats import Stats
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            "pytest-benchmark is not installed, and its statistics are needed; pip install pytest-benchmark"
        ) from error
    return pytest_benchmark.__version__, Stats
