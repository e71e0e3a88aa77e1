"""Twelve combinations on the CPU, killed in the middle: the rest runs, and nothing runs twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from musebench.report import files

ARGUMENTS = (
    "single", "--executor", "eager", "--pool", "geometric,fixed", "--scheduler",
    "solo,static,continuous,chunked", "--dtype", "float32,bfloat16,float16", "--repeat", "1", "--warmup", "0",
)  # fmt: skip


# Starts a run each time; before the fifth it kills the matrix, whose run then goes on without it.
KILLING = """#!/bin/sh
echo >> {folder}/started
[ "$(wc -l < {folder}/started)" -ne 5 ] || kill -9 $PPID
exec {python} "$@"
"""


def matrix(folder, *arguments, python=sys.executable) -> subprocess.CompletedProcess[str]:
    """Its runs are started with the interpreter `python`."""
    code = f"import sys; sys.executable = {str(python)!r}; from musebench.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, "matrix", *ARGUMENTS, *arguments, "--out", str(folder)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )


def killing(folder: Path) -> Path:
    script = folder / "python"
    script.write_text(KILLING.format(folder=folder, python=sys.executable))
    script.chmod(0o755)
    return script


def started(folder):
    return [json.loads(line)["key"] for line in (folder / "journal.jsonl").read_text().splitlines()]


def test_twelve_combinations_survive_a_kill_and_resume_without_running_anything_twice(tmp_path):
    folder = tmp_path / "reports"
    arguments = ("--pool", "geometric", "--no-progress")  # the last one given counts: 1 x 4 x 3
    first = matrix(folder, *arguments, python=killing(tmp_path))
    assert first.returncode == -signal.SIGKILL, first.stderr
    assert len(started(folder)) == 5
    before = {path.name: files.read(path).id for path in folder.glob("*.json")}
    assert len(before) in (4, 5)  # the fifth may have ended meanwhile

    second = matrix(folder, *arguments, "--format", "json")
    assert second.returncode == 0, second.stderr
    lines = json.loads(second.stdout)["lines"]
    assert len(lines) == 12
    assert all(line["valid"] and line["reports"] == 1 for line in lines)
    keys = started(folder)
    assert len(keys) == len(set(keys)) == 12
    after = {path.name: files.read(path).id for path in folder.glob("*.json")}
    assert len(after) == 12
    assert before.items() <= after.items()
