"""Expressions over metrics: how they are read, and what is no expression."""

from __future__ import annotations

import pytest
from compared_groups import compared, made
from hypothesis import given
from hypothesis import strategies as st

from musebench.core.errors import UsageError
from musebench.report.expression import Condition, Joined, Quantity, parse
from musebench.report.failing import fail_if


def test_an_expression_is_read_with_and_before_or_and_brackets():
    one, two, three = (Condition(name, "<", Quantity(1.0), "1") for name in "abc")
    assert parse("a < 1 or b < 1 and c < 1", "x") == Joined("or", (one, Joined("and", (two, three))))
    assert parse("(a < 1 OR b < 1) and c < 1", "x") == Joined("and", (Joined("or", (one, two)), three))


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("a<0.97x", Condition("a", "<", Quantity(0.97, "x"), "0.97x")),
        ("a > +3%", Condition("a", ">", Quantity(3.0, "%"), "+3%")),
        ("a >= 1.5 ms", Condition("a", ">=", Quantity(1.5, "ms"), "1.5 ms")),
        ("a == 2MiB", Condition("a", "=", Quantity(2.0, "MiB"), "2MiB")),
        ("a != .5e-3", Condition("a", "!=", Quantity(0.0005), ".5e-3")),
        ("pool.factor = 'a b'", Condition("pool.factor", "=", None, "a b")),
        ("executor = graph", Condition("executor", "=", None, "graph")),
        ("device = cuda-1", Condition("device", "=", None, "cuda-1")),
    ],
)
def test_every_form_of_a_condition(text, condition):
    assert parse(text, "x") == condition


@pytest.mark.parametrize(
    "text",
    ["", "a", "a <", "a < 1 and", "< 1", "a << 1", "a < 1xx", "(a < 1", "a < 1 b < 2", "a < 1 not b < 2"],
)
def test_what_is_no_expression_says_where_and_what_was_wanted(text):
    with pytest.raises(UsageError, match=r"is no expression at .*NAME OPERATOR VALUE is wanted"):
        parse(text, "--fail-if")


@given(
    st.lists(
        st.sampled_from(
            ["a", "b.c", "<", ">=", "=", "1", "0.9x", "3 %", "2MiB", "and", "or", "(", ")", "'q'", "é"]
        )
        | st.text(max_size=4),
        max_size=12,
    )
)
def test_any_text_is_an_expression_or_one_line_about_it(pieces):
    try:
        made = parse(" ".join(pieces), "--filter")
    except UsageError:
        return
    assert isinstance(made, Condition | Joined)


def test_a_text_that_is_far_too_long_is_refused_with_the_limit():
    with pytest.raises(UsageError, match="at most 1,000 are taken"):
        parse("(" * 2000, "--filter")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("output_token_per_second < 0.97x", "did you mean 'output_tokens_per_second'"),
        ("growths < 3 ms", "growths takes no unit"),
        ("ttft_p50 < 3 MiB", "ttft_p50 takes s, ms"),
        ("memory_bytes > many", "'many' is none"),
    ],
)
def test_a_metric_that_is_none_and_a_unit_that_does_not_fit_are_named(text, words):
    with pytest.raises(UsageError, match=words):
        fail_if(compared([made()], [made()]), text)
