"""The committed baselines: their reports can be read, and the tables made of them are current."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from musebench.report import files

BASELINES = Path(__file__).resolve().parents[1] / "results" / "baselines"
H200 = BASELINES / "h200"


@pytest.mark.parametrize("path", sorted(H200.glob("*.json.gz")), ids=lambda path: path.name)
def test_a_committed_report_can_be_read_and_is_complete(path):
    assert files.read(path).status == "complete"


def test_the_tables_of_the_h200_page_are_those_of_its_reports():
    done = subprocess.run([sys.executable, str(H200 / "make.py"), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr or "run python results/baselines/h200/make.py"
