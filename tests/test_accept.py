"""The acceptance of a model: three runs in processes of their own, and the checks over them."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from musebench.cli import root
from musebench.report import files


@pytest.fixture(scope="module")
def accepted(tmp_path_factory):
    """Without `compiled`, whose compilation takes a minute on two cores."""
    folder = tmp_path_factory.mktemp("accept")
    arguments = ["accept", "--executor", "graph", "--jobs", "2", "--out", str(folder), "--format", "json"]
    return CliRunner().invoke(root, arguments), folder


def test_the_bundled_model_is_accepted_on_a_cpu(accepted):
    result, folder = accepted
    assert result.exit_code == 0, result.output
    made = json.loads(result.stdout)
    assert made["passed"] is True
    judged = {one["check"] for one in made["verdicts"] if one["outcome"] == "passed"}
    assert judged == {"answers", "tokens", "weights", "pool", "accept"}
    assert sorted(path.name for path in folder.iterdir()) == ["capitals-eager.json", "single-eager.json"]


def test_what_the_device_does_not_have_is_said_with_the_reason(accepted):
    result, _ = accepted
    assert "left out: one prompt, graph: executor 'graph' needs a CUDA device" in result.stderr
    graphs = [one for one in json.loads(result.stdout)["verdicts"] if one["what"].endswith("with graphs")]
    assert [one["outcome"] for one in graphs] == ["not judged"]
    assert "no graphs" in graphs[0]["reason"]


def test_the_last_of_five_prompts_is_longer_than_a_forward_and_shares_its_batch(accepted):
    _, folder = accepted
    report = files.read(folder / "capitals-eager.json")
    run = report.runs[0]
    assert len(run.requests) == 5
    assert run.requests.prompt_tokens[-1] > report.choices.limits.most_prefill
    assert max(run.steps.sequences) > 1


def test_the_first_of_the_five_makes_the_tokens_it_makes_alone(accepted):
    result, _ = accepted
    (tokens,) = [one for one in json.loads(result.stdout)["verdicts"] if one["check"] == "tokens"]
    assert tokens["measured"] == "same: 1 of 1 requests equal"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--executor", "grape"), ("grape", "graph")),
        (("--model", "nowhere"), ("one prompt, eager", "nowhere")),
        (("--model", "random:llama-3.2-1b@layers=1,vocab=100"), ("tokenizer",)),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(arguments, words):
    result = CliRunner().invoke(root, ["accept", *arguments])
    assert result.exit_code == 2, result.output
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("musebench: error:")]
    for word in words:
        assert word in line
