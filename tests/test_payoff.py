"""When one-off work pays off."""

from __future__ import annotations

import pytest
from report_examples import pool, request, requests, steps
from report_examples import report as example

from musebench.report.columns import RunData
from musebench.report.payoff import one_off_seconds, payoff_tokens
from musebench.report.schema import Costs


def run_of(seconds: float, **costs: float):
    """100 tokens in so many seconds."""
    times = {"arrival_seconds": 0.0, "scheduled_seconds": 0.0, "first_token_seconds": seconds / 2}
    times |= {"last_token_seconds": seconds, "finish_seconds": seconds}
    row = request("a", generated_tokens=100, max_new_tokens=100, **times)
    counters = {"capture seconds": costs.pop("capture")} if "capture" in costs else {}
    return example(RunData(requests(row), steps([seconds]), pool()), costs=Costs(costs, counters))


def test_compiling_and_capturing_count_and_loading_does_not():
    assert one_off_seconds(run_of(1.0, load=9.0, compile=3.0, capture=0.5, ready=13.0)) == 3.5


def test_the_tokens_that_make_up_for_it():
    eager, graph = run_of(10.0, kernels=1.0), run_of(5.0, kernels=1.0, capture=2.0)
    assert payoff_tokens(graph, eager) == pytest.approx(2.0 / (0.1 - 0.05))


def test_what_costs_no_more_pays_off_at_once_and_what_is_no_faster_never():
    eager, graph = run_of(10.0, kernels=4.0), run_of(5.0, kernels=1.0)
    assert payoff_tokens(graph, eager) == 0.0
    assert payoff_tokens(eager, graph) is None
    assert payoff_tokens(eager, eager) is None
