"""Kernels of a CUDA device on the clock of the run that launched them."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from musebench.cli import root

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("executor", ["eager", "graph"])
def test_kernels_lie_between_the_first_step_s_start_and_the_last_one_s_end(executor, tmp_path):
    out = tmp_path / "trace.json"
    result = CliRunner().invoke(
        root,
        [
            "run", "capitals", "--device", "cuda", "--executor", executor, "--warmup", "1", "--no-progress",
            "--out", str(tmp_path / "report.json"), "--trace-out", str(out), "--profile",
        ],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    events = json.loads(out.read_text())["traceEvents"]
    lanes = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["name"] == "thread_name"
    }
    slices = [(lanes[event["pid"], event["tid"]], event) for event in events if event["ph"] == "X"]
    profiled = max(event["pid"] for _, event in slices) - 1
    # The host's lane too: a device begins a step while the host still launches it.
    steps = [event for lane, event in slices if lane in ("device", "host") and event["pid"] == profiled]
    kernels = [event for lane, event in slices if lane.startswith("stream")]
    assert kernels
    first = min(event["ts"] for event in steps)
    last = max(event["ts"] + event["dur"] for event in steps)
    inside = [kernel for kernel in kernels if first - 1000 <= kernel["ts"] <= last + 1000]
    assert len(inside) >= 0.95 * len(kernels), "the two clocks are more than a millisecond apart"
