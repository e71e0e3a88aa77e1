"""`musebench check`, `musebench run --check` and `--bound`: what they print, write and exit with."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner
from junitparser import JUnitXml
from report_examples import mixed_run, report

from musebench.cli import root
from musebench.core.errors import UnsupportedError, UsageError
from musebench.neighbours import check_neighbours
from musebench.plugin.registry import Registry
from musebench.report import files
from musebench.run import RunOptions


def invoke(*arguments, code=0):
    result = CliRunner().invoke(root, list(arguments))
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def run_once(tmp_path_factory):
    """A run with everything on, and its report's file."""
    path = tmp_path_factory.mktemp("check") / "report.json"
    result = invoke(
        "run", "capitals", "--reference", "transformers", "--bound", "--check", "--out", str(path)
    )
    return result, path


def test_run_checks_at_once_and_prints_the_bound_first(run_once):
    result, _ = run_once
    assert "| memory bound " in result.stderr
    assert "rows: (1,028 rows under 'geometric' + scratch) x 2,048 bytes" in result.stderr
    assert "0 failed" in result.stdout
    assert "weights, weights load once: " in result.stdout


def test_check_says_the_same_of_the_report_later(run_once):
    result, path = run_once
    later = invoke("check", str(path)).stdout
    assert later.strip() in result.stdout


EXACT_CLOCK = ("--clock-share", "1", "--clock-slack", "0")
"""A threshold that `behind` does not meet."""


@pytest.fixture(scope="module")
def behind(run_once):
    """The file of the same report, its clock a fiftieth behind the host's."""
    _, path = run_once
    report = files.read(path)
    run = report.runs[0]
    host = 1.02 * max(run.steps.end)
    slow = replace(report, runs=[replace(run, waited_seconds=host, wall_seconds=host)])
    return files.write(slow, path.with_name("behind.json"))


def test_a_threshold_is_a_flag_and_an_option_of_the_check(behind):
    path = behind
    sets = ("--set", "honest.clock-share=1", "--set", "honest.clock-slack=0")
    for arguments in (EXACT_CLOCK, sets):
        result = invoke("check", str(path), "--only", "honest", *arguments, code=1)
        assert "FAILED honest of " in result.stdout
        assert "; 1 x " in result.stdout
    invoke("check", str(path), "--only", "honest")


def test_two_reports_are_held_against_each_other(run_once, tmp_path):
    _, path = run_once
    first = files.read(path)
    tokens = list(first.runs[0].requests.token_ids)
    tokens[0] += 1
    requests = replace(first.runs[0].requests, token_ids=tokens)
    other = replace(first, id="other", runs=[replace(first.runs[0], requests=requests)])
    result = invoke("check", str(path), str(files.write(other, tmp_path / "other.json")), code=1)
    failed = [line for line in result.stdout.splitlines() if line.startswith("FAILED ")]
    assert [line.split(":")[0] for line in failed] == [
        "FAILED determinism of other",
        "FAILED reference of other",
        "FAILED tokens of other",
    ]


def test_formats_and_junit(behind, tmp_path):
    path = behind
    junit = tmp_path / "folder" / "checks.xml"
    arguments = ("check", str(path), *EXACT_CLOCK, "--junit", str(junit))
    made = json.loads(invoke(*arguments, "--format", "json", code=1).stdout)
    assert made["passed"] is False
    outcomes = [one["outcome"] for one in made["verdicts"]]
    assert {"passed", "FAILED", "not judged"} == set(outcomes)
    lines = invoke(*arguments, "--format", "csv", code=1).stdout.splitlines()
    assert lines[0] == "report,check,what,outcome,measured,bound,sums,reason"
    assert len(lines) == len(outcomes) + 1
    (suite,) = list(JUnitXml.fromfile(str(junit)))
    assert (suite.tests, suite.failures, suite.skipped) == (
        len(outcomes), outcomes.count("FAILED"), outcomes.count("not judged"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("nothing to check", "--neighbours")),
        (("nowhere.json",), ("nowhere.json",)),
        (("REPORT", "--only", "pol"), ("pol", "pool")),
        (("REPORT", "--weights-factor", "much"), ("weights_factor", "much", "number")),
        (("REPORT", "--set", "weights=1"), ("CHECK.OPTION=VALUE",)),
        (("REPORT", "--set", "pools.x=1"), ("pools", "pool")),
        (("--neighbours", "single"), ("single", "one request")),
        (("--neighbours", "capitals", "--executor", "graph"), ("graph", "--executor eager")),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(arguments, words, run_once):
    arguments = [str(run_once[1]) if one == "REPORT" else one for one in arguments]
    result = invoke("check", *arguments, code=2)
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("musebench: error:")]
    for word in words:
        assert word in line


def test_a_drawn_token_has_no_reference():
    drawn = ("--set", "workload.sampling.temperature=1")
    result = invoke("run", "single", "--reference", "transformers", *drawn, code=2)
    assert "greedy" in result.stderr
    assert "nobody" in invoke("run", "single", "--reference", "nobody", code=2).stderr


def test_example_reports_are_judged_without_a_traceback(tmp_path):
    path = files.write(report(mixed_run(), mixed_run()), tmp_path / "example.json")
    result = invoke("check", str(path), code=1)
    assert "2 refused (needs 107 cells; the pool has 64)" in result.stdout


# -- neighbours ---------------------------------------------------------------------------------------


def test_other_neighbours_change_no_bit_of_a_rows_logits():
    verdict = check_neighbours(RunOptions("mixed-small"), Registry.installed())
    assert verdict.valid, verdict.reason
    assert verdict.measured.startswith("0 of ")
    assert "15 other requests" in verdict.sums


class Leak:
    """Adds a millionth of one row's logits to the next row's: what a neighbour leaks."""

    def __init__(self, call):
        self.call = call

    def __call__(self, *arguments):
        logits = self.call(*arguments)
        return logits + 1e-6 * logits.roll(1, 0)


def test_a_neighbour_that_leaks_is_found():
    def plant(parts):
        parts.backend.program.model = Leak(parts.backend.program.model)

    verdict = check_neighbours(RunOptions("mixed-small"), Registry.installed(), plant)
    assert not verdict.valid
    assert "when the other 15 requests hold other tokens" in verdict.reason


def test_neighbours_need_a_workload_of_several_and_logits_that_can_be_read():
    with pytest.raises(UsageError, match="one request"):
        check_neighbours(RunOptions("single"), Registry.installed())
    with pytest.raises(UnsupportedError, match="graph"):
        check_neighbours(RunOptions("capitals", executor="graph"), Registry.installed())
