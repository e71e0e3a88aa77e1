"""The workloads that ship, and the page that describes all keys, kinds and formats."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from musebench.workload import Context, Defaults, load_workload, shipped_workloads
from musebench.workload.arrivals import ARRIVALS
from musebench.workload.lengths import LENGTHS
from musebench.workload.spec import (
    KINDS,
    GeneratorSpec,
    Message,
    PreambleSpec,
    PromptSpec,
    SamplingSpec,
    TraceSpec,
    WorkloadSpec,
)
from musebench.workload.traces import builtin_formats

REPOSITORY = Path(__file__).resolve().parents[1]
README = REPOSITORY / "workloads" / "README.md"


def test_five_workloads_ship_each_with_a_description_and_a_header():
    shipped = shipped_workloads()
    assert {"capitals", "single", "mixed", "mixed-small", "longtail"} <= set(shipped)
    for name, path in shipped.items():
        workload = load_workload(name)
        assert workload.name == name
        assert 20 < len(workload.description) < 110
        assert path.read_text().startswith("# ")
        assert f"| `{name}` |" in README.read_text()


def test_mixed_is_256_requests_of_100_to_1024_tokens_drawn_by_pythons_random():
    import random

    made = load_workload("mixed").requests(Context(vocab=49152, stop_tokens=(2,)))
    draw = random.Random(0)
    prompts = [[draw.randrange(49152) for _ in range(draw.randint(100, 1024))] for _ in range(256)]
    outputs = [draw.randint(100, 1024) for _ in range(256)]
    assert [list(request.prompt) for request in made] == prompts
    assert [request.max_new_tokens for request in made] == outputs
    assert {request.stop_tokens for request in made} == {()}
    assert {request.arrival_seconds for request in made} == {0.0}
    assert len({request.id for request in made}) == 256


def test_mixed_small_is_16_requests_within_its_ranges():
    made = load_workload("mixed-small").requests(Context(vocab=100))
    assert len(made) == 16
    assert all(10 <= len(r.prompt) <= 100 and 10 <= r.max_new_tokens <= 60 for r in made)


@pytest.mark.parametrize("name", ["mixed", "mixed-small", "longtail"])
def test_the_longest_request_fits_the_proposed_context(name):
    workload = load_workload(name)
    for lengths, most in ((workload.spec.prompt_tokens, 0), (workload.spec.output_tokens, 0)):
        assert lengths.bounds[1] > most
    needed = workload.spec.prompt_tokens.bounds[1] + workload.spec.output_tokens.bounds[1]
    assert needed <= workload.defaults.max_context


def test_capitals_asks_five_questions_the_last_behind_a_long_preamble():
    workload = load_workload("capitals")
    prompts = workload.spec.prompts
    assert [prompt.expect for prompt in prompts] == ["Paris", "Tokyo", "Rome", "Paris", "Berlin"]
    assert prompts[0].chat == prompts[3].chat == "Answer in one word: what is the capital of France?"
    assert all(prompt.chat.endswith("?") and "\n" not in prompt.chat for prompt in prompts)
    # a word is at least one token, so that the preamble cannot fit one step
    assert len(prompts[4].chat.split()) > 2 * workload.defaults.token_budget
    assert workload.spec.max_new_tokens == 24


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


SECTIONS = [WorkloadSpec, PromptSpec, Message, SamplingSpec, TraceSpec, PreambleSpec, GeneratorSpec, Defaults]


@pytest.mark.parametrize("kind", SECTIONS, ids=lambda kind: kind.__name__)
def test_the_readme_has_a_row_for_every_key_with_its_meaning(kind):
    rows = {tuple(_cells(line)[:1] + _cells(line)[-1:]) for line in README.read_text().splitlines()}
    for entry in dataclasses.fields(kind):
        assert (f"`{entry.name}`", entry.metadata["help"]) in rows, entry.name


@pytest.mark.parametrize("choice", [LENGTHS, ARRIVALS], ids=lambda choice: choice.what)
def test_the_readme_names_every_kind_and_all_its_keys(choice):
    rows = {_cells(line)[0]: line for line in README.read_text().splitlines() if line.startswith("| `")}
    for name, kind in choice.kinds.items():
        for entry in dataclasses.fields(kind):
            assert f"`{entry.name}` (" in rows[f"`{name}`"], (name, entry.name)


def test_the_readme_names_every_trace_format_and_kind_of_workload():
    text = README.read_text()
    for name in (*builtin_formats(), *KINDS):
        assert f"`{name}`" in text


BLOCKS = re.findall(r"```yaml\n(.*?)```", README.read_text(), re.S)


def test_every_example_in_the_readme_loads_and_all_kinds_of_workload_have_one(tmp_path):
    kinds = set()
    for number, block in enumerate(BLOCKS):
        path = tmp_path / f"example{number}.yaml"
        path.write_text(block)
        kinds.add(load_workload(path).spec.kind)
    assert kinds == set(KINDS)
