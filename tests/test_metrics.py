"""Metrics of hand-made reports, against numbers worked out by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_examples import (
    CANCELLED,
    FAILED,
    LENGTH,
    mixed_run,
    pool,
    report,
    request,
    requests,
    steps,
)

from musebench.report import latencies, metrics
from musebench.report.schema import RunData


def run_of(*rows, ends=(0.1,), **flat):
    return RunData(requests(*rows, **flat), steps(list(ends)), pool())


def test_a_request_of_one_token_has_no_tpot_and_no_itl_but_ttft_and_e2e():
    run = run_of(request("one"), token_steps=[0])
    assert latencies.tpot(run) == []
    assert latencies.itl(run) == []
    assert latencies.ttft(run) == [0.1]
    assert latencies.e2e(run) == [0.1]


def test_a_request_of_one_token_is_left_out_of_the_count_of_tpot():
    found = latencies.summaries(report())
    assert found["TTFT"].count == 2
    assert found["TPOT"].count == 1
    assert found["TPOT"].mean == pytest.approx(0.15)


def test_a_request_without_a_token_is_finished_and_never_throughput():
    zero = request(
        "zero",
        generated_tokens=0,
        max_new_tokens=0,
        finish_reason=LENGTH,
        first_token_seconds=None,
        last_token_seconds=None,
        scheduled_seconds=None,
    )
    made = report(run_of(zero))
    outcome = metrics.outcome(made)
    assert (outcome.requests, outcome.succeeded, outcome.counted) == (1, 1, 0)
    assert outcome.decode_tokens == 0
    throughput = metrics.throughput(made)
    assert (throughput.requests, throughput.prompt_tokens, throughput.output_tokens) == (0, 0, 0)
    assert throughput.requests_per_second is None
    assert throughput.output_tokens_per_second is None
    assert all(summary.count == 0 for summary in latencies.summaries(made).values())


def test_missing_is_none_and_never_zero():
    empty = latencies.summary([])
    assert dataclasses.astuple(empty) == (0, None, None, None, None)
    unfinished = run_of(request("x", first_token_seconds=None, last_token_seconds=None, generated_tokens=2))
    assert latencies.ttft(unfinished) == []
    assert latencies.tpot(unfinished) == []


def test_tokens_are_counted_as_ids_and_not_from_the_text():
    spaces = request("spaces", generated_tokens=1, text=" " * 15)
    assert metrics.throughput(report(run_of(spaces))).output_tokens == 1


def test_tokens_are_those_that_came_out_and_not_those_asked_for():
    assert metrics.throughput(report(run_of(request("x", max_new_tokens=1000)))).output_tokens == 1


def test_failed_requests_do_not_raise_throughput_and_are_counted_with_their_reasons():
    good = request("good")
    bad = request("bad", generated_tokens=1, finish_reason=FAILED, message="no memory")
    gone = request("gone", generated_tokens=1, finish_reason=CANCELLED)
    without, with_failed = report(run_of(good)), report(run_of(good, bad, gone))
    assert metrics.throughput(with_failed).output_tokens == metrics.throughput(without).output_tokens == 1
    assert metrics.throughput(with_failed).output_tokens_per_second == pytest.approx(10.0)
    assert latencies.summaries(with_failed)["TTFT"].count == 1
    outcome = metrics.outcome(with_failed)
    assert outcome.finish_reasons == {"stop": 1, "failed": 1, "cancelled": 1}
    assert outcome.reasons == {("failed", "no memory"): 1, ("cancelled", ""): 1}


def test_time_spent_on_a_failed_request_counts_in_the_span():
    bad = request("bad", finish_reason=FAILED, finish_seconds=0.4)
    assert metrics.throughput(report(run_of(request("good"), bad))).output_tokens_per_second == pytest.approx(
        2.5
    )


def test_a_clock_that_reads_the_same_twice_gives_no_rate():
    still = request("x", first_token_seconds=0.0, last_token_seconds=0.0, finish_seconds=0.0)
    throughput = metrics.throughput(report(run_of(still, ends=[0.0])))
    assert throughput.span_seconds == 0.0
    assert throughput.output_tokens == 1
    assert throughput.output_tokens_per_second is None
    assert throughput.requests_per_second is None


def test_a_span_too_short_to_divide_by_gives_no_rate():
    tiny = request("x", first_token_seconds=5e-324, last_token_seconds=5e-324, finish_seconds=5e-324)
    assert metrics.throughput(report(run_of(tiny))).requests_per_second is None


def test_throughput_of_the_mixed_run():
    throughput = metrics.throughput(report())
    assert (throughput.requests, throughput.prompt_tokens, throughput.output_tokens) == (2, 6, 4)
    assert throughput.span_seconds == pytest.approx(0.5)
    assert throughput.output_tokens_per_second == pytest.approx(8.0)
    assert throughput.prompt_tokens_per_second == pytest.approx(12.0)
    assert throughput.requests_per_second == pytest.approx(4.0)
    assert metrics.tokens_per_joule(report()) == pytest.approx(2.0)


def test_latencies_of_the_mixed_run():
    run = mixed_run()
    assert latencies.ttft(run) == pytest.approx([0.1, 0.15])
    assert latencies.tpot(run) == pytest.approx([0.15])
    assert latencies.itl(run) == pytest.approx([0.1, 0.2])
    assert latencies.e2e(run) == pytest.approx([0.4, 0.15])
    assert latencies.wait(run) == pytest.approx([0.0, 0.05])


def test_the_span_starts_with_the_first_arrival_and_not_with_the_run():
    late = request(
        "late",
        arrival_seconds=10.0,
        scheduled_seconds=10.0,
        first_token_seconds=10.1,
        last_token_seconds=10.1,
        finish_seconds=10.5,
    )
    assert metrics.span(requests(late)) == pytest.approx(0.5)


def test_tokens_of_one_step_come_at_one_time():
    pair = request("pair", generated_tokens=3, last_token_seconds=0.3)
    assert latencies.itl(run_of(pair, ends=[0.1, 0.3], token_steps=[0, 1, 1])) == pytest.approx([0.2, 0.0])


def test_itl_is_missing_where_the_steps_of_tokens_were_not_kept():
    pair = request("pair", generated_tokens=2, last_token_seconds=0.3)
    assert latencies.itl(run_of(pair, ends=[0.1, 0.3])) == []


def test_decode_tokens_are_generated_minus_one_each():
    assert metrics.outcome(report()).decode_tokens == 2 + 0 + 1


def test_several_runs_give_sums_over_the_sum_of_their_spans():
    slow = request("slow", finish_seconds=0.3)
    both = report(run_of(request("fast")), run_of(slow))
    assert metrics.throughput(both).requests_per_second == pytest.approx(2 / 0.4)
    assert latencies.summaries(both)["E2E"].count == 2
    assert metrics.energy_joules(both) is None


def test_energy_is_missing_unless_every_run_has_it():
    known = dataclasses.replace(run_of(request("x")), energy_joules=1.5)
    assert metrics.energy_joules(report(known, known)) == 3.0
    assert metrics.energy_joules(report(known, run_of(request("x")))) is None


def test_no_token_gives_no_tokens_per_joule():
    failed = dataclasses.replace(run_of(request("x", finish_reason=FAILED)), energy_joules=1.5)
    assert metrics.tokens_per_joule(report(failed)) is None


def test_steps_and_programs_add_up_over_the_runs():
    totals = metrics.step_totals(report(mixed_run(), mixed_run()))
    assert (totals.steps, totals.decode_tokens, totals.prefill_tokens, totals.padded_tokens) == (6, 6, 18, 8)
    assert totals.forwards == 8
    assert totals.programs == {"prefill": 4, "decode": 4}
    assert totals.device_seconds == pytest.approx(0.64)
    assert totals.host_seconds is None


def test_the_first_allocation_is_no_growth_and_rows_kept_from_warm_up_are_none_either():
    assert metrics.pool_totals(report()).growths == 1
    warm = dataclasses.replace(mixed_run(), pool=dataclasses.replace(mixed_run().pool, start_rows=4))
    assert metrics.pool_totals(report(warm)).growths == 2
    assert metrics.pool_totals(report(run_of(request("x")))).growths == 0


def test_a_report_without_a_run_has_no_number():
    empty = report(runs=[])
    assert metrics.throughput(empty).span_seconds is None
    assert metrics.step_totals(empty).device_seconds is None
    assert metrics.pool_totals(empty) is None
    assert metrics.energy_joules(empty) is None


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_percentiles_lie_within_the_samples_and_in_order(samples):
    made = latencies.summary(samples)
    assert made.count == len(samples)
    assert min(samples) <= made.p50 <= made.p90 <= made.p99 <= max(samples)
    assert made.p50 == pytest.approx(np.median(samples))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.data())
def test_itl_and_tpot_agree_on_the_time_between_first_and_last_token(counts, data):
    ends = [float(end) for end in range(1, 9)]
    made_by = [sorted(data.draw(st.lists(st.integers(0, 7), min_size=n, max_size=n))) for n in counts]
    rows = [
        request(
            f"r{index}",
            generated_tokens=len(by),
            first_token_seconds=ends[by[0]] if by else None,
            last_token_seconds=ends[by[-1]] if by else None,
        )
        for index, by in enumerate(made_by)
    ]
    run = run_of(*rows, ends=ends, token_steps=[step for by in made_by for step in by])
    gaps = [len(by) - 1 for by in made_by if len(by) > 1]
    assert len(latencies.itl(run)) == sum(gaps)
    assert sum(latencies.itl(run)) == pytest.approx(
        sum(mean * gap for mean, gap in zip(latencies.tpot(run), gaps, strict=True))
    )
