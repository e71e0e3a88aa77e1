"""A matrix on two nodes: the same reports as here, no run lost with its worker, none run twice."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
from pathlib import Path

import pytest
from musebench_ray.launcher import RayLauncher
from musebench_ray.options import Options

from musebench.matrix.launch import Launch, LocalLauncher
from musebench.report.files import read
from musebench.report.gate import gate

SIMULATED = ("--device", "sim:h200", "--model", "llama-3.1-8b")
"""Starts in half a second, and its times are exact."""


def launch_of(path: Path, *arguments: str) -> Launch:
    arguments = arguments or SIMULATED
    return Launch(path.stem, ("run", "mixed-small", *arguments, "--out", str(path), "--no-progress"), path)


def on_ray(address: str, launches: list[Launch], timeout: float | None = None, **options):
    launcher = RayLauncher(Options(address=address, **options))
    return {ended.launch.name: ended for ended in launcher.launch(launches, timeout, 0)}


@pytest.fixture
def telling(tmp_path):
    """An interpreter that says which process started it, then is Python; and what it said, a line each."""
    pipe, script = tmp_path / "pipe", tmp_path / "python"
    os.mkfifo(pipe)
    script.write_text(f'#!/bin/sh\necho "$PPID" > {pipe}\nexec {sys.executable} "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    # For reading and writing: there is then always a reader, and no line is lost between two.
    with open(os.open(pipe, os.O_RDWR), "rb", buffering=0) as lines:
        yield script, lines


def test_a_report_is_the_one_of_this_machine_and_nothing_else_is_left_in_the_folder(address, tmp_path):
    here, there = launch_of(tmp_path / "here.json"), launch_of(tmp_path / "there" / "there.json")
    there.report.parent.mkdir()
    with open(os.devnull) as held:
        (local,) = LocalLauncher(LocalLauncher.Options()).launch([here], None, held.fileno())
    ended = on_ray(address, [there])["there"]
    assert (local.code, ended.code) == (0, 0), ended.errors
    assert gate(read(there.report), read(here.report)) == []
    assert [path.name for path in there.report.parent.iterdir()] == ["there.json"]


def test_what_went_wrong_on_a_node_is_said_as_it_is_here(address, tmp_path):
    slow, refused = launch_of(tmp_path / "a.json"), launch_of(tmp_path / "b.json", "--executor", "graph")
    assert on_ray(address, [slow], timeout=0.05)["a"].code is None
    ended = on_ray(address, [refused])["b"]
    assert ended.code == 2
    assert "needs a CUDA device" in ended.errors
    assert list(tmp_path.glob("*.json")) == []


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (("--device", "cuda"), {}, "1 cores and 1 GPUs: the largest of 2 has 1 cores, all have 0 GPUs"),
        (("--device", "cuda:1"), {}, "has a GPU of its own"),
        ((), {"cpus": 64}, "64 cores and 0 GPUs"),
    ],
)
def test_what_no_node_can_take_is_refused_at_once(address, tmp_path, arguments, options, words):
    ended = on_ray(address, [launch_of(tmp_path / "a.json", *arguments)], **options)["a"]
    assert ended.code == 2
    assert words in ended.errors


def test_a_run_whose_worker_is_killed_is_run_again_and_nothing_is_lost(address, matrix, telling, tmp_path):
    script, lines = telling
    process = matrix(
        "mixed-small", *SIMULATED, "--pool", "geometric,fixed", "--repeat", "1", "--on", "ray",
        "--set", f"launcher.address={address}", "--set", f"launcher.python={script}",
    )  # fmt: skip
    os.kill(int(lines.readline()), signal.SIGKILL)
    for _ in range(2):  # the other run, and the second try of this one
        assert int(lines.readline())
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    reports = list((tmp_path / "reports").glob("*.json"))
    assert len(reports) == 2
    assert {read(path).status for path in reports} == {"complete"}
    assert list((tmp_path / "reports").glob("*.failed")) == []
    assert out.count("VALID") == 2
    said = [line.split()[0] for line in errors.splitlines()]
    assert said == ["1/2", "2/2", "reports:"], errors  # and not a word of Ray's


def test_a_run_whose_worker_dies_every_time_costs_its_cell_and_says_why(address, matrix, telling, tmp_path):
    script, lines = telling
    process = matrix(
        "mixed-small", *SIMULATED, "--repeat", "1", "--on", "ray", "--set", f"launcher.address={address}",
        "--set", f"launcher.python={script}", "--set", "launcher.retries=1", "--format", "json",
    )  # fmt: skip
    for _ in range(2):
        os.kill(int(lines.readline()), signal.SIGKILL)
    _, errors = process.communicate()
    assert process.returncode == 1, errors
    assert "its worker died in each of 2 tries" in errors
    assert list((tmp_path / "reports").glob("*.json")) == []


@pytest.fixture
def admission(tmp_path):
    """An interpreter that waits for a line in a pipe, then is Python; and the pipe."""
    pipe, script = tmp_path / "gate", tmp_path / "waiting"
    os.mkfifo(pipe)
    script.write_text(f'#!/bin/sh\nread line < {pipe}\nexec {sys.executable} "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    with open(os.open(pipe, os.O_RDWR), "wb", buffering=0) as lines:
        yield script, lines


def test_a_matrix_that_is_killed_goes_on_where_it_was(address, matrix, admission, tmp_path):
    script, lines = admission
    arguments = (
        "mixed-small", *SIMULATED, "--pool", "geometric,fixed", "--scheduler", "solo,chunked",
        "--repeat", "1", "--on", "ray", "--set", f"launcher.address={address}",
        "--set", "launcher.parallel=1",
    )  # fmt: skip
    first = matrix(*arguments, "--set", f"launcher.python={script}")
    assert first.stderr is not None
    lines.write(b"\n")  # for one run: the next one waits until the matrix is killed
    assert first.stderr.readline()
    first.kill()
    first.communicate()
    folder = tmp_path / "reports"
    before = {path.name: read(path).id for path in folder.glob("*.json")}
    assert len(before) == 1
    second = matrix(*arguments, "--format", "json")
    out, errors = second.communicate()
    assert second.returncode == 0, errors
    assert len(json.loads(out)["lines"]) == 4
    after = {path.name: read(path).id for path in folder.glob("*.json")}
    assert len(after) == 4
    assert before.items() <= after.items()
    runs = [json.loads(line)["run"] for line in (folder / "journal.jsonl").read_text().splitlines()]
    assert all(runs.count(Path(name).stem) == 1 for name in before)
