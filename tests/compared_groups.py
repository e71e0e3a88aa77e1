"""Groups of reports whose times and counts are known, and how they compare."""

from __future__ import annotations

import dataclasses

from report_examples import report
from test_compare import one_step_pool, one_token_at

from musebench.report import files
from musebench.report.compare import compare_groups
from musebench.report.groups import Group, make_groups, read_sources
from musebench.report.schema import Choice

PLAIN = report()
STEADY = (1.0, 1.004, 0.996, 1.002, 0.998)


def made(seconds=0.1, executor="graph", pool_name="geometric", virtual=False, growths=0, **changed):
    """A report of one request that took `seconds`; `changed` are conditions."""
    choices = dataclasses.replace(
        PLAIN.choices,
        executor=Choice(executor, "musebench", "0.1.0", {}),
        pool=Choice(pool_name, "musebench", "0.1.0", {}),
    )
    conditions = dataclasses.replace(
        PLAIN.conditions, clock="virtual" if virtual else "host", **{"repeats": 1, **changed}
    )
    run = one_token_at(seconds)
    run = dataclasses.replace(run, pool=one_step_pool(preemptions=growths, bytes=8192 + growths))
    return report(run, choices=choices, conditions=conditions)


def repeats(seconds, **choices):
    return [made(seconds * factor, **choices) for factor in STEADY]


def compared(*groups, **choices):
    """Groups a, b, ... of these lists of reports, against the first."""
    named = [Group(label, tuple(one)) for label, one in zip("abcdef", groups, strict=False)]
    return compare_groups(named, [0] * len(named), "a", **choices)


def written(folder, name, *reports):
    """The reports as files in folder/name; returns that folder."""
    for index, one in enumerate(reports):
        files.write(one, folder / name / f"{index}.json")
    return folder / name


def labels(*arguments, **choices):
    return [group.label for group in make_groups(read_sources(arguments), **choices)]


def cell(comparison, name, column):
    (row,) = [row for table in comparison.tables for row in table.rows if row.name == name]
    return row.remarks[comparison.labels.index(column)]
