"""Both engines on a small model on the CPU: tokens, reasons, times, arrivals, refusals."""

from __future__ import annotations

import itertools

import pytest

from musebench.core.errors import UsageError
from musebench.core.request import FinishReason
from musebench.peers import run_peer
from musebench.plugin.registry import Registry
from musebench.report import files, latencies, metrics
from musebench.report.groups import Source, make_groups
from musebench.report.verdict import judge, verdicts_of
from musebench.run import RunOptions, run

ENGINES = ("transformers-static", "transformers-batch")
TINY = "random:smollm2-135m@layers=2,vocab=500"


@pytest.fixture(scope="module")
def registry():
    return Registry.installed()


def checks_of(registry):
    return [component.make({}) for component in registry.components("check")]


def tokens_of(report):
    requests, at, made = report.runs[-1].requests, 0, {}
    for name, count in zip(requests.id, requests.generated_tokens, strict=True):
        made[name] = list(requests.token_ids[at : at + count])
        at += count
    return made


def tiny(**changed):
    lengths = {
        "requests": "9",
        "prompt_tokens": "{uniform: [1, 40]}",
        "output_tokens": "{uniform: [1, 12]}",
    }
    return RunOptions("mixed-small", TINY, settings={"workload": lengths}, **changed)


@pytest.mark.parametrize("engine", ENGINES)
def test_tokens_equal_the_built_in_engines_and_every_check_that_can_be_judged_passes(registry, engine):
    own = run(tiny(), registry)
    made = run_peer(engine, tiny(max_sessions=4, reference="transformers", repeat=2), registry)
    assert made.status == "complete", made.message
    assert tokens_of(made) == tokens_of(own)
    verdicts = verdicts_of([own, made], checks_of(registry))
    assert not [v.reason for v in verdicts if not v.valid]
    judged = {(v.check, v.what) for v in verdicts if v.judged and v.report == made.id}
    assert any(check == "tokens" for check, _ in judged)
    assert any(check == "reference" for check, _ in judged)
    assert any(check == "accounting" for check, _ in judged)
    unjudged = {v.what: v.reason for v in verdicts if not v.judged and v.report == made.id}
    assert "does not tell its steps" in unjudged["prompt tokens, run 1"]
    assert all(judgement.valid for judgement in judge([own, made], checks_of(registry)))


@pytest.mark.parametrize("engine", ENGINES)
def test_answers_of_the_bundled_model_are_right_and_end_with_their_stop_token(registry, engine):
    made = run_peer(engine, RunOptions("capitals"), registry)
    own = run(RunOptions("capitals"), registry)
    requests = made.runs[0].requests
    assert requests.correct == [True] * 5
    assert tokens_of(made) == tokens_of(own)
    assert requests.finish_reason == own.runs[0].requests.finish_reason


@pytest.mark.parametrize("engine", ENGINES)
def test_every_token_has_its_time_and_a_report_keeps_it(registry, engine, tmp_path):
    made = run_peer(engine, tiny(), registry)
    path = tmp_path / "report.json"
    files.write(made, path)
    requests = files.read(path).runs[0].requests
    at = 0
    for row, count in enumerate(requests.generated_tokens):
        mine = list(requests.token_seconds[at : at + count])
        at += count
        assert all(one <= two for one, two in itertools.pairwise(mine))
        assert mine[0] == requests.first_token_seconds[row]
        assert mine[-1] == requests.last_token_seconds[row]
        assert requests.arrival_seconds[row] <= requests.scheduled_seconds[row] <= mine[0]
    found = latencies.summaries(made)
    assert found["ITL"].count == sum(requests.generated_tokens) - len(requests)
    assert metrics.step_totals(made).steps is None
    assert metrics.pool_totals(made) is None


@pytest.mark.parametrize("engine", ENGINES)
def test_closed_arrivals_come_when_one_has_ended(registry, engine):
    closed = {
        "requests": "5",
        "prompt_tokens": "8",
        "output_tokens": "3",
        "arrivals": "{closed: {concurrency: 2}}",
    }
    settings = {"workload": closed}
    made = run_peer(engine, RunOptions("mixed-small", TINY, settings=settings), registry)
    requests = made.runs[0].requests
    later = sorted(requests.arrival_seconds)[2:]
    assert all(arrival in requests.finish_seconds for arrival in later)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_request_beyond_the_context_is_refused_by_name_and_the_others_finish(registry, engine):
    made = run_peer(engine, tiny(max_context=20), registry)
    requests = made.runs[0].requests
    reasons = set(requests.finish_reason)
    assert FinishReason.REFUSED in reasons
    assert FinishReason.LENGTH in reasons
    message = next(text for text in requests.message if text)
    assert "--max-context is 20" in message


@pytest.mark.parametrize("engine", ENGINES)
def test_drawn_tokens_are_refused(registry, engine):
    settings = {"workload": {"sampling.temperature": "0.7"}}
    made = run_peer(engine, RunOptions("capitals", settings=settings), registry)
    assert set(made.runs[0].requests.finish_reason) == {FinishReason.REFUSED}


def test_a_failing_generate_fails_its_batch_and_the_next_goes_on(registry, monkeypatch):
    from musebench_transformers.static import StaticEngine

    whole, calls = StaticEngine._generate, []

    def once(self, batch, told):
        calls.append(len(batch))
        if len(calls) == 1:
            raise MemoryError("planted")
        whole(self, batch, told)

    monkeypatch.setattr(StaticEngine, "_generate", once)
    made = run_peer("transformers-static", tiny(max_sessions=4), registry)
    ends = [str(reason) for reason in made.runs[0].requests.finish_reason]
    assert ends.count("failed") == 4
    assert ends.count("length") == 5
    assert "planted" in made.message


def test_a_manager_whose_thread_ends_fails_the_run_with_what_it_said(registry, monkeypatch):
    from musebench_transformers.batch import BatchEngine

    prepared = BatchEngine.prepare

    def broken(self):
        seconds = prepared(self)
        self._manager.stop(block=True, hard_stop=True)
        return seconds

    monkeypatch.setattr(BatchEngine, "prepare", broken)
    made = run_peer("transformers-batch", tiny(), registry)
    assert made.status == "incomplete"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"executor": "graph"}, "--executor graph: engine 'transformers-static' brings its own executor"),
        ({"margins": True}, "--margins is about steps"),
        ({"token_budget": 64}, "--token-budget: engine 'transformers-static' does not take it"),
        ({"device": "sim:h200"}, "a simulated device does not"),
    ],
)
def test_what_it_cannot_keep_to_is_refused_in_one_line(registry, changed, says):
    from musebench.core.errors import MusebenchError

    with pytest.raises(MusebenchError) as caught:
        run_peer("transformers-static", tiny(**changed), registry)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_engine_stands_in_one_table_with_the_built_in_executors(registry, tmp_path):
    reports = [run(tiny(), registry), *(run_peer(engine, tiny(), registry) for engine in ENGINES)]
    sources = [Source(report, tmp_path / report.id, tmp_path) for report in reports]
    labels = [group.label for group in make_groups(sources)]
    assert labels == ["eager", "transformers-static", "transformers-batch"]


def test_settings_of_parts_that_it_has_not_are_refused(registry):
    with pytest.raises(UsageError, match="--set pool"):
        run_peer("transformers-static", RunOptions(settings={"pool": {"factor": "2"}}), registry)
