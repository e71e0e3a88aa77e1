"""Planted faults on a GPU: in captured graphs, in the allocator, and beside a step in flight."""

from __future__ import annotations

import pytest
import torch
from click.testing import CliRunner

from musebench.backends.torch_backend import TorchBackend
from musebench.backends.torch_program import TransformersCall
from musebench.cli import root
from musebench.core.request import FinishReason
from musebench.report import files


@pytest.fixture
def ran(tmp_path, monkeypatch):
    monkeypatch.setenv("MUSEBENCH_TESTING", "1")

    def run(*arguments: str):
        out = tmp_path / "report.json"
        common = ("run", "capitals", "--device", "cuda", "--dtype", "float32", "--out", str(out))
        result = CliRunner().invoke(root, [*common, *arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, files.read(out)

    return run


@pytest.mark.parametrize("inner", ["eager", "graph", "compiled"])
def test_spoilt_logits_are_seen_in_every_executor(ran, inner):
    code, report = ran(
        "--executor", "faulty", "--set", "executor.kind=nan", "--set", "executor.step=1",
        "--set", f"executor.inner={inner}",
    )  # fmt: skip
    assert code == 1
    assert "are not finite" in report.message
    assert report.runs[0].requests.finish_reason.count(FinishReason.FAILED) == 1


@pytest.mark.parametrize("shrink", [False, True])
def test_what_the_allocator_refuses_is_an_out_of_memory(ran, monkeypatch, shrink):
    real, calls = TransformersCall.__call__, []
    monkeypatch.setattr(TorchBackend, "warm", lambda self, limits: {})  # those forwards are not a step's

    def call(self, token_ids, positions, rows, step):
        calls.append(len(token_ids))
        if len(calls) == 4:
            torch.empty(1 << 44, dtype=torch.uint8, device="cuda")
        return real(self, token_ids, positions, rows, step)

    monkeypatch.setattr(TransformersCall, "__call__", call)
    code, report = ran(*(["--on-oom", "shrink"] if shrink else []))
    assert code == (0 if shrink else 1)
    assert report.runs[0].shrinks == int(shrink)
    assert shrink or f"OutOfMemory: a forward of {calls[3]} tokens" in report.message
