"""On a GPU: the acceptance with every executor, every check over real reports, and a row's neighbours."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from musebench.cli import root
from musebench.neighbours import check_neighbours
from musebench.plugin.registry import Registry
from musebench.run import RunOptions


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_bundled_model_is_accepted_with_graphs(dtype, tmp_path):
    arguments = [
        "accept", "--device", "cuda", "--dtype", dtype, "--executor", "graph", "--executor", "compiled",
        "--out", str(tmp_path), "--format", "json",
    ]  # fmt: skip
    result = CliRunner().invoke(root, arguments)
    assert result.exit_code == 0, result.output
    graphs = [one for one in json.loads(result.stdout)["verdicts"] if one["what"].endswith("with graphs")]
    assert [one["outcome"] for one in graphs] == ["passed"]
    assert "left out" not in result.stderr


@pytest.mark.parametrize("executor", ["eager", "graph", "compiled"])
def test_every_check_passes_on_real_reports(executor, tmp_path):
    everything = ["--reference", "transformers", "--margins", "--check", "--bound", "--warmup", "1"]
    arguments = ["run", "capitals", "--device", "cuda", "--dtype", "float32", "--executor", executor]
    result = CliRunner().invoke(root, [*arguments, *everything, "--out", str(tmp_path / "report.json")])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("executor", ["eager", "compiled"])
def test_other_neighbours_change_no_bit(executor, dtype):
    options = RunOptions("mixed-small", device="cuda", dtype=dtype, executor=executor)
    verdict = check_neighbours(options, Registry.installed())
    assert verdict.valid, verdict.reason
