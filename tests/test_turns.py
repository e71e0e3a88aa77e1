"""Sessions whose turns carry what was said before."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from affine_costs import use
from test_replicas import REGISTRY, measured
from test_run import Keeping

from musebench.core.errors import InputError, UsageError
from musebench.core.request import After, FinishReason
from musebench.report.journal import recover
from musebench.report.replicas import parts
from musebench.report.schema import Report, RequestColumns
from musebench.report.verdict import judge
from musebench.run import RunOptions, run

WORKLOAD = """
requests: 6
prompt_tokens: {uniform: [5, 30]}
output_tokens: {uniform: [2, 9]}
turns: {count: {uniform: [2, 4]}, prompt_tokens: {uniform: [1, 7]}, think_seconds: 0.25, think_cv: 1}
arrivals: {constant: {rate: 20}}
"""


def served(tmp_path, text: str = WORKLOAD, prepare=None, keeper=None, **more) -> Report:
    path = tmp_path / "sessions.yaml"
    path.write_text(text)
    given = {"device": "sim:affine", "model": "llama-3.2-1b", "executor": "graph", **more}
    return run(RunOptions(str(path), **given), REGISTRY, keeper=keeper, prepare=prepare)


def turns_of(requests: RequestColumns) -> list[list[int]]:
    """Rows of each session, in order."""
    made: dict[int, list[int]] = {}
    for row, tags in enumerate(requests.tags):
        assert tags["turn"] == len(made.setdefault(tags["session"], []))
        made[tags["session"]].append(row)
    return list(made.values())


def test_a_turn_arrives_after_the_one_before_it_and_carries_its_tokens(tmp_path, monkeypatch):
    use(monkeypatch)
    report = served(tmp_path)
    requests = report.runs[0].requests
    sessions = turns_of(requests)
    assert {len(rows) for rows in sessions} <= {2, 3, 4}
    thoughts = []
    for rows in sessions:
        for before, after in itertools.pairwise(rows):
            context = requests.prompt_tokens[before] + requests.generated_tokens[before]
            assert 1 <= requests.prompt_tokens[after] - context <= 7
            thoughts.append(requests.arrival_seconds[after] - requests.finish_seconds[before])
    assert min(thoughts) > 0
    assert len(set(thoughts)) == len(thoughts)
    assert judge([report], [one.make({}) for one in REGISTRY.components("check")])[0].valid


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("think", [0, 0.25])
def test_stepped_and_in_bulk_are_the_same(tmp_path, monkeypatch, replicas, think):
    use(monkeypatch)
    text = WORKLOAD.replace("think_seconds: 0.25", f"think_seconds: {think}")
    given = {"replicas": replicas, "router": "prefix-affinity"} if replicas > 1 else {}
    bulk = served(tmp_path, text, **given)
    assert measured(bulk) == measured(served(tmp_path, text, stepwise=True, **given))
    if replicas > 1:
        requests = bulk.runs[0].requests
        assert sum(len(one.requests) for one in parts(bulk.runs[0])) == len(requests)
        where = [{requests.replica[row] for row in rows} for rows in turns_of(requests)]
        assert all(len(places) == 1 for places in where)
        assert len(set.union(*where)) > 1


def test_real_turns_make_the_tokens_of_the_whole_prompt_alone(tmp_path):
    text = WORKLOAD.replace("requests: 6", "requests: 3").replace("0.25", "0.001")
    given = {"device": "cpu", "model": "bundled", "executor": "eager"}
    asked = []
    together = served(tmp_path, text, lambda parts: asked.extend(parts.built.requests), **given)
    made = together.runs[0].requests
    tokens, at = {}, 0
    for name, count in zip(made.id, made.generated_tokens, strict=True):
        tokens[name], at = made.token_ids[at : at + count], at + count
    whole = {}
    for request in asked:
        before = []
        if request.after is not None:
            before = [*whole[request.after.former].prompt, *tokens[request.after.former]]
        whole[request.id] = replace(request, prompt=[*before, *request.prompt], after=None)

    def one_by_one(parts) -> None:
        parts.built.requests[:] = [replace(one, arrival_seconds=0.0) for one in whole.values()]

    alone = served(tmp_path, text, one_by_one, scheduler="solo", **given).runs[0].requests
    assert (alone.id, alone.prompt_sha256) == (made.id, made.prompt_sha256)
    assert alone.token_ids == made.token_ids


@pytest.mark.parametrize("arrivals", ["{constant: {rate: 20}}", "{closed: {concurrency: 2}}"])
def test_a_journal_says_what_a_request_turned_out_to_be(tmp_path, arrivals):
    keeping = Keeping(tmp_path / "one.journal")
    text = WORKLOAD.replace("{constant: {rate: 20}}", arrivals).replace("0.25", "0.001")
    if "closed" in arrivals:
        text = "\n".join(line for line in text.splitlines() if not line.startswith("turns"))
    made = served(tmp_path, text, keeper=keeping, device="cpu", model="bundled", executor="eager")
    requests, kept = made.runs[0].requests, recover(keeping.path).runs[0].requests
    assert kept == replace(requests, text=[None] * len(requests), correct=[None] * len(requests))


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_turn_that_is_refused_ends_its_session(tmp_path, monkeypatch, replicas):
    use(monkeypatch)

    def refuse_first(parts) -> None:
        requests = parts.built.requests
        requests[0] = replace(requests[0], max_new_tokens=10**6)

    requests = served(tmp_path, prepare=refuse_first, replicas=replicas).runs[0].requests
    first, *others = turns_of(requests)
    assert [requests.finish_reason[row] for row in first] == [FinishReason.REFUSED] * len(first)
    words = f"request '{requests.id[first[1]]}': the turn before it, '{requests.id[first[0]]}', was refused"
    assert requests.message[first[1]] == words
    assert all(requests.finish_reason[row].succeeded for rows in others for row in rows)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("count: {uniform: [2, 4]}", "count: 0", "a session can have 0 turns"),
        ("arrivals: {constant: {rate: 20}}", "arrivals: {closed: 2}", "wait for one another"),
        ("count: {uniform: [2, 4]}", "count: 201", "at most 200"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, old, new, words):
    with pytest.raises((InputError, UsageError), match=words):
        served(tmp_path, WORKLOAD.replace(old, new))


def test_reference_and_impossible_think_times_are_refused(tmp_path):
    with pytest.raises(UsageError, match="--reference takes whole prompts"):
        served(tmp_path, device="cpu", model="bundled", executor="eager", reference="transformers")
    with pytest.raises(InputError, match="at least 0"):
        After("0", -1.0)
