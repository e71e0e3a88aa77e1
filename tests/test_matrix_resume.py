"""Twelve combinations on the CPU, killed in the middle: the rest runs, and nothing runs twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

from musebench.report import files

ARGUMENTS = (
    "single", "--executor", "eager", "--pool", "geometric,fixed", "--scheduler",
    "solo,static,continuous,chunked", "--dtype", "float32,bfloat16,float16", "--repeat", "1", "--warmup", "0",
)  # fmt: skip


def start(folder, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "musebench", "matrix", *ARGUMENTS, *arguments, "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def started(folder):
    return [json.loads(line)["key"] for line in (folder / "journal.jsonl").read_text().splitlines()]


def test_twelve_combinations_survive_a_kill_and_resume_without_running_anything_twice(tmp_path):
    arguments = ("--pool", "geometric", "--no-progress")  # the last one given counts: 1 x 4 x 3
    first = start(tmp_path, *arguments)
    for _ in range(4):
        assert first.stderr.readline()  # a line a run that ended
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    before = {path.name: files.read(path).id for path in tmp_path.glob("*.json")}
    assert 4 <= len(before) < 12

    second = start(tmp_path, *arguments, "--format", "json")
    out, errors = second.communicate(timeout=600)
    assert second.returncode == 0, errors
    lines = json.loads(out)["lines"]
    assert len(lines) == 12
    assert all(line["valid"] and line["reports"] == 1 for line in lines)
    keys = started(tmp_path)
    assert len(keys) == len(set(keys)) == 12
    after = {path.name: files.read(path).id for path in tmp_path.glob("*.json")}
    assert len(after) == 12
    assert before.items() <= after.items()
