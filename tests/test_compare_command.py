"""`musebench compare`: which report is the baseline, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import failed, run
from report_examples import report

from musebench.report import files

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture
def reports(tmp_path, monkeypatch) -> Path:
    """A folder, made the current one, with the same report as one.json, two.json and base.json.gz."""
    monkeypatch.chdir(tmp_path)
    for name in ("one.json", "two.json", "base.json.gz"):
        files.write(dataclasses.replace(report(), id=name), tmp_path / name)
    return tmp_path


def compared(*arguments: str) -> dict:
    result = run("compare", *arguments, "--format", "json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.usefixtures("reports")
def test_first_report_is_the_baseline_unless_another_is_named():
    assert compared("one.json", "two.json")["baseline"] == "one"
    assert compared("one.json", "two.json", "--baseline", "two.json")["baseline"] == "two"


@pytest.mark.usefixtures("reports")
def test_baseline_that_is_none_of_the_reports_becomes_a_column():
    made = compared("one.json", "two.json", "--baseline", "base.json.gz")
    assert made["baseline"] == "base"
    assert list(made["verdicts"]) == ["base", "one", "two"]


@pytest.mark.usefixtures("reports")
@pytest.mark.parametrize("form", ["github", "plain", "csv", "html"])
def test_comparison_is_shown_in_the_format_asked_for(form):
    result = run("compare", "one.json", "two.json", "--format", form)
    assert result.exit_code == 0
    assert "two" in result.stdout


@pytest.mark.usefixtures("reports")
def test_missing_baseline_says_how_to_make_one_and_ends_well():
    result = run("compare", "one.json", "--baseline", "gone.json")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "there is no baseline at gone.json" in result.stderr
    assert "to make one" in result.stderr


@pytest.mark.usefixtures("reports")
def test_missing_baseline_that_is_required_fails():
    line = failed("compare", "one.json", "--baseline", "gone.json", "--require-baseline")
    assert "there is no baseline at gone.json" in line


@pytest.mark.usefixtures("reports")
def test_required_baseline_without_a_name_fails():
    assert "--require-baseline needs --baseline" in failed("compare", "one.json", "--require-baseline")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", None])
def test_report_that_cannot_be_read_is_refused_by_name(reports, content):
    if content is not None:
        (reports / "bad.json").write_bytes(content)
    assert "bad.json" in failed("compare", "one.json", "bad.json")


def test_compare_imports_no_torch(reports):
    code = (
        "import sys\nfrom musebench.cli import root\n"
        "try: root.main(['compare', 'one.json'], prog_name='musebench')\n"
        "except SystemExit as ended: assert not ended.code\n"
        "assert not {'torch', 'transformers', 'triton'} & set(sys.modules)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-c", code], cwd=reports, env=environment, check=True)
