"""What the reports say is computed from them: no sentence has a number of its own, and none is said without
its report."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from pathlib import Path

import pytest

from musebench.cli.run import command
from musebench.plugin.registry import Registry
from musebench.report import files
from musebench.report.numbers import Numbers
from musebench.report.table import pretty
from musebench.run import RunOptions, run

RESULTS = Path(__file__).resolve().parents[1] / "results"
ROW = "mixed-llama-3.2-1b-graph-{}-chunked{}.json.gz"


@pytest.fixture(autouse=True)
def _scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(RESULTS))


@pytest.fixture(scope="module")
def report():
    settings = {"workload": {"requests": 6}}
    options = RunOptions("mixed", "llama-3.2-1b", "sim:h200", executor="graph", warmup=1, settings=settings)
    return run(options, Registry.installed())


def slower(report, factor):
    """The report with its requests ended so much later."""
    (data,) = report.runs
    finished = [value * factor for value in data.requests.finish_seconds]
    return replace(report, runs=[replace(data, requests=replace(data.requests, finish_seconds=finished))])


def test_without_reports_nothing_is_said(tmp_path):
    import findings
    import headline

    assert findings.findings(tmp_path).strip() == ""
    assert headline.headline(tmp_path).strip() == ""


def test_a_sentence_with_a_digit_of_its_own_is_refused():
    from evidence import say

    assert say("{number} tokens", number=3) == "3 tokens"
    with pytest.raises(ValueError, match="numbers come from reports"):
        say("3 tokens of {model}", model="one")


def test_every_sentence_of_every_question_is_filled_by_reports():
    """No f-string makes a sentence: all go through `say`, whose texts hold no digit."""
    import findings

    for question in findings.QUESTIONS:
        source = inspect.getsource(question)
        assert "say(" in source
        for template in re.findall(r"say\(\s*((?:\"[^\"]*\"\s*)+)", source):
            assert not re.search(r"\d", re.sub(r"\{[^}]*\}", "", template))


def test_the_numbers_of_the_page_are_those_of_the_reports(tmp_path, report):
    import headline

    files.write(report, tmp_path / ROW.format("geometric", ""))
    numbers = Numbers(report)
    made = headline.headline(tmp_path)
    assert pretty(numbers.throughput.output_tokens_per_second, "") + " tokens/s (one run)" in made
    assert pretty(numbers.memory_bytes, "bytes") in made
    assert report.created[:10] in made


def test_several_rounds_make_an_interval_and_one_says_that_it_is_one(tmp_path, report):
    import findings

    for number, factor in enumerate((1.0, 1.1, 1.2), 1):
        files.write(slower(report, factor), tmp_path / ROW.format("geometric", f"-fresh{number}"))
    files.write(report, tmp_path / ROW.format("fixed", "-fresh1"))
    assert "(one run) the tokens per second of `geometric`" in findings.findings(tmp_path)
    for number in (2, 3):
        files.write(slower(report, 1.0 + number / 20), tmp_path / ROW.format("fixed", f"-fresh{number}"))
    found = re.search(r"`fixed` makes ([\d.]+) times \(([\d.]+) to ([\d.]+)\)", findings.findings(tmp_path))
    assert found is not None
    value, low, high = map(float, found.groups())
    assert low < value < high


def test_an_invalid_report_says_nothing(tmp_path, report):
    import headline

    broken = replace(report, status="incomplete", message="interrupted")
    files.write(broken, tmp_path / ROW.format("geometric", ""))
    assert headline.headline(tmp_path).strip() == ""


def test_the_simulator_is_not_off_from_itself(tmp_path, report):
    import findings

    command = ["musebench", "run", "mixed", "--set", "workload.requests=6"]
    model = replace(report.conditions.model, source="random:llama-3.2-1b")
    as_measured = replace(report, conditions=replace(report.conditions, command=command, model=model))
    files.write(as_measured, tmp_path / ROW.format("geometric", ""))
    assert "`sim:h200` is off by +0.0% output tokens/s, +0.0% TTFT p50, +0.0% TPOT p50" in findings.findings(
        tmp_path
    )


def test_every_row_of_the_plan_is_one_that_musebench_can_read():
    from tests.gpu.bench_plan import plan

    rows = plan("cuda", {"smollm2-135m": "a.gguf", "llama-3.2-1b": "random:x", "llama-3.1-8b": "random:y"})
    assert len({row.name for row in rows}) == len(rows)
    for row in rows:
        name, *arguments = row.arguments
        given = command.make_context(name, arguments, obj=Registry.installed()).params
        assert given["engine"] == (row.engine or "musebench")
        assert given["repeat"] == row.options.repeat


@pytest.mark.parametrize(
    "path", sorted((RESULTS / "baselines/h200/matrix").glob("*.json.gz")), ids=lambda p: p.name
)
def test_a_report_of_the_matrix_can_be_read_and_is_complete(path):
    assert files.read(path).status == "complete"
