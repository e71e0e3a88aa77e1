"""Objectives of latency: who meets them, and what a second is worth when only those count."""

from __future__ import annotations

import dataclasses
import json

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from report_examples import mixed_run
from report_examples import report as report_of

from musebench.cli import root
from musebench.core.errors import UsageError
from musebench.core.request import FinishReason
from musebench.report import files, metrics
from musebench.report.slo import attainment, parse, run_attainment


def test_terms_are_read_with_their_units():
    assert parse(["ttft=500ms", "tpot=0.05s", "E2E = 20 s"]) == {"ttft": 0.5, "tpot": 0.05, "e2e": 20.0}
    assert parse(["ttft=250us"]) == {"ttft": pytest.approx(250e-6)}


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        (["ttft"], "NAME=LIMIT is wanted"),
        (["ttft=500"], "has no unit"),
        (["tpt=5ms"], "did you mean 'tpot'"),
        (["ttft=0ms"], "above 0"),
        (["ttft=-5ms"], "NAME=LIMIT is wanted"),
        (["ttft=5ms", "ttft=6ms"], "twice"),
    ],
)
def test_a_term_that_cannot_be_used_is_named(terms, said):
    with pytest.raises(UsageError, match=said):
        parse(terms)


@given(limit=st.floats(1e-6, 10), gap=st.floats(1e-6, 10))
def test_attainment_is_that_of_the_samples(limit, gap):
    report = dataclasses.replace(report_of(mixed_run()), slo={"ttft": limit, "tpot": gap})
    held = attainment(report)
    met = 0
    for run in report.runs:
        requests = run.requests
        for row, reason in enumerate(requests.finish_reason):
            first, last = requests.first_token_seconds[row], requests.last_token_seconds[row]
            good = reason is not None and reason.succeeded
            if good and first is not None:
                good = first - requests.arrival_seconds[row] <= limit
                if requests.generated_tokens[row] > 1:
                    good = good and (last - first) / (requests.generated_tokens[row] - 1) <= gap
            met += good
    assert held.met == met
    assert held.requests == sum(len(run.requests) for run in report.runs)
    if (rate := metrics.throughput(report).requests_per_second) is not None and held.goodput is not None:
        assert held.goodput <= rate * (1 + 1e-9) + held.requests  # a request without a token is in none
    for run in report.runs:
        assert 0 <= run_attainment(run, report.slo) <= 1


def test_what_did_not_succeed_misses_everything():
    report = report_of(mixed_run())
    (run, *_) = report.runs
    requests = dataclasses.replace(run.requests, finish_reason=[FinishReason.FAILED] * len(run.requests))
    failed = dataclasses.replace(
        report, runs=[dataclasses.replace(run, requests=requests)], slo={"ttft": 1e9}
    )
    assert attainment(failed).met == 0
    assert attainment(failed).goodput == 0.0


def test_a_real_run_shows_its_objectives_and_keeps_them(tmp_path):
    out = tmp_path / "report.json"
    choices = ["run", "capitals", "--slo", "ttft=1000s", "--slo", "tpot=0.001us", "--format", "json"]
    result = CliRunner().invoke(root, [*choices, "--out", str(out)])
    assert result.exit_code == 0, result.output
    report = files.read(out)
    assert report.slo == {"ttft": 1000.0, "tpot": pytest.approx(1e-9)}
    shown = json.loads(result.output[: result.output.rindex("}") + 1])
    (table,) = [table for table in shown["tables"] if table["title"] == "objectives"]
    values = {row["name"]: row["values"]["value"] for row in table["rows"]}
    assert values["TTFT at most 1,000 s"] == 1.0
    assert values["TPOT at most 1.000 ns"] == 0.0
    assert values["requests that meet all"] == 0
    assert values["goodput: requests/s"] == 0.0
