"""The committed baselines: their reports can be read, and the tables made of them are current."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from musebench.cli import root
from musebench.report import files

BASELINES = Path(__file__).resolve().parents[1] / "results" / "baselines"
H200 = BASELINES / "h200"


@pytest.mark.parametrize("path", sorted(H200.rglob("*.json.gz")), ids=lambda path: path.name)
def test_a_committed_report_can_be_read_and_is_complete(path):
    assert files.read(path).status == "complete"


def test_the_tables_of_the_h200_page_are_those_of_its_reports():
    done = subprocess.run([sys.executable, str(H200 / "make.py"), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr or "run python results/baselines/h200/make.py"


@pytest.mark.parametrize("model", ["bundled", "smollm2-135m"])
def test_the_acceptance_on_the_h200_passes_from_its_reports(model):
    """All four executors' reports of it, held to the checks again; each answered rightly."""
    reports = sorted(str(path) for path in (H200 / "acceptance").glob(f"{model}-*.json"))
    assert len(reports) == 5
    only = [word for name in ("answers", "tokens", "weights", "pool") for word in ("--only", name)]
    result = CliRunner().invoke(root, ["check", *reports, "--across-workloads", *only, "--format", "json"])
    assert result.exit_code == 0, result.output
    verdicts = json.loads(result.stdout)["verdicts"]
    assert {one["check"] for one in verdicts if one["outcome"] == "passed"} == {
        "answers", "tokens", "weights", "pool"
    }  # fmt: skip


def test_no_report_names_a_place_of_the_machine_it_was_made_on():
    places = re.compile(r"[ \"=]/(?:root|tmp|work|home)/")
    for path in [*H200.rglob("*.json"), *H200.rglob("*.json.gz")]:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        assert not places.search(text), path
