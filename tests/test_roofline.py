"""Floors of steps: by hand, against known shapes, and as a table of a report."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_examples import mixed_run
from report_examples import report as example_report_of

from musebench.core.facts import ModelFacts
from musebench.measure import ceilings as kept
from musebench.measure.roofline import Ceilings, floors
from musebench.models.shapes import shape
from musebench.report.roofline import gaps, step_kinds, table

H200 = Ceilings(4.25e12, 745e12, "bfloat16")
TINY = ModelFacts(
    name="tiny", family="llama", layers=2, hidden=8, heads=4, kv_heads=2, head_dim=2, intermediate=16,
    vocab=32, max_context=64, dtype="float32", parameters=1, active_parameters=1,
)  # fmt: skip


def decodes(facts: ModelFacts, sequences: int, context: int, limit: Ceilings = H200):
    ones = np.ones(1, np.int64)
    cells = ones * sequences * context
    return floors(facts, limit, ones * sequences, ones * sequences, cells, cells, ones)


def test_a_step_by_hand():
    """Two layers of 8x16 (q 8, k 4, v 4), 8x8, 8x32 and 16x8; 32x8 for the vocabulary; float32."""
    made = decodes(TINY, 1, 10, Ceilings(1.0, 1e12, "float32"))
    weights = 2 * (8 * 16 + 8 * 8 + 8 * 32 + 16 * 8) + 32 * 8
    # 10 cells read and one written, of keys and values of 2 heads of 2, in two layers
    cells = 2 * (10 + 1) * 2 * 2 * 2
    assert made.moved_bytes.tolist() == [4 * (weights + cells)]
    assert made.seconds[0] == pytest.approx(4 * (weights + cells))


def test_operations_bind_where_the_rate_is_low():
    made = decodes(TINY, 3, 10, Ceilings(1e15, 1.0, "float32"))
    weights = 2 * (8 * 16 + 8 * 8 + 8 * 32 + 16 * 8) + 32 * 8
    attention = 2 * 4 * 4 * 2 * 30
    assert made.seconds[0] == pytest.approx(2 * 3 * weights + attention)


@pytest.mark.parametrize(
    ("name", "sequences", "milliseconds"),
    [
        ("smollm2-135m", 1, 0.07), ("smollm2-135m", 64, 0.42),
        ("llama-3.2-1b", 1, 0.59), ("llama-3.2-1b", 64, 1.09), ("llama-3.2-1b", 256, 2.88),
        ("llama-3.1-8b", 1, 3.57), ("llama-3.1-8b", 64, 5.56),
    ],
)  # fmt: skip
def test_floors_of_known_shapes_at_a_context_of_1024(name, sequences, milliseconds):
    made = decodes(shape(name).facts("bfloat16"), sequences, 1024)
    assert made.seconds[0] * 1e3 == pytest.approx(milliseconds, rel=0.03)


@given(
    st.integers(1, 200), st.integers(1, 500), st.sampled_from(["llama-3.2-1b", "gemma-3-1b", "gpt-oss-20b"])
)
def test_more_work_never_has_a_lower_floor(sequences, context, name):
    facts = shape(name).facts("bfloat16")
    small, large = decodes(facts, sequences, context), decodes(facts, sequences + 1, context + 1)
    assert small.seconds[0] <= large.seconds[0]
    assert small.moved_bytes[0] <= large.moved_bytes[0]


def test_a_window_is_charged_for_no_more_than_one_sequences_window():
    windowed = dataclasses.replace(TINY, windows=(4, None))
    made = decodes(windowed, 1, 10, Ceilings(1.0, 1e12, "float32"))
    whole = decodes(TINY, 1, 10, Ceilings(1.0, 1e12, "float32"))
    assert whole.moved_bytes[0] - made.moved_bytes[0] == 4 * (10 - 4) * 2 * 2 * 2


def test_a_report_without_ceilings_says_how_to_get_them_and_shows_times_all_the_same():
    report = example_report_of(mixed_run())
    made = table(report)
    assert any("doctor --measure" in note for note in made.notes)
    assert all(value is None for row in made.rows if row.name == "floor" for value in row.values)


def test_kinds_of_steps_hold_every_step_once():
    report = example_report_of(mixed_run())
    counted = sum(one.steps for one in step_kinds(report).values())
    assert counted == sum(len(run.steps) for run in report.runs)


def test_a_gap_is_what_neither_the_step_before_nor_the_device_explains():
    run = example_report_of(mixed_run()).runs[0]
    steps = dataclasses.replace(
        run.steps,
        **{
            name: [0] * 3 if name not in run.steps.FLAT else None
            for name in (field.name for field in dataclasses.fields(run.steps))
        }
        | {"start": [0.0, 1.0, 9.0], "end": [2.0, 4.0, 10.0], "device_seconds": [1.5, 1.75, None],
           "host_seconds": [0.0] * 3, "programs": {}},
    )  # fmt: skip
    run = dataclasses.replace(run, steps=steps, requests=dataclasses.replace(run.requests, token_steps=None))
    made = gaps(run)
    assert made[:2].tolist() == [0.5, 0.25]
    assert np.isnan(made[2])


def test_ceilings_are_kept_by_device_and_dtype_and_a_damaged_file_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("MUSEBENCH_CACHE", str(tmp_path))
    assert kept.stored_ceilings("a", "bfloat16") is None
    path = kept.store_ceilings("a", H200)
    kept.store_ceilings("b", Ceilings(1.0, 2.0, "bfloat16"))
    assert kept.stored_ceilings("a", "bfloat16") == H200
    assert kept.stored_ceilings("a", "float32") is None
    path.write_text("{")
    assert kept.stored_ceilings("a", "bfloat16") is None
