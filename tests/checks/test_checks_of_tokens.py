"""Answers, tokens, the reference, their sums and repeats: doctored reports fail."""

from __future__ import annotations

from dataclasses import replace

import pytest
from doctored import (
    again,
    failures,
    one_run,
    swapped,
    the_failure,
    verdicts,
    with_requests,
    with_steps,
)

from musebench.checks.divergence import rounding_bound
from musebench.core.request import FinishReason

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
