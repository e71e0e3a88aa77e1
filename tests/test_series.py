"""What pictures draw, held against reports whose numbers can be checked in the head."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_examples import REFUSED, mixed_run, pool, report, request, requests, steps

from musebench.report import series
from musebench.report.columns import RunData
from musebench.report.roofline import KINDS
from musebench.report.series import DECODE, PREEMPTED, PREFILL, WAITING, Span


def test_a_request_waits_prefills_and_decodes_until_its_end():
    run = mixed_run()
    assert [span for span in series.spans(run) if span.row == 1] == [
        Span(1, WAITING, 0.05, 0.1),
        Span(1, PREFILL, 0.1, 0.2),
    ]
    three = [span for span in series.spans(run) if span.row == 0]
    assert three == [Span(0, PREFILL, 0.0, 0.1), Span(0, DECODE, 0.1, 0.4)]


def test_a_request_refused_at_once_was_doing_nothing():
    assert [span for span in series.spans(mixed_run()) if span.row == 4] == []


def paused(pauses: list[float], **changed) -> RunData:
    """One request that makes a token at 0.1, 0.2, 0.5 and 0.6 s, out of the pool between."""
    values = {
        "generated_tokens": 4, "last_token_seconds": 0.6, "finish_seconds": 0.6,
        "preemptions": (len(pauses) + 1) // 2,
    }  # fmt: skip
    return RunData(
        requests=requests(request("one", **(values | changed)), token_steps=[0, 1, 3, 4], pauses=[pauses]),
        steps=steps([0.1, 0.2, 0.4, 0.5, 0.6]),
        pool=pool(),
    )


def test_a_preempted_request_prefills_again_before_it_decodes_on():
    assert list(series.spans(paused([0.2, 0.4]))) == [
        Span(0, PREFILL, 0.0, 0.1),
        Span(0, DECODE, 0.1, 0.2),
        Span(0, PREEMPTED, 0.2, 0.4),
        Span(0, PREFILL, 0.4, 0.5),
        Span(0, DECODE, 0.5, 0.6),
    ]


def test_a_request_that_ends_while_it_is_out_was_preempted_to_its_end():
    run = paused([0.2], finish_reason=REFUSED, finish_seconds=0.3)
    assert list(series.spans(run))[-1] == Span(0, PREEMPTED, 0.2, 0.3)


@given(
    st.lists(st.integers(0, 1000), min_size=3, max_size=9, unique=True),
    st.lists(st.booleans(), min_size=8, max_size=8),
)
def test_the_spans_of_a_request_fill_its_life_without_gap_or_overlap(drawn, makes_token):
    arrival, admitted, *pauses, finish = sorted(number / 100 for number in drawn)
    starts = [arrival, admitted, *pauses]
    made = [step for step in range(1, len(starts)) if makes_token[step % 8]]
    run = RunData(
        requests=requests(
            request(
                "one", arrival_seconds=arrival, scheduled_seconds=admitted, finish_seconds=finish,
                generated_tokens=len(made), preemptions=(len(pauses) + 1) // 2,
            ),
            token_steps=made,
            pauses=[pauses],
        ),
        steps=steps([*starts[1:], finish], start=starts),
        pool=pool(),
    )  # fmt: skip
    spans = list(series.spans(run))
    assert spans[0].start == arrival
    assert spans[-1].end == finish
    assert all(after.start == before.end for before, after in itertools.pairwise(spans))
    assert all(span.end > span.start for span in spans)
    out = sum(span.end - span.start for span in spans if span.phase == PREEMPTED)
    ends = [*pauses, finish] if len(pauses) % 2 else pauses
    assert out == pytest.approx(sum(ends[1::2]) - sum(ends[0::2]))


def test_growths_fall_on_the_start_of_their_step_and_the_first_allocation_is_said():
    first, second = series.growths(mixed_run())
    assert (first.first, first.seconds, first.rows) == (True, 0.0, 8)
    assert (second.first, second.seconds, second.rows, second.copied_bytes) == (False, 0.1, 16, 7168)


def test_time_of_a_step_is_the_device_s_where_every_step_has_it():
    run = mixed_run()
    seconds, what = series.step_seconds(run)
    assert (seconds.tolist(), what) == ([0.08, 0.09, 0.15], "device time")
    overlapping = RunData(run.requests, steps([1.0, 1.5, 1.75], start=[0.0, 0.5, 1.6]), run.pool)
    seconds, what = series.step_seconds(overlapping)
    assert seconds.tolist() == pytest.approx([1.0, 0.5, 0.15])
    assert what == "time from start to end"


def test_steps_are_told_apart_by_what_they_hold():
    kinds = [KINDS[kind] for kind in series.step_kinds(mixed_run())]
    assert kinds == ["prefill", "mixed", "decode"]


def test_a_report_without_ceilings_has_no_floor():
    made = report()
    assert series.floor_seconds(made, made.runs[0]) is None


def test_a_report_s_point_has_its_offered_rate_and_the_peak_of_the_device():
    made = series.point(report())
    assert made.offered_per_second == pytest.approx(4 / 0.1)
    assert made.memory_bytes == 30_000
    assert made.output_tokens_per_second == pytest.approx(4 / 0.5)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30))
def test_the_frontier_holds_what_nothing_beats(points):
    kept = series.frontier(points)

    def beaten(one):
        return any(other[0] >= one[0] and other[1] <= one[1] and other != one for other in points)

    assert sorted(kept) == [place for place, one in enumerate(points) if not beaten(one)]
    assert [points[place][0] for place in kept] == sorted(points[place][0] for place in kept)


@given(st.integers(0, 500), st.integers(2, 100), st.lists(st.integers(-3, 600), max_size=5))
def test_thinning_keeps_both_ends_and_what_it_is_told_to(count, most, keep):
    places = series.thinned(count, most, keep)
    assert np.all(np.diff(places) > 0)
    wanted = {0, count - 1} | {place for place in keep if 0 <= place < count} if count else set()
    assert wanted <= set(places.tolist()) <= set(range(count))
    assert len(places) <= max(most, 2) + len(keep)
