"""Times that cannot be, and what an audit found: doctored reports fail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from doctored import (
    failures,
    one_run,
    the_failure,
    verdicts,
    with_run,
    with_steps,
)

from musebench.measure.roofline import Ceilings, floors


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
    report = with_run(honest, waited_seconds=10.0, wall_seconds=10.0)
    failed = the_failure(registry, "honest", report)
    assert failed.what == "clock, run 1"
    assert "10.000 s by the host's" in failed.sums
    assert the_failure(registry, "honest", with_run(honest, wall_seconds=-1.0)).what == "clock, run 1"


def test_a_host_that_was_held_up_after_the_last_step_makes_no_clock_lie(registry, honest):
    assert not failures(registry, "honest", with_run(honest, wall_seconds=1e6))


def test_an_audit_that_found_something_fails(registry, honest):
    audit = {**honest.runs[0].audit, "not launched": 2}
    assert (
        "2 forwards gave tokens and launched nothing"
        in the_failure(registry, "honest", with_run(honest, audit=audit)).reason
    )
