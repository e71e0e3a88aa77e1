"""`musebench capacity`: the highest rate that keeps objectives, and what gives out above it."""

from __future__ import annotations

import json

import pytest
from affine_costs import AffineCosts, use
from click.testing import CliRunner

from musebench.capacity import find_capacity
from musebench.cli import root
from musebench.plugin.registry import Registry
from musebench.run import RunOptions

REGISTRY = Registry.installed()
LENGTHS = {
    "requests": 60, "prompt_tokens": {"fixed": 64}, "output_tokens": {"fixed": 20}, "draws": "numpy",
}  # fmt: skip


def capacity(monkeypatch, costs=None, slo=None, **changes):
    use(monkeypatch, costs or AffineCosts())
    options = RunOptions(
        "mixed-small", "llama-3.2-1b", "sim:affine", slo=slo or {"ttft": 0.1, "tpot": 0.016}, warmup=1,
        settings={"workload": LENGTHS, **changes.pop("settings", {})}, **changes,
    )  # fmt: skip
    return find_capacity(options, REGISTRY, lambda rate: {"constant": {"rate": rate}}, 0.99, 0.02)


def test_the_rate_found_keeps_the_share_and_one_a_little_higher_does_not(monkeypatch):
    found = capacity(monkeypatch)
    assert found.best.share >= 0.99 > found.worse.share
    assert found.best.rate < found.worse.rate <= found.best.rate * 1.02 * (1 + 1e-9)
    for trial in found.trials:
        assert (trial.share >= 0.99) == (trial.rate <= found.best.rate)


def test_a_faster_device_has_more_capacity(monkeypatch):
    slow, fast = capacity(monkeypatch), capacity(monkeypatch, AffineCosts(fixed=2e-3, launch=1e-3))
    assert fast.best.rate > slow.best.rate


def test_objectives_that_nobody_meets_have_no_rate(monkeypatch):
    found = capacity(monkeypatch, slo={"ttft": 1e-6})
    assert found.best is None
    assert found.worse.share == 0.0


def test_too_few_cells_and_too_few_sessions_are_told_apart(monkeypatch):
    cells = capacity(monkeypatch, slo={"ttft": 0.1}, settings={"pool": {"capacity": "300"}})
    assert cells.gave_out == "cells"
    sessions = capacity(monkeypatch, slo={"ttft": 0.1}, max_sessions=2)
    assert sessions.gave_out == "sessions"


def test_the_command_names_the_rate_and_what_gives_out():
    arguments = [
        "capacity", "mixed-small", "--model", "llama-3.1-8b", "--device", "sim:h200", "--requests", "40",
        "--slo", "ttft=60ms", "--arrivals", "constant", "--precision", "0.1",
    ]  # fmt: skip
    result = CliRunner().invoke(root, arguments)
    assert result.exit_code == 0, result.output
    assert "what gives out is" in result.output
    rows = json.loads(CliRunner().invoke(root, [*arguments, "--format", "json"]).output)
    assert [row["rate"] for row in rows] == sorted(row["rate"] for row in rows)
    assert {row["kept"] for row in rows} == {True, False}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("mixed-small", "--slo", "ttft=1s", "--device", "cpu"), "is not simulated"),
        (("--slo", "ttft=1s"), "there is no load"),
        (("mixed-small", "--slo", "ttft=1s", "--burstiness", "2"), "--burstiness does not go with"),
    ],
)
def test_what_it_cannot_do_is_one_line(arguments, said):
    result = CliRunner().invoke(root, ["capacity", *arguments, "--model", "llama-3.1-8b"])
    assert result.exit_code == 2
    assert said in result.output
