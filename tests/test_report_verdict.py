"""Each built-in check finds the fault it is for, and none where there is none."""

from __future__ import annotations

import dataclasses

import pytest
from report_examples import FAILED, LENGTH, mixed_run, pool, report, request, requests, steps

from musebench.report.schema import RunData
from musebench.report.verdict import Judgement, Verdict, exit_code, judge


def reasons(*runs, **changed):
    (judgement,) = judge([report(*runs, **changed)])
    return list(judgement.reasons)


def changed_steps(**columns):
    run = mixed_run()
    return dataclasses.replace(run, steps=dataclasses.replace(run.steps, **columns))


def changed_requests(**columns):
    run = mixed_run()
    return dataclasses.replace(run, requests=dataclasses.replace(run.requests, **columns))


def changed_pool(**fields):
    run = mixed_run()
    return dataclasses.replace(run, pool=dataclasses.replace(run.pool, **fields))


def test_an_honest_report_is_valid_with_one_run_and_with_two():
    assert reasons() == []
    assert reasons(mixed_run(), mixed_run()) == []
    assert Judgement().line() == "VALID"
    assert exit_code(report()) == 0


def test_an_incomplete_run_is_invalid():
    (reason,) = reasons(status="incomplete", message="out of time")
    assert reason == "the run is incomplete (out of time)"


def test_missing_repeats_are_invalid():
    conditions = dataclasses.replace(report().conditions, repeats=3)
    assert reasons(conditions=conditions) == ["1 of 3 repeats are there"]


def test_wrong_answers_are_invalid_with_their_number():
    rows = [
        request("right", correct=True, expect="x"),
        request("wrong", correct=False, expect="x"),
        request("unknown"),
    ]
    assert reasons(RunData(requests(*rows), steps([0.1]), pool())) == ["1 of 2 answers are wrong"]


def test_a_run_in_which_nothing_succeeded_is_invalid():
    row = request("x", finish_reason=FAILED, message="no memory")
    assert reasons(RunData(requests(row), steps([0.1]), pool())) == [
        "none of 1 requests succeeded: 1 failed (no memory)"
    ]
    many = [request(str(index), finish_reason=FAILED, message=f"reason {index}") for index in range(5)]
    (reason,) = reasons(RunData(requests(*many), steps([0.1]), pool()))
    assert reason.endswith("1 failed (reason 2) and 2 more reasons")


def test_a_report_without_a_request_is_invalid():
    assert reasons(RunData(requests(), steps([]), pool())) == ["there is no request in it"]


def test_a_run_whose_requests_asked_for_no_token_is_valid():
    zero = request(
        "zero",
        generated_tokens=0,
        max_new_tokens=0,
        finish_reason=LENGTH,
        first_token_seconds=None,
        last_token_seconds=None,
    )
    assert reasons(RunData(requests(zero), steps([]), pool())) == []


@pytest.mark.parametrize("column", ["scheduled_seconds", "first_token_seconds", "finish_seconds"])
def test_a_request_that_succeeded_without_a_time_is_a_missing_sample(column):
    row = request("x", **{column: None})
    assert f"1 requests that succeeded have no {column}" in reasons(
        RunData(requests(row), steps([0.1]), pool())
    )


def test_a_request_that_never_ended_is_a_missing_sample():
    rows = [request("x"), request("y", finish_reason=None)]
    assert reasons(RunData(requests(*rows), steps([0.1]), pool())) == [
        "1 requests neither finished nor failed"
    ]


def test_device_time_of_some_steps_only_is_a_missing_sample():
    assert reasons(changed_steps(device_seconds=[0.1, None, 0.1])) == [
        "device time is missing for 1 of 3 steps"
    ]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"scheduled_seconds": -0.1}, "admission at -0.1 s is before arrival"),
        ({"first_token_seconds": -1.0}, "first token at -1.0 s is before admission"),
        ({"last_token_seconds": 0.05}, "last token at 0.05 s is before first token"),
        ({"finish_seconds": 0.05}, "finish at 0.05 s is before last token"),
    ],
)
def test_times_of_a_request_out_of_order_are_invalid(columns, words):
    made = reasons(RunData(requests(request("x", **columns)), steps([0.1]), pool()))
    assert any(f"request 'x': {words}" in reason for reason in made)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"end": [0.1, 0.05, 0.4]}, "step 1 ends at 0.05 s, before its start at 0.1 s"),
        ({"start": [0.3, 0.1, 0.2], "end": [0.3, 0.3, 0.4]}, "step 1 is earlier than step 0"),
        ({"device_seconds": [0.1, -0.1, 0.1]}, "step 1 took -0.1 s on the device"),
        ({"host_seconds": [None, None, -1.0]}, "step 2 took -1.0 s on the host"),
    ],
)
def test_times_of_steps_out_of_order_are_invalid(columns, words):
    assert words in reasons(changed_steps(**columns))


def test_steps_may_overlap():
    assert reasons(changed_steps(start=[0.0, 0.01, 0.15])) == []


def test_a_token_older_than_the_step_that_made_it_is_invalid():
    run = changed_requests(first_token_seconds=[0.02, 0.2, None, 0.1, None])
    assert reasons(run) == ["request 'three': first token at 0.02 s, but its step 0 ended at 0.1 s"]
    run = changed_requests(last_token_seconds=[0.3, 0.2, None, 0.2, None])
    assert reasons(run) == ["request 'three': last token at 0.3 s, but its step 2 ended at 0.4 s"]


def test_tokens_out_of_the_order_of_their_steps_are_invalid():
    assert reasons(changed_requests(token_steps=[0, 2, 1, 1, 0, 1])) == [
        "request 'three': its tokens are not in the order of their steps"
    ]


def test_more_tokens_than_asked_for_are_invalid():
    assert reasons(changed_requests(max_new_tokens=[2, 1, 0, 8, 8])) == [
        "request 'three' made 3 tokens of at most 2"
    ]


def test_tokens_that_no_step_decoded_are_invalid():
    assert reasons(changed_steps(decode_tokens=[0, 1, 1])) == [
        "3 tokens after the first came out of 2 decode tokens and 0 preemptions"
    ]


def test_a_preempted_request_gets_a_token_from_the_prefill_that_computes_it_again():
    run = changed_steps(decode_tokens=[0, 1, 1])
    preempted = dataclasses.replace(run.requests, preemptions=[1, 0, 0, 0, 0])
    assert reasons(dataclasses.replace(run, requests=preempted)) == []


def test_forwards_that_are_not_the_sum_of_their_programs_are_invalid():
    assert reasons(changed_steps(forwards=[1, 3, 1])) == ["step 1 counts 3 forwards, its programs 2"]


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (changed_steps(in_use=[8, 11, 12]), "step 0: 8 cells in use of 7"),
        (
            changed_pool(most_in_use=11),
            "the pool says that 11 cells were in use at most, a step had 12",
        ),
        (changed_pool(capacity=11), "12 cells in use exceed the capacity of 11"),
        (changed_pool(bytes=100), "the pool's 100 bytes are less than 16 rows x 1,024 bytes"),
    ],
)
def test_cells_and_bytes_that_do_not_add_up_are_invalid(run, reason):
    assert reasons(run) == [reason]


def test_a_pool_filled_to_its_last_cell_is_valid():
    run = changed_pool(capacity=15, most_in_use=15)
    full = dataclasses.replace(run, steps=dataclasses.replace(run.steps, in_use=[7, 15, 15]))
    assert reasons(full) == []


def test_a_reason_names_its_run_when_there_are_several():
    assert reasons(mixed_run(), changed_pool(capacity=11)) == [
        "run 2: 12 cells in use exceed the capacity of 11"
    ]


def test_a_plugins_check_adds_its_reason_to_the_report_it_names():
    class TooFast:
        def check(self, reports):
            return [Verdict(one.id, "floor", one.id == "a", "faster than the floor") for one in reports]

    first, second = judge([report(id="a"), report(id="b")], [TooFast()])
    assert first.valid
    assert second.line() == "INVALID: floor: faster than the floor"
    assert exit_code(report(id="b"), [TooFast()]) == 1
