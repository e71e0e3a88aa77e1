"""How fast commands start that need no model. Target: at most 0.4 s more than `python -c pass`."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

REPORT_COMMANDS = {
    "help": ("--help",),
    "list": ("list",),
    "compare": ("compare", "{report}", "{report}"),
}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("start") / "single.json"
    command = [sys.executable, "-m", "musebench", "run", "single", "--out", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


@pytest.mark.parametrize("name", REPORT_COMMANDS)
def test_start(benchmark, name, report):
    words = [word.format(report=report) for word in REPORT_COMMANDS[name]]
    command = [sys.executable, "-m", "musebench", *words]
    bare: list[float] = []

    def setup():
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        bare.append(time.perf_counter() - start)

    benchmark.pedantic(
        lambda: subprocess.run(command, check=True, capture_output=True), setup=setup, rounds=7, iterations=1
    )
    python = sorted(bare)[len(bare) // 2]
    benchmark.extra_info["python_seconds"] = python
    benchmark.extra_info["seconds_more_than_python"] = benchmark.stats.stats.median - python
