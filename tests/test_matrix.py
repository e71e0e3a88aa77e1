"""The cross product: order, keys, what is run again and what is not, and what a failure costs."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from report_examples import report
from test_compare import one_token_at

from musebench.cli import root
from musebench.core.errors import InputError, UsageError
from musebench.core.options import NoOptions
from musebench.matrix.drive import drive, missing_tasks, results
from musebench.matrix.launch import Ended, Launch, LocalLauncher
from musebench.matrix.plan import make_matrix
from musebench.matrix.state import Failure, Folder
from musebench.plugin.registry import Registry
from musebench.report import files

REGISTRY = Registry.installed()
AXES = {"executor": ["eager", "graph"], "pool": ["geometric", "fixed"]}


def matrix_of(axes=None, repeats=2, workload="single", fixed=()):
    return make_matrix(workload, AXES if axes is None else axes, repeats, fixed, REGISTRY)


class Fake:
    """A launcher that writes a report, or ends as `ends` says for a run of that name's start."""

    def __init__(self, ends=None):
        self.ends = ends or {}
        self.launched: list[str] = []

    def launch(self, launches, timeout_seconds, held):
        for one in launches:
            self.launched.append(one.name)
            code, errors = next(
                (end for start, end in self.ends.items() if one.name.startswith(start)), (0, "")
            )
            if code in (0, 1):
                seconds = 0.1 if "fixed" in one.name else 0.2
                made = report(one_token_at(seconds * (1 + 0.01 * len(self.launched))), id=one.name)
                files.write(made, one.report)
            yield Ended(one, code, errors, 1.0)


def go(folder, launcher, matrix=None):
    matrix = matrix or matrix_of()
    drive(matrix, Folder(folder), launcher, 0)
    return {one.cell.label: one for one in results(matrix, Folder(folder))}


# -- the plan -----------------------------------------------------------------------------------------------


def test_every_combination_is_there_and_repeats_take_turns():
    matrix = matrix_of()
    labels = ["eager, geometric", "eager, fixed", "graph, geometric", "graph, fixed"]
    assert [cell.label for cell in matrix.cells] == labels
    assert [(task.cell.label, task.repeat) for task in matrix.tasks] == [
        *((label, 1) for label in labels), *((label, 2) for label in labels)
    ]  # fmt: skip
    assert matrix.tasks[0].arguments == ("run", "single", "--executor", "eager", "--pool", "geometric")


def test_keys_differ_for_everything_that_decides_a_number(tmp_path):
    plain = {task.key for task in matrix_of().tasks}
    assert len(plain) == 8
    assert {task.key for task in matrix_of().tasks} == plain
    assert not plain & {task.key for task in matrix_of(fixed=("--seed", "1")).tasks}
    assert not plain & {task.key for task in matrix_of(workload="capitals").tasks}
    path = tmp_path / "w.yaml"
    keys = []
    for most, sessions in ((4, 1), (5, 1), (5, 2)):
        path.write_text(
            f"prompts: [{{text: hi}}]\nmax_new_tokens: {most}\ndefaults: {{max_sessions: {sessions}}}\n"
        )
        keys.append(matrix_of({}, 1, str(path)).tasks[0].key)
    assert len(set(keys)) == 3


def test_only_what_varies_is_in_a_label():
    matrix = matrix_of({"model": ["bundled"], "pool": ["fixed", "geometric"]}, 1)
    assert [cell.label for cell in matrix.cells] == ["fixed", "geometric"]
    assert [cell.label for cell in matrix_of({}, 1).cells] == ["single"]


@pytest.mark.parametrize(
    ("axes", "repeats", "words"),
    [
        ({"pool": ["fixt"]}, 1, "did you mean 'fixed'"),
        ({"pool": ["fixed", ""]}, 1, "an empty value"),
        ({"pool": ["fixed", "fixed"]}, 1, "names a value twice"),
        ({"device": ["tpu:1"]}, 1, "no backend 'tpu'"),
        ({}, 0, "--repeat is 0"),
        ({"pool": ["fixed", "geometric"]}, 2**63, "at most 100,000 are possible"),
    ],
)
def test_a_mistake_is_said_before_anything_runs(axes, repeats, words):
    with pytest.raises(UsageError, match=words):
        matrix_of(axes, repeats)


# -- going through it ---------------------------------------------------------------------------------------


def test_everything_runs_once_and_nothing_runs_again(tmp_path):
    first, second = Fake(), Fake()
    found = go(tmp_path, first)
    assert [len(one.reports) for one in found.values()] == [2, 2, 2, 2]
    assert len(first.launched) == len(set(first.launched)) == 8
    go(tmp_path, second)
    assert second.launched == []
    assert len((tmp_path / "journal.jsonl").read_text().splitlines()) == 8


def test_what_is_missing_and_nothing_else_runs_again(tmp_path):
    go(tmp_path, Fake())
    lost = sorted(tmp_path.glob("graph-fixed-2-*.json"))
    lost[0].unlink()
    again = Fake()
    go(tmp_path, again)
    assert again.launched == [lost[0].stem]


def test_more_repeats_and_more_values_run_what_is_new(tmp_path):
    go(tmp_path, Fake(), matrix_of({"pool": ["fixed"]}, 1))
    more = Fake()
    go(tmp_path, more, matrix_of({"pool": ["fixed", "geometric"]}, 2))
    assert sorted(name.rsplit("-", 1)[0] for name in more.launched) == [
        "fixed-2",
        "geometric-1",
        "geometric-2",
    ]


def test_a_crash_costs_its_cell_and_is_not_tried_again_unless_asked(tmp_path):
    crash = {"graph-fixed": (-9, "working\nterminate called\n")}
    launcher = Fake(crash)
    found = go(tmp_path, launcher)
    assert found["graph, fixed"].failure.reason == "crashed, killed by SIGKILL: terminate called"
    assert not found["graph, fixed"].failure.impossible
    assert [len(one.reports) for one in found.values()] == [2, 2, 2, 0]
    assert len(launcher.launched) == 7
    matrix = matrix_of()
    assert missing_tasks(matrix, Folder(tmp_path)) == []
    for task in matrix.tasks:
        Folder(tmp_path).forget_failure(task)
    assert [task.cell.label for task in missing_tasks(matrix, Folder(tmp_path))] == ["graph, fixed"] * 2


@pytest.mark.parametrize(
    ("end", "reason", "impossible"),
    [
        ((2, "musebench: error: executor 'graph' needs a CUDA device\n"),
         "executor 'graph' needs a CUDA device", True),
        ((None, ""), "stopped after 7 s, it took too long", False),
        ((3, "Traceback\nMemoryError: x\n"), "crashed with exit code 3: MemoryError: x", False),
        ((-11, ""), "crashed, killed by SIGSEGV: it said nothing", False),
    ],
)  # fmt: skip
def test_every_end_without_a_report_has_its_reason(tmp_path, end, reason, impossible):
    matrix = matrix_of({"pool": ["fixed"]}, 1)
    drive(matrix, Folder(tmp_path), Fake({"fixed": end}), 0, timeout_seconds=7)
    (one,) = results(matrix, Folder(tmp_path))
    assert one.failure == Failure(reason, impossible)


def test_what_is_under_way_elsewhere_is_still_to_come(tmp_path):
    class TwoAtATime(Fake):
        def launch(self, launches, timeout_seconds, held):
            flying = []
            for one in super().launch(launches, timeout_seconds, held):
                flying.append(one)
                if len(flying) == 2:
                    yield flying.pop(0)
            yield from flying

    left = []
    drive(matrix_of(), Folder(tmp_path), TwoAtATime(), 0, None, lambda finished: left.append(finished.left))
    assert left == [7, 6, 5, 4, 3, 2, 1, 0]


def test_a_run_that_says_it_is_done_and_left_no_report_is_a_crash(tmp_path):
    class Liar(Fake):
        def launch(self, launches, timeout_seconds, held):
            for one in launches:
                yield Ended(one, 0, "", 1.0)

    (one,) = go(tmp_path, Liar(), matrix_of({}, 1)).values()
    assert one.failure.reason == "crashed with exit code 0: it said nothing"


def test_a_broken_report_is_named_with_the_way_out_and_a_broken_failure_is_forgotten(tmp_path):
    matrix = matrix_of({}, 1)
    folder = Folder(tmp_path)
    folder.keep_failure(matrix.tasks[0], Failure("x"))
    next(tmp_path.glob("*.failed")).write_text('{"reas')
    assert missing_tasks(matrix, folder) == list(matrix.tasks)
    folder.report(matrix.tasks[0]).write_text('{"schema": 1')
    with pytest.raises(InputError, match=r"not a whole report.*remove the file"):
        results(matrix, folder)


def test_a_run_that_takes_too_long_is_stopped_with_everything_it_started(tmp_path, monkeypatch):
    real = sys.executable
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    (tmp_path / "python").write_text(
        f"#!/bin/sh\nexec {real} -c 'import threading; threading.Event().wait()'\n"
    )
    (tmp_path / "python").chmod(0o755)
    with (tmp_path / "lock").open("w") as held:
        launch = Launch("x", ("run",), tmp_path / "x.json")
        (ended,) = LocalLauncher(NoOptions()).launch([launch], 0.2, held.fileno())
    assert ended.code is None


# -- the command --------------------------------------------------------------------------------------------


@pytest.fixture
def faked(monkeypatch):
    """`musebench matrix` with a launcher in place of the local one; returns the command's runner."""

    def invoke(launcher, *arguments):
        def factory(options):
            return launcher

        factory.Options = NoOptions
        monkeypatch.setattr("musebench.matrix.launch.LocalLauncher", factory)
        return CliRunner().invoke(root, ["matrix", "single", *map(str, arguments)])

    return invoke


ARGUMENTS = ("--executor", "eager,graph", "--pool", "geometric,fixed", "--repeat", "3", "--no-progress")


def test_one_table_marks_the_best_the_front_and_says_what_is_impossible(faked, tmp_path):
    refused = {"graph": (2, "musebench: error: executor 'graph' needs a CUDA device")}
    result = faked(Fake(refused), *ARGUMENTS, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    lines = [line for line in result.stdout.splitlines() if line.startswith("| ")]
    (fixed,) = [line for line in lines if line.startswith("| eager, fixed")]
    (geometric,) = [line for line in lines if line.startswith("| eager, geometric")]
    assert " * |" in fixed
    assert "P" in fixed.split("|")[-3]
    assert "P" not in geometric.split("|")[-3]
    assert sum("impossible: executor 'graph' needs a CUDA device" in line for line in lines) == 2
    assert "1/12 eager, geometric (1)" in result.stderr
    assert "8/8 eager, fixed (3)" in result.stderr.splitlines()[-2]


def test_a_crash_or_an_invalid_cell_exits_with_1(faked, tmp_path):
    assert faked(Fake({"graph": (-9, "")}), *ARGUMENTS, "--out", tmp_path / "a").exit_code == 1

    class Wrong(Fake):
        def launch(self, launches, timeout_seconds, held):
            for ended in super().launch(launches, timeout_seconds, held):
                made = files.read(ended.launch.report)
                files.write(dataclasses.replace(made, status="incomplete", message="x"), ended.launch.report)
                yield ended

    result = faked(Wrong(), *ARGUMENTS, "--out", tmp_path / "b")
    assert result.exit_code == 1
    assert "INVALID" in result.stdout
    assert " * " not in "".join(line for line in result.stdout.splitlines() if "~~" in line).replace(
        "* |", ""
    )


def test_a_cell_that_crashes_in_a_later_repeat_is_shown_with_its_runs_and_its_reason(faked, tmp_path):
    result = faked(Fake({"graph-fixed-2": (-9, "gone")}), *ARGUMENTS, "--out", tmp_path)
    assert result.exit_code == 1
    lines = [line for line in result.stdout.splitlines() if line.startswith("| graph, fixed")]
    assert len(lines) == 2
    assert "graph, fixed, after run 1" in lines[1]
    assert "killed by SIGKILL: gone" in lines[1]


def test_options_of_a_launcher_go_to_it_and_not_to_the_runs(faked, tmp_path):
    result = faked(Fake(), *ARGUMENTS, "--set", "launcher.nodes=2", "--out", tmp_path)
    assert result.exit_code == 2
    assert "launcher 'local' has no option 'nodes'" in result.stderr


def test_json_has_numbers_marks_and_reasons(faked, tmp_path):
    result = faked(Fake({"graph": (-9, "gone")}), *ARGUMENTS, "--out", tmp_path, "--format", "json",
                   "--sort", "ttft_p50", "--columns", "ttft_p50,memory_bytes")  # fmt: skip
    values = json.loads(result.stdout)
    assert [line["label"] for line in values["lines"]] == ["eager, fixed", "eager, geometric"]
    assert "ttft_p50" in values["lines"][0]["best"]
    assert values["lines"][0]["front"] is True
    assert [one["reason"] for one in values["missing"]] == ["crashed, killed by SIGKILL: gone"] * 2


def test_a_launcher_that_is_not_installed_is_refused_in_one_line(tmp_path):
    result = CliRunner().invoke(root, ["matrix", "single", "--on", "moon", "--out", str(tmp_path / "x")])
    assert result.exit_code == 2
    assert re.fullmatch(r"musebench: error: there is no launcher 'moon'; known: local\b.*\n", result.stderr)
    assert not (tmp_path / "x").exists()


def test_the_progress_bar_counts_runs(faked, tmp_path):
    result = faked(Fake(), *ARGUMENTS[:-1], "--progress", "--out", tmp_path)
    assert result.exit_code == 0
    assert "12/12" in result.stderr


def test_compare_reads_the_folder_of_a_matrix(faked, tmp_path):
    faked(Fake(), *ARGUMENTS, "--out", tmp_path)
    result = CliRunner().invoke(root, ["compare", str(tmp_path), "--format", "json"])
    assert result.exit_code == 0, result.output
    assert Path(tmp_path, ".lock").exists()
