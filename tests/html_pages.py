"""Pages and reports that tests of the page look at, without a browser and in one."""

from __future__ import annotations

import dataclasses

from report_examples import mixed_run, pool, report, request, requests, steps

from musebench.report import html
from musebench.report.columns import RunData
from musebench.report.entries import entries

HOSTILE = "</script><img src=x onerror=alert(1)>&\"'\u2028{{ 7 * 7 }}"


def page_of(*reports, labels=None, baseline=0) -> str:
    labels = labels or [f"report-{index}" for index in range(len(reports))]
    return html.page(entries(reports, labels), baseline)


def invalid():
    return report(status="incomplete", message="interrupted")


def faster():
    """The same requests, answered by a fixed pool in half the time."""
    run = mixed_run()
    halved = {
        name: [None if value is None else value / 2 for value in getattr(run.requests, name)]
        for name in (
            "arrival_seconds", "scheduled_seconds", "first_token_seconds", "last_token_seconds",
            "finish_seconds",
        )
    }  # fmt: skip
    quick = dataclasses.replace(run.requests, **halved)
    half = dataclasses.replace(run.steps, start=[0.0, 0.05, 0.1], end=[0.05, 0.1, 0.2])
    made = report(RunData(quick, half, run.pool))
    choices = dataclasses.replace(made.choices, pool=dataclasses.replace(made.choices.pool, name="fixed"))
    return dataclasses.replace(made, id="20250102-030405-fedcba", choices=choices)


def long_run(count: int) -> RunData:
    ends = [0.01 * (index + 1) for index in range(count)]
    slow = [0.02 if index == 777 else 0.01 for index in range(count)]
    rows = [
        request(
            f"r{index}", scheduled_seconds=0.0, first_token_seconds=ends[index],
            last_token_seconds=ends[index], finish_seconds=ends[index],
        )
        for index in range(count)
    ]  # fmt: skip
    return RunData(requests(*rows), steps(ends, device_seconds=slow), pool())
