"""Weights, pool and the stated bound: planted faults and doctored reports fail."""

from __future__ import annotations

from dataclasses import replace

import pytest
from doctored import (
    again,
    failures,
    one_run,
    the_failure,
    verdicts,
    with_pool,
    with_snapshots,
)
from planted import TwiceSource

from musebench.run import RunOptions, run

RANDOM = "random:smollm2-135m@layers=2,vocab=49152"
"""Some 140 MB of weights in float32: more than all that loading costs beside them."""


# -- weights ------------------------------------------------------------------------------------------


def test_weights_loaded_twice_fail(registry):
    shape = RunOptions("mixed-small", settings={"workload": {"requests": "1"}})
    once = run(replace(shape, model=RANDOM), registry)
    assert not failures(registry, "weights", once)
    try:
        twice = run(replace(shape, model=f"twice:{RANDOM}"), registry)
    finally:
        TwiceSource.kept.clear()
    failed = the_failure(registry, "weights", twice)
    assert "1.25 x " in failed.sums
    assert "at the start" in failed.sums


def test_loading_onto_a_device_is_held_to_the_factor_and_the_allowance(registry, honest):
    most = int(1.25 * honest.memory.computed.weights) + (64 << 20)
    for cost, right in ((most, True), (most + 1, False)):
        report = with_snapshots(honest, start={"allocated": 7}, loaded={"allocated": cost + 7})
        assert (not failures(registry, "weights", report)) is right
    assert not failures(registry, "weights", report, weights_factor=1.5)


def test_loads_that_differ_with_the_sessions_reserved_fail(registry, honest):
    mib = 1 << 20
    report = with_snapshots(honest, start={"host_resident": 0}, loaded={"host_resident": 60 * mib})
    choices = replace(honest.choices, bounds=replace(honest.choices.bounds, max_sessions=64))
    for more, right in ((256 * mib, True), (256 * mib + 1, False)):
        other = with_snapshots(
            again(honest, choices=choices),
            start={"host_resident": 0},
            loaded={"host_resident": 60 * mib + more},
        )
        failed = [one for one in failures(registry, "weights", report, other) if one.what == "loads alike"]
        assert (not failed) is right
    assert "reserve [8, 64] sessions" in failed[0].sums


# -- pool ---------------------------------------------------------------------------------------------


def test_a_leaked_cell_fails_pool(registry):
    report = run(RunOptions("capitals", pool="leaky"), registry)
    failed = next(one for one in failures(registry, "pool", report) if one.what == "no cell is left")
    assert failed.measured == "5 cells"
    # A run that was cut off still holds some, and that is not judged.
    cut_off = replace(report, status="incomplete", message="cut off")
    assert "no cell is left" not in [one.what for one in failures(registry, "pool", cut_off)]


def test_a_pool_that_reserves_everything_fails(registry):
    report = run(RunOptions("capitals", pool="greedy"), registry)
    report = with_pool(report, policy="geometric")
    failed = failures(registry, "pool", report)
    assert [one.what for one in failed] == ["geometric rows", "geometric rows below the whole"]
    assert failed[0].measured == "4,096 rows"
    assert "2 x (337 most cells in use + 64 tokens of the widest step)" in failed[0].sums


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"most_in_use": 513}, "rows hold the cells"),
        ({"bytes": 513 * 2048 - 1}, "bytes = rows x bytes per cell"),
        ({"bytes": 513 * 2048 + 1}, "bytes = rows x bytes per cell"),
        ({"policy": "fixed"}, "fixed rows"),
    ],
)
def test_a_doctored_pool_fails(registry, honest, changed, what):
    report = with_pool(one_run(honest), **changed)
    assert [one.what for one in failures(registry, "pool", report)] == [what]


def test_a_fixed_pool_has_all_its_rows(registry):
    report = run(RunOptions("capitals", pool="fixed"), registry)
    made = {one.what: one for one in verdicts(registry, "pool", report)}
    assert made["fixed rows"].measured == "4,096 rows"
    assert made["fixed rows"].valid


def test_generation_that_takes_more_than_pool_and_activations_fails(registry, honest):
    grown = max(honest.runs[0].pool.growths.peak_bytes)
    for added, right in ((grown + 1000, True), (grown + 1001, False)):
        report = with_snapshots(one_run(honest), opened={"allocated": 50}, peak={"peak": 50 + added})
        failed = failures(registry, "pool", report, activation_allowance=1000)
        assert (not failed) is right
    assert "the smallest honest allowance is" in failed[0].sums


def test_what_is_left_after_the_run_fails_but_for_the_graphs_pool(registry, honest):
    computed = replace(honest.memory.computed, graphs=500)
    base = replace(one_run(honest), memory=replace(honest.memory, computed=computed))
    for left, right in ((500, True), (501, False)):
        report = with_snapshots(
            base,
            loaded={"allocated": 10, "process_used": 20},
            closed={"allocated": 10 + left, "process_used": 20 + left},
        )
        failed = failures(registry, "pool", report, left_allocated=0, left_device=0)
        assert [one.what for one in failed] == (
            [] if right else ["nothing is left, says torch's allocator", "nothing is left, says NVML"]
        )


# -- bound --------------------------------------------------------------------------------------------


def test_a_peak_above_the_stated_bound_fails_in_its_phase(registry, honest):
    start = {"allocated": 100, "peak": 100}
    total = honest.memory.bound.total
    for peak, right in ((total + 100, True), (total + 101, False)):
        report = with_snapshots(honest, start=start, peak={"allocated": 100, "peak": peak})
        failed = [one for one in failures(registry, "bound", report) if one.what == "peak, peak"]
        assert (not failed) is right
    for part in ("weights", "rows", "growth", "workspace", "graphs", "activations"):
        assert part in failed[0].sums


def test_the_bound_is_stated_before_the_first_step_and_holds_the_rows_that_came(registry):
    stated = []
    report = run(
        RunOptions("capitals"),
        registry,
        prepare=lambda parts: stated.append((parts.bound, parts.backend.storage().rows)),
    )
    assert stated == [(report.memory.bound, 0)]
    run_ = report.runs[0]
    assert run_.pool.bytes <= report.memory.bound.rows
    assert max(run_.pool.growths.peak_bytes) <= report.memory.bound.rows + report.memory.bound.growth
