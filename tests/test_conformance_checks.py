"""Checks: built-in ones keep the laws, and planted faults are found by theirs, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conformance_laws import assert_broken

from musebench.plugin.registry import Registry
from musebench.report.verdict import Verdict
from musebench.testing import CheckConformance
from musebench.testing.laws.check import hold_check

REGISTRY = Registry.installed()


@pytest.mark.parametrize("name", [component.name for component in REGISTRY.components("check")])
def test_built_in_checks_keep_every_law(name):
    component = REGISTRY.get("check", name)
    for finding in hold_check(lambda: component.make({}), examples=8):
        assert finding.outcome == ("not judged" if finding.law.name == "fails" else "held"), finding.text()


class TestPoolCheck(CheckConformance):
    examples = 8

    def make(self):
        return REGISTRY.get("check", "pool").make({})

    def broken(self, report):
        runs = [replace(run, left_in_use=3) for run in report.runs]
        return replace(report, runs=runs)


class NeverFails:
    def check(self, reports):
        return [Verdict(report.id, "never", True, what="nothing") for report in reports]


class FailsWithoutAReason:
    def check(self, reports):
        return [Verdict(report.id, "mute", False) for report in reports]


class WantsMemory:
    def check(self, reports):
        return [
            Verdict(report.id, "memory", report.memory.snapshots["peak"].host_peak != 0) for report in reports
        ]


BROKEN_CHECKS = {
    NeverFails: ("fails", "none of its 1 verdicts fails the report that must fail"),
    FailsWithoutAReason: ("verdicts", "without a reason"),
    WantsMemory: ("errors", "KeyError was raised"),
}


@pytest.mark.parametrize("kind", BROKEN_CHECKS, ids=lambda kind: kind.__name__)
def test_a_broken_check_is_found_by_its_law_in_words(kind):
    law, words = BROKEN_CHECKS[kind]
    broken = (lambda report: report) if law == "fails" else None
    assert_broken(hold_check(kind, broken, examples=20), {law}, words)
