"""Verdicts as JUnit's XML, for CI."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from musebench.core.whole import write_whole
from musebench.report.verdict import Verdict


def write_junit(verdicts: Sequence[Verdict], path: Path) -> None:
    """A test suite a report and a test case a verdict; those that could not be judged are skipped.

    Raises:
        InputError: the file cannot be written.
    """
    from junitparser import Failure, JUnitXml, Skipped, TestCase, TestSuite

    whole = JUnitXml("musebench check")
    for report in dict.fromkeys(verdict.report for verdict in verdicts):
        suite = TestSuite(report)
        for verdict in verdicts:
            if verdict.report != report:
                continue
            case = TestCase(verdict.what or verdict.check, f"musebench.{verdict.check}")
            case.system_out = f"measured {verdict.measured}; bound {verdict.bound}; {verdict.sums}"
            if not verdict.valid:
                case.result = [Failure(verdict.reason)]
            elif not verdict.judged:
                case.result = [Skipped(verdict.reason)]
            suite.add_testcase(case)
        whole.add_testsuite(suite)
    data = io.BytesIO()
    whole.write(data, pretty=True)
    write_whole(path, data.getvalue(), "the JUnit file")
