"""The committed comparison with others' measurements is what its command makes, and meets its target."""

from __future__ import annotations

import hashlib
import importlib
import json
import statistics
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from musebench.report import files

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "results" / "baselines" / "simulation"
DATA = ROOT.parent / "shared" / "data"

pytestmark = pytest.mark.skipif(
    not (DATA / "measured_results.csv").exists(), reason=f"{DATA / 'measured_results.csv'} is not there"
)


@pytest.fixture
def modules(monkeypatch) -> Iterator[dict[str, ModuleType]]:
    """The scripts beside the table, which are no package."""
    names = (
        "predict", "rows", "reasons", "kernel_tables", "llmservingsim", "own_runs", "own_tables", "make",
    )  # fmt: skip
    monkeypatch.syspath_prepend(str(FOLDER))
    try:
        yield {name: importlib.import_module(name) for name in names}
    finally:
        for name in names:
            sys.modules.pop(name, None)


def test_the_median_error_of_dense_rows_meets_the_target(modules):
    dense = [one for one in modules["rows"].compare_all(DATA) if one.dense]
    errors = [abs(one.error) for one in dense if one.error is not None]
    assert len(dense) == 23
    assert len(errors) == 20
    assert statistics.median(errors) <= 0.15


def test_every_miss_has_a_reason_and_every_row_without_a_prediction_says_why(modules):
    for one in modules["rows"].compare_all(DATA):
        if one.error is None:
            assert one.why_not
        elif abs(one.error) > modules["reasons"].LIMIT:
            assert modules["reasons"].reason(one)


def test_the_committed_tables_are_those_of_the_command(modules, monkeypatch, tmp_path):
    make = modules["make"]
    monkeypatch.setattr(make, "HERE", tmp_path)
    make.main(DATA)
    assert (tmp_path / "README.md").read_text() == (FOLDER / "README.md").read_text()


def test_the_worst_row_stands_first(modules):
    rows = [one for one in modules["rows"].compare_all(DATA) if one.dense]
    lines = modules["make"].compared_table(rows).splitlines()[2:]
    shown = [line.split("|")[6].strip() for line in lines]
    errors = [abs(float(text.rstrip("%"))) for text in shown if text != "-"]
    assert errors == sorted(errors, reverse=True)


def test_the_real_run_of_llmservingsims_trace_reads_as_its_authors_summarise_it(modules):
    """Their summary.txt: TTFT 7,097.2 ms and TPOT 32.5 ms in the mean."""
    real = modules["llmservingsim"].measured(DATA)
    assert statistics.fmean(real.ttft) == pytest.approx(7.0972, rel=1e-3)
    assert statistics.fmean(real.tpot) == pytest.approx(32.5e-3, rel=2e-3)
    assert len(modules["llmservingsim"].compared(real, real)) == 7
    assert {row[3] for row in modules["llmservingsim"].compared(real, real)} == {"+0.0%"}


def test_the_real_runs_rows_may_come_in_any_order_and_its_epoch_is_not_read(modules, tmp_path):
    served, folder = modules["llmservingsim"], tmp_path / modules["llmservingsim"].RUN
    folder.mkdir(parents=True)
    rows = (DATA / served.RUN / "requests.jsonl").read_text().splitlines()
    later = [{**json.loads(row), "arrival_time": 0.0} for row in reversed(rows)]
    (folder / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in later))
    real, read = served.measured(DATA), served.measured(tmp_path)
    for name in ("ttft", "tpot", "latency"):
        assert getattr(read, name) == getattr(real, name)[::-1]
    assert read.output_tok_s == real.output_tok_s


def test_the_real_run_was_of_the_trace_that_is_simulated(modules):
    """Its meta.json, which on this device has no block for hardware, names the workload by its hash."""
    meta = json.loads((DATA / modules["llmservingsim"].RUN / "meta.json").read_text())
    trace = DATA / "traces" / f"llmservingsim_{Path(meta['dataset_path']).name}"
    assert hashlib.sha256(trace.read_bytes()).hexdigest() == meta["dataset_hash"]
    assert "hardware" not in meta


def test_own_runs_make_the_steps_of_their_simulations_and_every_miss_has_a_reason(modules):
    tables = modules["own_tables"]
    found = modules["own_runs"].pairs()
    assert len(found) == 23
    assert {pair.name: pair.differences for pair in found if pair.differences} == {}
    over = {pair.name for pair in tables.compared(found) if tables.missed(pair)}
    assert over == set(tables.REASONS)
    decodes = ("steady-llama-3.1-8b-1-graph", "steady-llama-3.2-1b-256-compiled", "mixed-llama-3.2-1b-graph")
    assert not over & set(decodes)


def test_a_difference_between_a_run_and_its_simulation_is_named(modules):
    runs = modules["own_runs"]
    path = runs.REPORTS / "steady-llama-3.2-1b-1-graph.json.gz"
    report = files.read(path)
    run = report.runs[0]
    changed = replace(report, runs=[replace(run, counters={**run.counters, "captures": 2})])
    assert runs.Pair("changed", report, changed, np.zeros(len(run.steps), bool)).differences == ["captures"]
    assert runs.Pair("same", report, report, np.zeros(len(run.steps), bool)).differences == []


def test_the_served_trace_meets_its_targets(modules):
    shown = {row[0]: abs(float(row[3].rstrip("%"))) for row in modules["own_tables"].served_rows(DATA)}
    assert shown["output tok/s"] <= 10.0
    assert shown["tpot mean ms"] <= 10.0
    assert shown["ttft mean s"] <= 25.0
    assert shown["ttft p50 s"] <= 25.0
