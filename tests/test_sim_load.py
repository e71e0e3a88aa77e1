"""What load a run gets from the command line: traces, arrivals, how much of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from affine_costs import use
from click.testing import CliRunner

from musebench.cli import root
from musebench.report import files
from musebench.report.schema import Report

HEADER = "arrival,prompt_tokens,output_tokens\n"
TRACE = HEADER + "".join(f"{index * 0.5},{20 + index},{3 + index % 7}\n" for index in range(40))


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use(monkeypatch)
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def invoke(*arguments: str):
    return CliRunner().invoke(
        root, ["run", *arguments, "--device", "sim:affine", "--model", "llama-3.2-1b", "--out", "/dev/null"]
    )


def run(tmp_path: Path, *arguments: str) -> Report:
    out = tmp_path / "report.json"
    choices = ["run", *arguments, "--device", "sim:affine", "--model", "llama-3.2-1b", "--out", str(out)]
    result = CliRunner().invoke(root, choices)
    assert result.exit_code == 0, result.output
    return files.read(out)


def arrivals(report: Report) -> np.ndarray:
    return np.asarray(report.runs[0].requests.arrival_seconds)


def test_a_trace_arrives_as_recorded_or_scaled(tmp_path, trace):
    whole = run(tmp_path, "--trace", str(trace))
    assert arrivals(whole).tolist() == [index * 0.5 for index in range(40)]
    assert whole.runs[0].requests.prompt_tokens == [20 + index for index in range(40)]
    assert whole.runs[0].requests.generated_tokens == [3 + index % 7 for index in range(40)]
    faster = run(tmp_path, "--trace", str(trace), "--speedup", "4")
    assert arrivals(faster) == pytest.approx(arrivals(whole) / 4)
    scaled = run(tmp_path, "--trace", str(trace), "--arrivals", "recorded", "--rate", "10")
    assert arrivals(scaled) == pytest.approx(np.arange(40) / 10)
    assert len(run(tmp_path, "--trace", str(trace), "--requests", "5").runs[0].requests) == 5
    assert len(run(tmp_path, "--trace", str(trace), "--duration", "2.1").runs[0].requests) == 5


@pytest.mark.parametrize("how", ["--stepwise", None])
def test_nothing_runs_in_a_gap_of_minutes_and_many_of_one_time_come_together(tmp_path, trace, how):
    """As in Azure's code trace, whose longest gap is 217.2 s, and in Mooncake's bins."""
    trace.write_text(HEADER + "0.0,30,4\n" * 28 + "217.2,126195,1\n" + "217.2,1,4\n")
    choices = ["--trace", str(trace), "--max-context", "131072", *([how] if how else [])]
    report = run(tmp_path, *choices)
    (made,) = report.runs
    assert made.requests.generated_tokens == [4] * 28 + [1, 4]
    starts, ends = np.asarray(made.steps.start), np.asarray(made.steps.end)
    before = ends[ends < 217.2]
    assert 0 < before.max() < 100
    assert starts[len(before)] == 217.2
    assert made.steps.prefill_tokens[0] == 28 * 30


def test_arrivals_are_drawn_from_the_seed_at_the_rate_that_was_asked_for(tmp_path, trace):
    constant = run(tmp_path, "--trace", str(trace), "--arrivals", "constant", "--rate", "8")
    assert arrivals(constant) == pytest.approx(np.arange(40) / 8)
    poisson = [
        arrivals(run(tmp_path, "--trace", str(trace), "--arrivals", "poisson", "--rate", "8", "--seed", seed))
        for seed in ("1", "1", "2")
    ]
    assert poisson[0].tolist() == poisson[1].tolist() != poisson[2].tolist()
    gamma = ("--arrivals", "gamma", "--rate", "8", "--burstiness")
    smooth, bursty = (arrivals(run(tmp_path, "--trace", str(trace), *gamma, cv)) for cv in ("0.05", "4"))
    assert np.diff(smooth).std() < np.diff(bursty).std()
    at_once = run(tmp_path, "--trace", str(trace), "--arrivals", "at-once")
    assert not arrivals(at_once).any()


@pytest.mark.parametrize("concurrency", [1, 3])
def test_in_a_closed_loop_the_next_request_arrives_when_one_has_ended(tmp_path, trace, concurrency):
    choices = ("--trace", str(trace), "--arrivals", "closed", "--concurrency", str(concurrency))
    report = run(tmp_path, *choices)
    requests = report.runs[0].requests
    assert requests.id == [f"row-{index + 2}" for index in range(40)]
    assert requests.arrival_seconds[:concurrency] == [0.0] * concurrency
    ends = sorted(requests.finish_seconds)
    assert requests.arrival_seconds[concurrency:] == ends[: 40 - concurrency]
    steps = report.runs[0].steps
    assert int((np.asarray(steps.running) + np.asarray(steps.waiting)).max()) == concurrency


def test_a_bad_row_is_refused_or_counted(tmp_path, trace):
    trace.write_text(TRACE + "30,none,4\n31,5,6\n")
    refused = invoke("--trace", str(trace))
    assert refused.exit_code == 2
    assert "row 42" in refused.output
    assert "none" in refused.output
    report = run(tmp_path, "--trace", str(trace), "--skip-bad-rows")
    assert len(report.runs[0].requests) == 41
    assert any("1 left out: bad rows" in note for note in report.conditions.workload.notes)
    shown = invoke("--trace", str(trace), "--skip-bad-rows")
    assert "1 left out: bad rows" in " ".join(shown.output.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--concurrency", "4"), "--concurrency changes nothing without --arrivals closed"),
        (("--burstiness", "4"), "--burstiness changes nothing without --arrivals gamma"),
        (("--arrivals", "poisson"), "--arrivals poisson needs --rate"),
        (("--arrivals", "closed", "--concurrency", "2", "--rate", "3"), "--rate does not go with --arrivals"),
        (("--arrivals", "constant", "--rate", "3", "--speedup", "2"), "--speedup does not go with"),
        (("--rate", "3", "--speedup", "2"), "exclude each other"),
        (("--rate", "0"), "--rate"),
    ],
)
def test_an_option_that_would_change_nothing_is_refused(trace, arguments, said):
    result = invoke("--trace", str(trace), *arguments)
    assert result.exit_code == 2
    assert said in result.output


def test_options_of_a_trace_are_refused_for_other_workloads(trace):
    for arguments in (("--duration", "3"), ("--skip-bad-rows",), ("--speedup", "2"), ("--rate", "2")):
        result = invoke("mixed-small", *arguments)
        assert result.exit_code == 2, arguments
        assert f"{arguments[0]} is of a trace, and workload 'mixed-small' has none" in result.output
    both = invoke("mixed-small", "--trace", str(trace))
    assert both.exit_code == 2
    assert "give one of them" in both.output
