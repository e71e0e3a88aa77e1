"""Planted faults: what failed is named, cells come back, what had finished is kept, and it exits with 1."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner
from fakes import LIMITS, FaultyExecutor, assert_empty, assert_right, engine_of
from planted_faults import answers, sets

from musebench.cli import root
from musebench.core.errors import NonFiniteLogits, OutOfMemory, StepFailed
from musebench.core.options import NoOptions
from musebench.core.plan import Limits
from musebench.core.request import FinishReason, Request
from musebench.core.shrink import Shrink, _halved
from musebench.plugin.registry import Registry
from musebench.report import files


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
