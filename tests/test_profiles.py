"""Profiles: every one loads, names its sources, and says of what kind it is."""

from __future__ import annotations

import csv
import json
import statistics
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from musebench.backends.simulated.costs import costs_for
from musebench.backends.simulated.kernels import Kernel
from musebench.backends.simulated.operations import PROGRAMS
from musebench.backends.simulated.profile import FOLDER, open_profile, profile_names
from musebench.core.errors import InputError, UsageError
from musebench.models.shapes import shape

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
FIRST = Path(__file__).resolve().parent / "h200_first.json"
"""An H200 as single figures from it describe it: products by layer, decode attention, what a step leaves."""

GROUPS = {"device", "products", "attention", "small", "host", "launch", "copy", "all_reduce"}


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_loads_names_its_sources_and_prices_a_step(name):
    profile = open_profile(name)
    assert profile.name == name
    assert profile.label == f"{name} ({profile.kind})"
    assert set(profile.sources) - {"reductions"} == GROUPS
    assert ("reductions" in profile.sources) == (profile.reductions is not None)
    assert all(profile.sources.values())
    dtype = "bfloat16" if "bfloat16" in profile.rates else "float16"
    costs = costs_for(shape("llama-3.2-1b").facts(dtype), profile)
    for program in PROGRAMS:
        assert costs.decode_stretch(np.array([1024]), 1, program)[0] > 2.4e9 / 2 / profile.bandwidth


def test_only_h200_was_measured():
    assert {name for name in profile_names() if open_profile(name).kind == "measured"} == {"h200"}


def test_datasheets_are_those_of_the_table_of_devices():
    table = DATA / "devices.csv"
    if not table.exists():
        pytest.skip(f"{table} is not there")
    sheets = json.loads((FOLDER / "datasheets.json").read_text())["devices"]
    by_device = {facts["device"]: facts for facts in sheets.values()}
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(by_device)
    for row in rows:
        facts = by_device[f"{row['vendor']} {row['name']}"]
        assert facts["source"] == row["source"]
        assert facts["bandwidth_gbs"] == float(row["mem_bw_gbs"])
        assert facts["memory_gb"] == float(row["mem_gb"])
        assert facts["dense_tflops"].get("float16") == (float(row["fp16_dense_tflops"] or 0) or None)
        assert facts["dense_tflops"].get("bfloat16") == (float(row["bf16_dense_tflops"] or 0) or None)


def test_an_unknown_profile_gives_the_nearest_name():
    with pytest.raises(UsageError, match="no profile 'a100_80g'; did you mean 'a100-80g'"):
        open_profile("a100_80g")


def test_a_name_is_taken_in_any_case():
    assert open_profile("H100") == open_profile("h100")


def test_a_file_is_taken_wherever_a_name_is(tmp_path):
    file = tmp_path / "mine.json"
    file.write_text((FOLDER / "h200.json").read_text().replace('"h200"', '"mine"'))
    assert open_profile(str(file)).name == "mine"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tree: tree.pop("bandwidth"), "key 'bandwidth' is missing"),
        (lambda tree: tree.update(bandwidth=0), "'bandwidth' is 0.0; a number above 0"),
        (lambda tree: tree.update(schema=99), "'schema' is 99"),
        (lambda tree: tree.update(kind="guessed"), "'kind' is 'guessed'"),
        (lambda tree: tree["products"].pop("sharpness"), "key 'sharpness' is missing"),
        (lambda tree: tree["small"].update(colour=1), "colour"),
        (lambda tree: tree.update(rates=None), "wanted"),
    ],
)
def test_a_broken_profile_is_one_line_that_names_file_and_key(tmp_path, change, said):
    tree = json.loads((FOLDER / "h200.json").read_text())
    change(tree)
    file = tmp_path / "broken.json"
    file.write_text(json.dumps(tree))
    with pytest.raises(InputError) as caught:
        open_profile(str(file))
    assert str(file) in str(caught.value)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_missing_or_no_json_is_said(tmp_path):
    with pytest.raises(InputError, match=r"none\.json.*profile's file is wanted"):
        open_profile(str(tmp_path / "none.json"))
    (tmp_path / "text.json").write_text("hello")
    with pytest.raises(InputError, match="JSON is wanted"):
        open_profile(str(tmp_path / "text.json"))


@pytest.mark.parametrize(
    ("model", "tokens", "measured_microseconds"),
    [
        ("llama-3.1-8b", 1, 120), ("llama-3.1-8b", 64, 127), ("llama-3.1-8b", 256, 193),
        ("llama-3.2-1b", 1, 45), ("llama-3.2-1b", 64, 49), ("llama-3.2-1b", 256, 63),
    ],
)  # fmt: skip
def test_the_first_h200s_products_are_those_measured(model, tokens, measured_microseconds):
    costs = costs_for(shape(model).facts("bfloat16"), open_profile(str(FIRST)))
    products = {"query, key, value", "attention output", "gate, up", "down"}
    layer = sum(
        operation.each.seconds
        for operation in costs.work.body(tokens, PROGRAMS["graph"])
        if operation.name in products
    )
    assert layer == pytest.approx(measured_microseconds * 1e-6, rel=0.06)


def test_the_first_h200_meets_the_steps_that_were_measured_on_it():
    """Replayed decodes of 1,024 cells a sequence, milliseconds; results/baselines/h200/README.md."""
    measured = {
        ("llama-3.2-1b", 1): (1.866, 1.093),
        ("llama-3.2-1b", 64): (2.812, 1.746),
        ("llama-3.2-1b", 256): (4.925, 3.748),
        ("llama-3.1-8b", 1): (6.214, 4.823),
        ("llama-3.1-8b", 64): (9.553, None),
        ("llama-3.1-8b", 256): (18.678, None),
    }
    for (model, sequences), milliseconds in measured.items():
        costs = costs_for(shape(model).facts("bfloat16"), open_profile(str(FIRST)))
        for program, expected in zip(("graph", "compiled graph"), milliseconds, strict=True):
            seconds = costs.decode_stretch(np.full(sequences, 1024), 1, program)[0]
            if expected is not None:
                assert seconds * 1e3 == pytest.approx(expected, rel=0.1)


def test_the_first_h200_meets_its_growths_captures_and_pools_of_graphs():
    large = costs_for(shape("llama-3.1-8b").facts("bfloat16"), open_profile(str(FIRST)))
    small = costs_for(shape("llama-3.2-1b").facts("bfloat16"), open_profile(str(FIRST)))
    assert large.copy_seconds(17_180_000_256) == pytest.approx(8.45e-3, rel=0.05)
    assert large.copy_seconds(34_359_869_440) == pytest.approx(16.5e-3, rel=0.05)
    assert large.capture_seconds(1) == pytest.approx(0.086, rel=0.1)
    assert small.launch_seconds("eager") == pytest.approx(12.83e-3, rel=0.02)
    assert large.graph_bytes(256) == pytest.approx(127_926_272, rel=0.12)
    assert small.graph_bytes(256) == pytest.approx(96_468_992, rel=0.12)
    assert small.graph_bytes(64) == pytest.approx(27_262_976, rel=0.12)


def test_the_fit_of_all_reduce_stays_near_its_measurements():
    table = DATA / "measured" / "vidur" / "h100_dgx_all_reduce.csv"
    if not table.exists():
        pytest.skip(f"{table} is not there")
    links = open_profile("h100").all_reduce
    assert links is not None
    errors = defaultdict(list)
    with table.open(newline="") as file:
        for row in csv.DictReader(file):
            devices, measured = int(row["num_workers"]), float(row["time_stats.all_reduce.median"]) / 1e3
            errors[devices].append(abs(links.cost(int(row["size"]), devices).seconds / measured - 1))
    assert set(errors) == {2, 4, 8}
    for found in errors.values():
        assert statistics.median(found) < 0.05


def test_all_reduce_grows_with_its_bytes_and_a_device_alone_pays_nothing():
    links = open_profile("h100").all_reduce
    assert links is not None
    assert links.cost(1e6, 1) == Kernel(0.0, 0.0, 0.0, "network")
    for devices in (2, 3, 4, 8, 16):
        seconds = [links.cost(10.0**power, devices).seconds for power in range(3, 10)]
        assert seconds == sorted(seconds)
        assert seconds[-1] > 100 * seconds[0] / 8


@pytest.mark.parametrize("table", ["h100_llama-2-7b_mlp.csv", "a100_llama-3-8b_mlp.csv"])
def test_default_efficiencies_stay_near_the_products_they_were_fitted_to(table):
    file = DATA / "measured" / "vidur" / table
    if not file.exists():
        pytest.skip(f"{file} is not there")
    profile = open_profile("h100" if table.startswith("h100") else "a100-80g")
    errors = []
    with file.open(newline="") as opened:
        for row in csv.DictReader(opened):
            tokens, shards = int(row["num_tokens"]), int(row["num_tensor_parallel_workers"])
            hidden, inner = int(row["n_embd"]), int(row["n_expanded_embd"])
            keys = int(row["n_kv_head"]) * 128
            for name, inputs, outputs in (
                ("attn_pre_proj", hidden, (hidden + 2 * keys) // shards),
                ("attn_post_proj", hidden // shards, hidden),
                ("mlp_up_proj", hidden, 2 * inner // shards),
                ("mlp_down_proj", inner // shards, hidden),
            ):
                moved = 2.0 * (inputs * outputs + tokens * (inputs + outputs))
                seconds, _ = profile.products.seconds(
                    profile.bandwidth, profile.rates["bfloat16"], moved, 2.0 * tokens * inputs * outputs,
                    ("bfloat16", tokens, inputs, outputs),
                )  # fmt: skip
                errors.append(abs(seconds * 1e3 / float(row[f"time_stats.{name}.median"]) - 1))
    assert len(errors) > 4000
    assert statistics.median(errors) < 0.07
