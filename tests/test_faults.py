"""Planted faults: what failed is named, cells come back, what had finished is kept, and it exits with 1."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from fakes import LIMITS, FaultyExecutor, assert_empty, assert_right, engine_of
from run_reports import tokens_of

from musebench.cli import root
from musebench.core.errors import NonFiniteLogits, OutOfMemory, StepFailed
from musebench.core.options import NoOptions
from musebench.core.plan import Limits
from musebench.core.request import FinishReason, Request
from musebench.core.shrink import Shrink, _halved
from musebench.plugin.registry import Registry
from musebench.report import files
from musebench.report.journal import recover
from musebench.report.verdict import judge

REPOSITORY = Path(__file__).resolve().parents[1]

HANGING_SECONDS = 600
"""After which a process of these tests has hung for good."""


@pytest.fixture
def testing(monkeypatch):
    monkeypatch.setenv("MUSEBENCH_TESTING", "1")


@pytest.fixture
def ran(tmp_path, testing):
    """Runs `capitals` with planted faults, in this process; gives the exit code, output and report."""

    def run(*arguments: str):
        out = tmp_path / "report.json"
        result = CliRunner().invoke(root, ["run", "capitals", "--out", str(out), *arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert not (tmp_path / "report.json.journal").exists()
        return result.exit_code, result.output, files.read(out)

    return run


def sets(**values: object) -> list[str]:
    """`--set` arguments of an executor that fails."""
    return [
        "--executor", "faulty",
        *(part for name, value in values.items() for part in ("--set", f"executor.{name}={value}")),
    ]  # fmt: skip


def answers(report) -> dict[str, tuple[str | None, int]]:
    requests = report.runs[0].requests
    return dict(
        zip(requests.id, zip(requests.finish_reason, requests.generated_tokens, strict=True), strict=True)
    )


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


# -- a step that fails ----------------------------------------------------------------------------------


def test_planted_faults_are_no_part_of_a_normal_run(monkeypatch):
    monkeypatch.delenv("MUSEBENCH_TESTING", raising=False)
    names = [component.name for component in Registry.installed().components("executor")]
    assert "faulty" not in names
    monkeypatch.setenv("MUSEBENCH_TESTING", "1")
    assert "faulty" in [component.name for component in Registry.installed().components("executor")]


@pytest.mark.parametrize("kind", ["raise", "raise-late", "nan", "oom"])
@pytest.mark.parametrize("overlap", ["--overlap", "--no-overlap"])
def test_a_step_that_fails_is_named_and_what_finished_stays(ran, kind, overlap):
    step = 1 if kind == "nan" else 4  # in step 4 row 0 may be of a request that has stopped: nobody reads it
    code, output, report = ran(*sets(kind=kind, step=step), overlap)
    assert code == 1
    assert report.status == "incomplete"
    assert "INVALID: the run is incomplete (1 of 5 requests failed: step " in output
    assert "executor 'faulty'" in report.message
    (failed,) = [name for name, (reason, _) in answers(report).items() if reason is FinishReason.FAILED]
    assert repr(failed) in report.message
    whole = [
        name for name, (reason, count) in answers(report).items() if reason is FinishReason.STOP and count
    ]
    assert len(whole) == 4
    assert len(report.runs[0].requests.token_ids) == sum(count for _, count in answers(report).values())


def test_logits_that_are_not_finite_end_their_own_request_alone(ran):
    _, _, right = ran()
    code, _, report = ran(*sets(kind="nan", step=0, row=2))
    assert code == 1
    ids = report.runs[0].requests.id
    assert f"the logits of request {ids[2]!r} are not finite" in report.message
    assert [reason for reason, _ in answers(report).values()].count(FinishReason.FAILED) == 1
    for row, (text, expected) in enumerate(
        zip(report.runs[0].requests.text, right.runs[0].requests.text, strict=True)
    ):
        assert row == 2 or text == expected


def test_an_executor_that_always_fails_ends_in_a_report_without_a_success(ran):
    code, output, report = ran(*sets(kind="raise", times=0))
    assert code == 1
    assert "none of 5 requests succeeded" in output
    assert {reason for reason, _ in answers(report).values()} == {FinishReason.FAILED}


@pytest.mark.parametrize("kind", ["full", "oom"])
def test_a_pool_that_refuses_once_costs_at_most_the_request_in_the_step(ran, kind):
    code, _, report = ran("--pool", "refusing", "--set", f"pool.kind={kind}", "--set", "pool.step=5")
    assert code == 1
    assert [reason for reason, _ in answers(report).values()].count(FinishReason.FAILED) == 1
    assert report.runs[0].pool.policy == "refusing"


def test_a_pool_that_refuses_always_ends_the_run(ran):
    code, _, report = ran("--pool", "refusing", "--set", "pool.times=0")
    assert code == 1
    assert "pool is full" in report.message
    assert {reason for reason, _ in answers(report).values()} == {FinishReason.FAILED}


def test_a_fault_in_warm_up_ends_the_run(ran):
    code, _, report = ran(*sets(kind="raise"), "--warmup", "1", "--repeat", "2")
    assert code == 1
    assert "PlantedFault" in report.message


# -- memory ---------------------------------------------------------------------------------------------


def test_a_run_goes_on_with_less_in_a_step_after_an_out_of_memory(ran):
    _, _, right = ran()
    code, output, report = ran(*sets(kind="oom", times=0, fits=40), "--on-oom", "shrink")
    assert code == 0
    assert report.runs[0].shrinks == 1
    assert report.runs[0].last_limits.most_tokens <= 40
    assert "limits halved" in output
    assert report.runs[0].requests.token_ids == right.runs[0].requests.token_ids


def test_a_pool_that_finds_no_rows_is_shrunk_until_it_does(ran):
    _, _, right = ran()
    code, _, report = ran(
        "--pool", "refusing", "--set", "pool.kind=oom", "--set", "pool.times=0", "--set", "pool.fits=2",
        "--on-oom", "shrink",
    )  # fmt: skip
    assert code == 0
    assert report.runs[0].last_limits.most_sequences <= 2
    assert report.runs[0].requests.token_ids == right.runs[0].requests.token_ids


def test_without_a_way_out_shrinking_ends_in_failures(ran):
    code, _, report = ran(*sets(kind="oom", times=0), "--on-oom", "shrink")
    assert code == 1
    assert report.runs[0].last_limits.most_tokens == 1
    assert {reason for reason, _ in answers(report).values()} == {FinishReason.FAILED}


class TightExecutor(FaultyExecutor):
    """Takes so many tokens in one forward and is out of memory beyond."""

    def execute(self, batch):
        if batch.tokens > 5:
            raise OutOfMemory(None, None, f"{batch.tokens} tokens")
        return super().execute(batch)


@pytest.mark.parametrize("pool", ["geometric", "fixed"])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("scheduler", ["solo", "static", "continuous", "chunked"])
def test_shrinking_changes_no_token_and_loses_no_cell(scheduler, pool, overlap):
    limits = Limits(most_prefill=16, most_sequences=8, most_tokens=24)
    engine = engine_of(
        scheduler, pool, limits, overlap=overlap,
        executor=lambda backend, limits: TightExecutor(NoOptions(), backend, limits),
    )  # fmt: skip
    shrink = Shrink()
    engine.on_failure = shrink
    requests = [Request(str(i), list(range(1, 2 + 3 * i)), 6) for i in range(8)]
    recorder = engine.run(requests)
    assert shrink.times
    assert not recorder.failures
    assert all(sequence.finish_reason is FinishReason.LENGTH for sequence in recorder.sequences)
    assert sorted(recorder.ended, key=lambda one: one.session) == recorder.sequences
    assert_right(engine)
    assert_empty(engine)


@pytest.mark.parametrize(
    ("prefill", "slices", "reserving", "running", "tokens", "sequences"),
    [
        (30, 2, False, 2, 16, 8),  # half of what was in the step, not of what might have been
        (0, 6, False, 6, 100, 3),
        (0, 1, False, 1, None, None),
        (30, 2, True, 6, 100, 3),  # rows are owned by those who run
        (30, 1, True, 0, None, None),
    ],
)
def test_what_is_halved(prefill, slices, reserving, running, tokens, sequences):
    limits = Limits(most_prefill=100, most_sequences=8, most_tokens=100)
    failure = StepFailed(0, [], OutOfMemory(1, 1, "x"), "", prefill, slices, reserving)
    made = _halved(limits, failure, running)
    assert (made and made.most_tokens, made and made.most_sequences) == (tokens, sequences)


def test_what_the_allocator_refuses_in_a_forward_is_an_out_of_memory(ran, monkeypatch):
    import torch

    from musebench.backends.torch_program import TransformersCall

    real, calls = TransformersCall.__call__, []

    def call(self, token_ids, positions, rows, step):
        calls.append(len(token_ids))
        if len(calls) == 3:
            torch.empty(1 << 60)
        return real(self, token_ids, positions, rows, step)

    monkeypatch.setattr(TransformersCall, "__call__", call)
    code, _, report = ran()
    assert code == 1
    assert f"OutOfMemory: a forward of {calls[2]} tokens" in report.message
    assert f"needs {4 << 60:,} bytes" in report.message
    calls.clear()
    code, _, report = ran("--on-oom", "shrink")
    assert code == 0
    assert report.runs[0].shrinks == 1


# -- logits ---------------------------------------------------------------------------------------------


class BrokenRows:
    """An output whose rows named in `rows` are not finite."""

    device_seconds = margins = None

    def __init__(self, inner, rows) -> None:
        self.inner, self.rows = inner, rows

    def wait(self) -> np.ndarray:
        tokens = self.inner.wait()
        raise NonFiniteLogits(self.rows, len(tokens), tokens)


class BreakingExecutor(FaultyExecutor):
    """Breaks row 1 of its third forward that has one."""

    wide = 0

    def execute(self, batch):
        output = super().execute(batch)
        self.wide += batch.rows > 1
        return BrokenRows(output, [1]) if self.wide == 3 and batch.rows > 1 else output


@pytest.mark.parametrize("overlap", [False, True])
def test_the_other_rows_of_a_forward_that_broke_make_their_tokens(overlap):
    engine = engine_of(
        limits=LIMITS, overlap=overlap,
        executor=lambda backend, limits: BreakingExecutor(NoOptions(), backend, limits),
    )  # fmt: skip
    engine.run([Request(str(i), [i + 1], 9) for i in range(4)])
    reasons = [sequence.finish_reason for sequence in engine.recorder.sequences]
    assert reasons.count(FinishReason.FAILED) == 1
    assert reasons.count(FinishReason.LENGTH) == 3
    assert_right(engine)
    assert_empty(engine)


# -- a step that hangs, a process that is killed --------------------------------------------------------


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


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["run", "--step-timeout", "0"], "--step-timeout is 0.0; seconds above 0 are wanted"),
        (["run", "--on-oom", "shrnk"], "--on-oom is 'shrnk'; did you mean 'shrink'?"),
        (["recover", "nothing.json.journal"], "cannot read the journal"),
        (["recover", "nothing.json"], "name the report with --out"),
    ],
)
def test_mistakes_are_one_line(arguments, text):
    result = CliRunner().invoke(root, arguments)
    assert result.exit_code == 2
    assert text in result.output
    assert len(result.output.splitlines()) == 1


def test_a_device_that_does_not_close_costs_no_report(ran, monkeypatch):
    from musebench.executors.eager import EagerExecutor

    def close(self) -> None:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(EagerExecutor, "close", close)
    code, _, report = ran()
    assert code == 1
    assert "the executor could not be closed: RuntimeError: the device is gone" in report.message
    assert len(report.runs) == 1
