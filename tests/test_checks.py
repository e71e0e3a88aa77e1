"""Each check passes an honest report and fails a doctored one, or one with a planted fault, with its sums."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import musebench
from musebench.checks.divergence import rounding_bound
from musebench.core.protocols import MemorySnapshot
from musebench.core.request import FinishReason
from musebench.measure.roofline import Ceilings, floors
from musebench.models.random_source import RandomOptions, RandomSource
from musebench.plugin import builtin, hookimpl
from musebench.plugin.registry import Registry
from musebench.pools.geometric import GeometricOptions, GeometricPool
from musebench.report.files import read
from musebench.report.verdict import judge, verdicts_of
from musebench.run import RunOptions, run

RANDOM = "random:smollm2-135m@layers=2,vocab=49152"
"""Some 140 MB of weights in float32: more than all that loading costs beside them."""


class LeakyPool(GeometricPool):
    """Keeps the first cell of every sequence."""

    def release(self, slot):
        self.rewind(slot, min(1, int(self.cells.held[slot])))


class GreedyPool(GeometricPool):
    """Says that it grows, and reserves everything."""

    def rows_for(self, needed):
        return self.capacity


class TwiceSource(RandomSource):
    """Keeps a second copy of the weights."""

    kept: list = []  # noqa: RUF012 - the fault itself: nobody lets it go

    def claims(self, text):
        return text.startswith("twice:")

    def open(self, text, dtype, device, seed):
        model = super().open(text.removeprefix("twice:"), dtype, device, seed)
        self.kept.append([parameter.clone() for parameter in model.module.parameters()])
        return model


class Plugin:
    @hookimpl
    def register_pools(self, register):
        register("leaky", LeakyPool, options=GeometricOptions)
        register("greedy", GreedyPool, options=GeometricOptions)

    @hookimpl
    def register_models(self, register):
        register("twice", TwiceSource, options=RandomOptions)


@pytest.fixture(scope="module")
def registry():
    made = Registry(strict=True)
    made.add(builtin, "musebench", musebench.__version__)
    made.add(Plugin(), "faults", "1")
    return made


@pytest.fixture(scope="module")
def honest(registry):
    return run(RunOptions("capitals", reference="transformers", margins=True, repeat=2), registry)


@pytest.fixture(scope="module")
def alone(registry):
    """The same requests one at a time: other batch shapes."""
    return run(RunOptions("capitals", scheduler="solo", margins=True, repeat=2), registry)


def verdicts(registry, name, *reports, **options):
    """The check's own; what every report is held to may find the same fault."""
    made = verdicts_of(reports, [registry.get("check", name).make(options)])
    return [one for one in made if one.check == name]


def failures(registry, name, *reports, **options):
    return [one for one in verdicts(registry, name, *reports, **options) if not one.valid]


def the_failure(registry, name, *reports, **options):
    (failed,) = failures(registry, name, *reports, **options)
    return failed


def with_run(report, index=0, **changed):
    runs = list(report.runs)
    runs[index] = replace(runs[index], **changed)
    return replace(report, runs=runs)


def with_requests(report, index=0, **changed):
    return with_run(report, index, requests=replace(report.runs[index].requests, **changed))


def with_steps(report, index=0, **changed):
    return with_run(report, index, steps=replace(report.runs[index].steps, **changed))


def with_pool(report, **changed):
    return with_run(report, 0, pool=replace(report.runs[0].pool, **changed))


def with_snapshots(report, **changed):
    snapshots = {name: MemorySnapshot(**values) for name, values in changed.items()}
    return replace(report, memory=replace(report.memory, snapshots={**report.memory.snapshots, **snapshots}))


def again(report, **changed):
    """The same report under another id."""
    return replace(report, id="again", **changed)


def swapped(report, place, index=0):
    """With the token at `place` of all made another one."""
    tokens = list(report.runs[index].requests.token_ids)
    tokens[place] = (tokens[place] + 1) % 100
    return with_requests(report, index, token_ids=tokens)


def test_every_check_passes_honest_reports_and_shows_its_sums(registry, honest, alone):
    for component in registry.components("check"):
        made = verdicts(registry, component.name, honest, alone)
        assert made, component.name
        assert all(one.check == component.name and one.valid for one in made)
        assert any(one.judged for one in made), component.name
        for one in made:
            assert (one.measured and one.bound and one.sums) if one.judged else one.reason, one


def test_an_old_report_is_not_judged_where_it_holds_nothing(registry, honest):
    bare = with_run(honest, audit=None, wall_seconds=None)
    bare = replace(bare, runs=bare.runs[:1], reference=None, memory=replace(honest.memory, bound=None))
    for name in ("reference", "bound"):
        assert not any(one.judged for one in verdicts(registry, name, bare))
    assert all(one.valid for one in verdicts(registry, "honest", bare))


# -- answers ------------------------------------------------------------------------------------------


def test_a_wrong_answer_fails_answers(registry, honest):
    failed = the_failure(registry, "answers", with_requests(honest, correct=[True, False, True, True, True]))
    assert failed.reason == "1 of 10 answers are wrong"
    assert (failed.measured, failed.bound) == ("9 right", "10 expected")


def test_a_request_that_did_not_end_normally_fails_answers_and_strikes_nothing(registry, honest):
    ends = [*honest.runs[0].requests.finish_reason[:4], FinishReason.REFUSED]
    messages = [None] * 4 + ["too long"]
    failed = the_failure(registry, "answers", with_requests(honest, finish_reason=ends, message=messages))
    assert "1 refused (too long)" in failed.reason
    assert not failed.strikes


# -- tokens -------------------------------------------------------------------------------------------


def test_a_swapped_token_fails_tokens(registry, honest, alone):
    place = honest.runs[0].requests.generated_tokens[0] + 1  # the second token of the second request
    failed = the_failure(registry, "tokens", alone, swapped(honest, place))
    assert failed.measured == "different: 4 of 5 requests equal"
    assert "request 'japan' parts at token 1 (margin " in failed.reason
    assert "float32" in failed.sums


def with_margins(report, at, margin, dtype="bfloat16"):
    """Bfloat16 reports: `margin` at the token `at`."""
    margins = [5.0] * len(report.runs[0].requests.token_ids)
    margins[at] = margin
    conditions = replace(report.conditions, model=replace(report.conditions.model, dtype=dtype))
    return replace(with_requests(report, margins=margins), conditions=conditions)


def test_a_small_margin_in_other_shapes_is_rounding_and_in_the_same_shapes_a_difference(
    registry, honest, alone
):
    bound = rounding_bound("bfloat16", honest.conditions.model.facts, 8.0).margin
    for margin, outcome in ((0.9 * bound, "rounding"), (1.1 * bound, "different")):
        one = with_margins(alone, 5, margin)
        other = with_margins(swapped(honest, 5), 5, margin)
        made = verdicts(registry, "tokens", one, other)[-1]
        assert made.measured.startswith(outcome)
        assert made.valid is (outcome == "rounding")
        assert f"{bound:.3g}" in made.bound
        same_shapes = again(other)
        assert verdicts(registry, "tokens", with_margins(honest, 5, margin), same_shapes)[
            -1
        ].measured.startswith("different")


def test_without_margins_rounding_cannot_be_told_from_a_fault_but_in_float32(registry, honest, alone):
    one, other = with_margins(alone, 5, 0.0), with_margins(swapped(honest, 5), 5, 0.0)
    reports = with_requests(one, margins=None), with_requests(other, margins=None)
    made = verdicts(registry, "tokens", *reports)[-1]
    assert (made.valid, made.judged) == (True, False)
    assert "1 of 5 requests part somewhere, and no margin there was recorded (--margins)" in made.reason
    exact = with_requests(alone, margins=None), with_requests(swapped(honest, 5), margins=None)
    assert "no margin recorded (--margins)" in the_failure(registry, "tokens", *exact).reason


def test_a_difference_at_the_first_token_of_most_requests_is_a_fault_whatever_the_margin(
    registry, honest, alone
):
    made = honest.runs[0].requests.generated_tokens
    other = honest
    for row in range(3):
        other = swapped(other, sum(made[:row]))
    zero = [0.0] * sum(made)
    model = replace(honest.conditions.model, dtype="bfloat16")
    one, other = (
        replace(with_requests(report, margins=zero), conditions=replace(report.conditions, model=model))
        for report in (alone, other)
    )
    assert "different" in the_failure(registry, "tokens", one, other).measured


def test_the_bound_follows_from_the_dtype(honest):
    facts = honest.conditions.model.facts
    coarse, fine = (rounding_bound(dtype, facts, 8.0).margin for dtype in ("bfloat16", "float16"))
    assert coarse == 8 * fine
    # 2 runs x 2^-8 x 8 x sqrt(2 x 4 layers)
    assert coarse == pytest.approx(2 * 2**-8 * 8 * (2 * facts.layers) ** 0.5)
    assert rounding_bound("float32", facts, 8.0).margin < fine


def test_reports_of_other_work_are_not_compared(registry, honest, alone):
    conditions = replace(alone.conditions, seed=1)
    made = verdicts(registry, "tokens", honest, replace(alone, conditions=conditions))
    assert not any(one.judged for one in made)


# -- reference ----------------------------------------------------------------------------------------


def test_tokens_unlike_the_references_fail(registry, honest):
    failed = the_failure(registry, "reference", swapped(honest, 0))
    assert "request 'france' parts at token 0" in failed.reason
    assert failed.bound == "ids equal"


def test_the_reference_was_made_by_plain_transformers_one_prompt_at_a_time(honest):
    made = honest.reference
    assert made.by.startswith("transformers 5.")
    assert made.token_ids == list(honest.runs[0].requests.token_ids)
    assert made.id == list(honest.runs[0].requests.id)


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


def one_run(report):
    return replace(report, runs=report.runs[:1], conditions=dataclasses.replace(report.conditions, repeats=1))


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


# -- accounting ---------------------------------------------------------------------------------------


def test_tokens_and_times_that_do_not_add_up_fail_accounting(registry, honest):
    requests, steps = honest.runs[0].requests, honest.runs[0].steps
    cases = {
        "prompt tokens": with_requests(honest, prompt_tokens=[n + 1 for n in requests.prompt_tokens]),
        "sums": with_requests(honest, max_new_tokens=[1] * 5),
        "times": with_requests(honest, scheduled_seconds=[-1.0] * 5),
        "durations, device": with_steps(honest, device_seconds=[max(steps.end)] * len(steps)),
        "durations, host": with_steps(honest, host_seconds=[max(steps.end)] * len(steps)),
    }
    for what, report in cases.items():
        failed = [one.what for one in failures(registry, "accounting", report)]
        assert any(one.startswith(what) for one in failed), (what, failed)


# -- determinism --------------------------------------------------------------------------------------


def test_a_repeat_with_other_tokens_fails_determinism(registry, honest):
    failed = the_failure(registry, "determinism", swapped(honest, 3, index=1))
    assert "run 2 as run 1" in failed.what


def test_the_same_choices_with_other_tokens_fail_determinism(registry, honest):
    first, other = one_run(honest), again(one_run(honest))
    assert not failures(registry, "determinism", first, other)
    assert the_failure(registry, "determinism", first, swapped(other, 0)).report == "again"


def test_in_virtual_time_the_whole_report_is_the_same_but_for_dates(registry, honest):
    conditions = replace(one_run(honest).conditions, clock="virtual")
    first = replace(one_run(honest), conditions=conditions)
    other = again(first, created="2030-01-01T00:00:00+00:00")
    assert not failures(registry, "determinism", first, other)
    later = with_steps(other, end=[time + 1e-9 for time in other.runs[0].steps.end])
    assert "runs[0].steps.end[0]" in the_failure(registry, "determinism", first, later).reason


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


# -- honest -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("backend", "allowed"), [("cuda", 1.05), ("cpu", 4.0)])
def test_a_step_may_miss_its_floor_by_what_its_ceilings_may_be_off(registry, honest, backend, allowed):
    """Half a second of bytes at the ceilings' rate, in steps of as much time as is allowed and less."""
    report = one_run(honest)
    steps = report.runs[0].steps
    facts = report.conditions.model.facts
    # Bandwidth alone: operations are free, and the weights dwarf the cells.
    made = [floors_of(facts, steps, row) for row in range(len(steps))]
    ceilings = Ceilings(max(made) / 0.5, 1e30, "float32")
    backend = replace(report.choices.backend, name=backend)
    report = replace(
        report,
        conditions=replace(report.conditions, ceilings=ceilings),
        choices=replace(report.choices, backend=backend),
    )
    for factor, right in ((1.01, True), (0.99, False)):
        seconds = [factor * moved / ceilings.copy_bytes_per_second / allowed for moved in made]
        other = with_steps(report, device_seconds=seconds, end=[time + 1 for time in steps.end])
        made_of = verdicts(registry, "honest", other, floor_bytes=0)
        (floor,) = [one for one in made_of if one.what == "not faster than the floor"]
        assert floor.valid is right, floor


def floors_of(facts, steps, row):
    ones = (steps.decode_tokens[row] + steps.prefill_tokens[row], steps.logit_rows[row])
    cells = (steps.attended_cells[row], steps.attended_pairs[row], steps.forwards[row])
    columns = [np.array([value]) for value in (*ones, *cells)]
    return int(floors(facts, Ceilings(1.0, 1e30, "float32"), *columns).moved_bytes[0])


def test_a_step_faster_than_its_floor_fails(registry, honest):
    slow = Ceilings(1.0, 1.0, "float32")  # a device of one byte a second
    conditions = replace(honest.conditions, ceilings=slow)
    report = replace(honest, conditions=conditions)
    failed = failures(registry, "honest", report, floor_bytes=0)
    assert {one.what for one in failed} == {
        "not faster than the floor, run 1",
        "not faster than the floor, run 2",
    }
    assert "bytes at 1 bytes/s" in failed[0].sums
    # Weights of a few megabytes may come out of a cache: such steps have no floor.
    assert not failures(registry, "honest", report)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.0, "in 0 s on the device"), (1e3, "its tokens were known after")]
)
def test_device_times_that_cannot_be_fail(registry, honest, seconds, words):
    steps = honest.runs[0].steps
    report = with_steps(honest, device_seconds=[seconds, *steps.device_seconds[1:]])
    assert words in the_failure(registry, "honest", report).reason


def test_missing_device_times_fail(registry, honest):
    steps = honest.runs[0].steps
    report = with_steps(honest, device_seconds=[None] * len(steps))
    assert "missing for all steps" in the_failure(registry, "honest", report).reason


def test_a_lying_clock_fails(registry, honest):
    report = with_run(honest, wall_seconds=10.0)
    failed = the_failure(registry, "honest", report)
    assert failed.what == "clock, run 1"
    assert "10.000 s by the host's" in failed.sums


def test_an_audit_that_found_something_fails(registry, honest):
    audit = {**honest.runs[0].audit, "not launched": 2}
    assert (
        "2 forwards gave tokens and launched nothing"
        in the_failure(registry, "honest", with_run(honest, audit=audit)).reason
    )


def test_a_judgement_says_a_reason_once(registry, honest):
    """Checks restate with their sums what every report is held to; a table's line of reasons does not."""
    wrong = with_requests(honest, correct=[False] * 5)
    checks = [component.make({}) for component in registry.components("check")]
    (judgement,) = judge([wrong], checks)
    assert judgement.reasons == ("5 of 10 answers are wrong",)


def test_the_reports_measured_on_an_h200_pass_every_check(registry):
    folder = Path(__file__).resolve().parents[1] / "results" / "baselines" / "h200"
    reports = [read(path) for path in sorted(folder.glob("*.json.gz"))]
    assert reports
    checks = [component.make({}) for component in registry.components("check")]
    made = verdicts_of(reports, checks)
    assert [one.reason for one in made if not one.valid] == []
    judged = {one.check for one in made if one.judged}
    assert {"answers", "tokens", "pool", "accounting", "honest"} <= judged
