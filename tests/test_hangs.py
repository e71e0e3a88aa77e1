"""A step that hangs and a process that is killed: what had finished is kept, and it exits with 1."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from fakes import engine_of
from planted_faults import answers, sets
from run_reports import tokens_of

from musebench.cli import root
from musebench.core.request import FinishReason, Request
from musebench.report import files
from musebench.report.journal import recover
from musebench.report.verdict import judge

REPOSITORY = Path(__file__).resolve().parents[1]

HANGING_SECONDS = 600
"""After which a process of these tests has hung for good."""


def in_process(*arguments: str, setup: str = "") -> subprocess.CompletedProcess[str]:
    code = f"{setup}\nfrom musebench.cli import main\nmain()"
    environment = os.environ | {
        "PYTHONPATH": str(REPOSITORY),
        "MUSEBENCH_TESTING": "1",
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True, text=True, env=environment, timeout=HANGING_SECONDS, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Tokens of the run without a fault, by request."""
    out = tmp_path_factory.mktemp("right") / "report.json"
    assert CliRunner().invoke(root, ["run", "capitals", "--out", str(out)]).exit_code == 0
    return tokens_of(files.read(out))


# Time passes for the watchdog in the planted hang alone, and there at once: no other step can take too long.
TIME_PASSES_IN_A_HANG = """
import ctypes, faulthandler, itertools, threading
from types import SimpleNamespace
from musebench.core import watchdog
from musebench.testing import faulty_executor

minutes, hangs, armed = itertools.count(), [], {}

def wait():
    hangs.append(None)
    threading.Event().wait()

def pause():
    faulthandler.dump_traceback_later(0.1, **armed)
    ctypes.PyDLL(None).pause()

faulty_executor.threading = SimpleNamespace(Event=lambda: SimpleNamespace(wait=wait))
faulty_executor.ctypes = SimpleNamespace(PyDLL=lambda name: SimpleNamespace(pause=pause))
watchdog.time = SimpleNamespace(monotonic=lambda: 60.0 * next(minutes) if hangs else 0.0)
watchdog.faulthandler = SimpleNamespace(
    dump_traceback_later=lambda seconds, **how: armed.update(how), cancel_dump_traceback_later=armed.clear
)
"""


def assert_kept(report, expected) -> None:
    """Some requests had ended and have all their tokens; the others are there, unfinished."""
    assert report.status == "incomplete"
    reasons = {name: reason for name, (reason, _) in answers(report).items()}
    assert list(reasons) == list(expected)
    ended = [name for name, reason in reasons.items() if reason is FinishReason.STOP]
    assert 0 < len(ended) < len(expected)
    assert all(tokens_of(report)[name] == expected[name] for name in ended)
    assert set(reasons.values()) == {FinishReason.STOP, None}


def test_a_step_that_hangs_ends_the_run_with_what_had_finished(tmp_path, expected):
    out = tmp_path / "report.json"
    done = in_process(
        "run", "capitals", "--out", str(out), "--step-timeout", "1", *sets(kind="hang", step=6),
        setup=TIME_PASSES_IN_A_HANG,
    )  # fmt: skip
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if "error" in line]
    assert line.startswith("musebench: error: step 6 (executor 'faulty', requests '")
    assert "has not ended for 1 s (--step-timeout)" in line
    assert "INVALID" in done.stdout
    assert_kept(files.read(out), expected)
    assert not any(reason for reason in judge([files.read(out)])[0].reasons if "in use" in reason)
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_a_hang_that_holds_the_interpreter_ends_and_leaves_its_journal(tmp_path, expected):
    out = tmp_path / "report.json"
    done = in_process(
        "run", "capitals", "--out", str(out), "--step-timeout", "0.5", *sets(kind="hang-locked", step=6),
        setup=TIME_PASSES_IN_A_HANG,
    )  # fmt: skip
    assert done.returncode == 1
    assert "faulty_executor.py" in done.stderr
    assert_kept(recover(tmp_path / "report.json.journal"), expected)


def test_a_killed_run_leaves_a_journal_that_becomes_its_report(tmp_path, expected):
    out, journal = tmp_path / "report.json", tmp_path / "report.json.journal"
    done = in_process("run", "capitals", "--out", str(out), *sets(kind="kill", step=6))
    assert done.returncode == -signal.SIGKILL
    assert not out.exists()
    result = CliRunner().invoke(root, ["recover", str(journal)])
    assert result.exit_code == 0, result.output
    assert "INVALID: the run is incomplete (the run was cut off; " in result.output
    assert_kept(files.read(out), expected)
    assert not journal.exists()
    steps = files.read(out).runs[0].steps
    assert 0 < len(steps) <= 6
    (reason,) = list(judge([files.read(out)])[0].reasons)  # whatever else is in it adds up
    assert reason.startswith("the run is incomplete")


def test_waiting_for_an_arrival_is_no_hang():
    engine = engine_of()
    engine.submit(Request("late", [1], 1, arrival_seconds=1e6))
    from musebench.core.watchdog import Watchdog

    assert Watchdog(engine, 1.0, lambda text: None)._progress() is None
    engine.submit(Request("now", [1], 1))
    engine._arrive()
    assert Watchdog(engine, 1.0, lambda text: None)._progress() is not None
