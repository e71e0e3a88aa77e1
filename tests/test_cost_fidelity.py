"""The committed comparison with others' measurements is what its command makes, and meets its target."""

from __future__ import annotations

import importlib
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "results" / "baselines" / "simulation"
DATA = ROOT.parent / "shared" / "data"

pytestmark = pytest.mark.skipif(
    not (DATA / "measured_results.csv").exists(), reason=f"{DATA / 'measured_results.csv'} is not there"
)


@pytest.fixture
def modules(monkeypatch) -> Iterator[dict[str, ModuleType]]:
    """The scripts beside the table, which are no package."""
    names = ("predict", "rows", "reasons", "kernel_tables", "llmservingsim", "make")
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
