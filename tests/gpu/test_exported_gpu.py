"""Exported programs on a GPU: right answers, captured decodes, growth under them, weights there once.

Compiling takes a minute or two a package; `MUSEBENCH_PROGRAMS` names a folder that keeps them between runs.
"""

from __future__ import annotations

import gc
import os
import random
from pathlib import Path

import pytest
from click.testing import CliRunner
from tiny_models import generated

from musebench.cli import root
from musebench.core.options import NoOptions
from musebench.models.bundled_source import BundledSource
from musebench.report import files

RANDOM = "random:llama-3.2-1b"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    kept = os.environ.get("MUSEBENCH_PROGRAMS")
    made = Path(kept) if kept else tmp_path_factory.mktemp("programs")
    made.mkdir(parents=True, exist_ok=True)
    return made


@pytest.fixture(scope="module")
def program(folder):
    def export(name: str, *arguments: str) -> str:
        path = folder / f"{name}.pt2"
        if not path.exists():
            given = ["export", "--device", "cuda", "--out", str(path), *arguments]
            result = CliRunner().invoke(root, given)
            assert result.exit_code == 0, result.output
            print(result.stdout)
        return str(path)

    return export


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


def bundled(program) -> str:
    return program(
        "bundled-float32", "--dtype", "float32", "--fewest", "5", "--most", "48", "--most-sequences", "5",
        "--most-decodes", "3",
    )  # fmt: skip


def ladder(program) -> str:
    return program("bundled-ladder", "--dtype", "float32", "--widths", "1,2,12", "--most-sequences", "3")


@pytest.mark.parametrize("make", [bundled, ladder])
def test_answers_are_right_and_in_float32_every_prompt_length_makes_generates_tokens(
    program, ran, tmp_path, make
):
    path = make(program)
    report = ran("capitals", "--model", path, "--executor", "exported", "--dtype", "float32")
    assert report.runs[0].requests.correct == [True] * 5
    assert report.runs[0].counters["replays"] > 0
    draw = random.Random(3)
    prompts = [[draw.randrange(3, 3000) for _ in range(n)] for n in (1, 2, 4, 5, 6, 12, 13, 25, 48, 49, 97)]
    workload = tmp_path / "edges.yaml"
    entries = "".join(f"  - tokens: {prompt}\n" for prompt in prompts)
    workload.write_text(f"prompts:\n{entries}max_new_tokens: 12\nignore_eos: true\n")
    module = BundledSource(NoOptions()).open("bundled", "float32", "cuda", 0).module
    expected = [generated(module, prompt, 12) for prompt in prompts]
    for scheduler in ("solo", "static", "continuous", "chunked"):
        for pool in ("geometric", "fixed"):
            report = ran(
                str(workload), "--model", path, "--executor", "exported", "--dtype", "float32",
                "--scheduler", scheduler, "--pool", pool, "--max-sessions", "6",
            )  # fmt: skip
            assert tokens(report) == expected, (scheduler, pool)


def test_a_pool_that_grows_under_captured_decodes_makes_the_tokens_of_one_that_started_large(program, ran):
    settings = (
        "capitals", "--model", bundled(program), "--executor", "exported", "--dtype", "float32",
        "--scheduler", "solo", "--set", "workload.max_new_tokens=40", "--set", "workload.ignore_eos=true",
    )  # fmt: skip
    small = ran(*settings, "--set", "pool.start=16", "--set", "pool.factor=1.25")
    large = ran(*settings, "--set", "pool.start=2000")
    assert tokens(small) == tokens(large)
    assert len(small.runs[0].pool.growths) >= 4
    assert small.runs[0].counters["recaptures"] >= 1
    assert large.runs[0].counters["recaptures"] == 0


def llama(program, *arguments: str, name: str = "llama-bfloat16") -> str:
    return program(
        name, "--model", RANDOM, "--dtype", "bfloat16", "--most", "1024", "--most-sequences", "64",
        "--max-context", "4096", *arguments,
    )  # fmt: skip


STEADY = ("steady", "--executor", "exported", "--set", "workload.output_tokens=64")


def test_one_prompt_in_bfloat16_makes_the_same_tokens_captured_or_not(program, ran):
    settings = (*STEADY, "--model", llama(program), "--set", "workload.requests=1")
    captured = ran(*settings)
    launched = ran(*settings, "--set", "executor.capture=false")
    assert captured.runs[0].counters["replays"] > 0
    assert "replays" not in launched.runs[0].counters
    assert tokens(captured) == tokens(launched)


def test_growth_under_captured_decodes_in_bfloat16(program, ran):
    settings = (*STEADY, "--model", llama(program), "--set", "workload.requests=8", "--overlap")
    small = ran(*settings, "--set", "pool.start=64", "--set", "pool.factor=1.02")
    large = ran(*settings, "--set", "pool.start=20000")
    assert small.runs[0].counters["recaptures"] > 0
    assert tokens(small) == tokens(large)


def test_weights_are_on_the_device_once(program, ran):
    path = llama(program)
    for source in (("--model", path), ("--model", RANDOM, "--set", f"executor.program={path}")):
        gc.collect()
        report = ran(*STEADY, *source, "--set", "workload.requests=1")
        weights = report.memory.computed.weights
        before, loaded, opened = (
            report.memory.snapshots[phase].allocated for phase in ("start", "loaded", "opened")
        )
        assert weights <= loaded - before <= opened - before < 1.1 * weights + (64 << 20), source
