"""Reports with something changed in them, and what a check says of one."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

from musebench.core.protocols import MemorySnapshot
from musebench.report.verdict import verdicts_of


def verdicts(registry, name, *reports, **options):
    """The check's own; what every report is held to may find the same fault."""
    made = verdicts_of(reports, [registry.get("check", name).make(options)])
    return [one for one in made if one.check == name]


def failures(registry, name, *reports, **options):
    return [one for one in verdicts(registry, name, *reports, **options) if not one.valid]


def the_failure(registry, name, *reports, **options):
    (failed,) = failures(registry, name, *reports, **options)
    return failed


def with_run(report, index=0, **changed):
    runs = list(report.runs)
    runs[index] = replace(runs[index], **changed)
    return replace(report, runs=runs)


def with_requests(report, index=0, **changed):
    return with_run(report, index, requests=replace(report.runs[index].requests, **changed))


def with_steps(report, index=0, **changed):
    return with_run(report, index, steps=replace(report.runs[index].steps, **changed))


def with_pool(report, **changed):
    return with_run(report, 0, pool=replace(report.runs[0].pool, **changed))


def with_snapshots(report, **changed):
    snapshots = {name: MemorySnapshot(**values) for name, values in changed.items()}
    return replace(report, memory=replace(report.memory, snapshots={**report.memory.snapshots, **snapshots}))


def again(report, **changed):
    """The same report under another id."""
    return replace(report, id="again", **changed)


def swapped(report, place, index=0):
    """With the token at `place` of all made another one."""
    tokens = list(report.runs[index].requests.token_ids)
    tokens[place] = (tokens[place] + 1) % 100
    return with_requests(report, index, token_ids=tokens)


def one_run(report):
    return replace(report, runs=report.runs[:1], conditions=dataclasses.replace(report.conditions, repeats=1))
