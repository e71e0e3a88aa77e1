"""Options: text and plain values become a dataclass, or an error that names what is wrong and the way out."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from musebench.core.errors import UsageError
from musebench.core.options import NoOptions, describe, nearest, option, parse
from musebench.pools.geometric import GeometricOptions

WHERE = "pool 'mine'"


@dataclass(frozen=True)
class Options:
    factor: float = option(2.0, "rows grow by at least this factor", above=1.0, maximum=16.0, unit="x")
    first_rows: int = option(64, "rows at the start", minimum=1, maximum=1024)
    strict: bool = option(False, "refuse what others allow")
    order: str = option("lowest", "which free cell is claimed", choices=("lowest", "newest", "random"))
    sizes: tuple[int, ...] = option((1, 2, 4), "batch sizes")
    labels: tuple[str, ...] = option((), "names")
    budget: int | None = option(None, "most bytes", minimum=0)
    ladder: tuple[int, ...] | None = option(None, "widths")


def parsed(**values):
    return parse(Options, values, WHERE)


def refused(**values) -> str:
    with pytest.raises(UsageError) as caught:
        parsed(**values)
    message = str(caught.value)
    assert message.startswith(WHERE)
    assert "\n" not in message
    return message


def test_nothing_gives_the_defaults():
    assert parsed() == Options()
    assert parse(NoOptions, {}, WHERE) == NoOptions()


def test_made_options_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        parsed().factor = 3.0


def test_hyphens_stand_for_underscores():
    assert parse(Options, {"first-rows": "8"}, WHERE).first_rows == 8


def test_unknown_name_gives_the_nearest():
    assert refused(fctor="3").endswith("has no option 'fctor'; did you mean 'factor'?")


def test_name_like_no_other_lists_what_there_is():
    message = refused(qqqqqq="3")
    assert all(field.name in message for field in dataclasses.fields(Options))


def test_component_without_options_says_so():
    with pytest.raises(UsageError, match="has no option 'factor'; there are none"):
        parse(NoOptions, {"factor": "1"}, WHERE)


# -- bounds ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1, 2, 1023, 1024])
def test_bounds_are_included(value):
    assert parsed(first_rows=str(value)).first_rows == value


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({"first_rows": "0"}, "first_rows is 0; at least 1 is wanted"),
        ({"first_rows": "-1"}, "first_rows is -1; at least 1 is wanted"),
        ({"first_rows": "1025"}, "first_rows is 1025; at most 1024 is wanted"),
        ({"factor": "1"}, "factor is 1.0; more than 1.0 is wanted"),
        ({"factor": "16.5"}, "factor is 16.5; at most 16.0 is wanted"),
        ({"factor": "inf"}, "factor is inf; at most 16.0 is wanted"),
        ({"budget": "-1"}, "budget is -1; at least 0 is wanted"),
    ],
)
def test_value_outside_its_bounds_names_value_and_bound(values, wanted):
    assert wanted in refused(**values)


def test_above_is_not_included_but_what_follows_is():
    assert parsed(factor="1.0001").factor == 1.0001


def test_not_a_number_is_refused():
    assert "factor is nan" in refused(factor="nan")


# -- types ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["1024", "1,024", "1_024", 1024, 1024.0])
def test_whole_numbers_may_have_separators(text):
    assert parsed(first_rows=text).first_rows == 1024


@pytest.mark.parametrize("value", ["", "x", "1.5", 1.5, "1e3", None, True, [], float("nan"), float("inf")])
def test_what_is_no_whole_number_is_refused(value):
    assert "whole number is wanted" in refused(first_rows=value)


@pytest.mark.parametrize("value", ["", "x", "1,5", None, True, []])
def test_what_is_no_number_is_refused(value):
    assert "number is wanted" in refused(factor=value)


@pytest.mark.parametrize("value", [True, "true", "True", "yes", "on", "1", 1])
def test_words_for_true(value):
    assert parsed(strict=value).strict is True


@pytest.mark.parametrize("value", [False, "false", "FALSE", "no", "off", "0", 0])
def test_words_for_false(value):
    assert parsed(strict=value).strict is False


@pytest.mark.parametrize("value", ["", "maybe", 2, None, "truee"])
def test_what_is_neither_true_nor_false_is_refused(value):
    assert "true or false is wanted" in refused(strict=value)


def test_choice_that_is_none_gives_the_nearest():
    assert parsed(order="newest").order == "newest"
    assert refused(order="lowset").endswith("order is 'lowset'; did you mean 'lowest'?")


@pytest.mark.parametrize("value", [3, None, True, ["lowest"]])
def test_what_is_no_text_is_refused(value):
    assert "text is wanted" in refused(order=value)


@pytest.mark.parametrize("value", ["1,2,8", "1, 2, 8", [1, 2, 8], (1, 2, 8), ["1", "2", "8"]])
def test_list_of_whole_numbers_from_text_or_list(value):
    assert parsed(sizes=value).sizes == (1, 2, 8)


@pytest.mark.parametrize("value", ["8", [8], (8,)])
def test_list_of_one(value):
    assert parsed(sizes=value).sizes == (8,)


@pytest.mark.parametrize("value", ["1,x", "1,,2", "1,2.5", [1, None], [True], None])
def test_list_with_a_wrong_part_is_refused(value):
    assert "sizes is" in refused(sizes=value)


def test_list_of_text():
    assert parsed(labels="a, b").labels == ("a", "b")


@pytest.mark.parametrize("value", ["none", "None", "null", "", None])
def test_none_where_it_is_allowed(value):
    made = parsed(budget=value, ladder=value)
    assert made.budget is None
    assert made.ladder is None


def test_optional_values_convert_like_others():
    made = parsed(budget="1,000", ladder="8,16")
    assert made.budget == 1000
    assert made.ladder == (8, 16)
    assert "whole number or none is wanted" in refused(budget="much")


@given(st.floats(min_value=1.0, max_value=16.0, exclude_min=True), st.integers(1, 1024), st.booleans())
def test_every_value_within_bounds_survives_its_own_text(factor, first_rows, strict):
    made = parsed(factor=str(factor), first_rows=f"{first_rows:,}", strict=str(strict))
    assert (made.factor, made.first_rows, made.strict) == (factor, first_rows, strict)


@given(st.lists(st.integers(), min_size=1))
def test_every_list_of_whole_numbers_survives_its_own_text(sizes):
    assert parsed(sizes=",".join(map(str, sizes))).sizes == tuple(sizes)


@given(st.text())
def test_any_text_becomes_a_value_or_one_line(text):
    try:
        made = parsed(first_rows=text)
    except UsageError as error:
        message = str(error)
    else:
        message = f"{WHERE}: first_rows is {made.first_rows}" if 1 <= made.first_rows <= 1024 else "outside"
    assert message.startswith(f"{WHERE}: first_rows is ")
    assert "\n" not in message


# -- help -----------------------------------------------------------------------------------------------


def test_description_follows_the_dataclass():
    described = {entry.name: entry for entry in describe(Options)}
    assert list(described) == [field.name for field in dataclasses.fields(Options)]
    assert (described["factor"].type, described["factor"].default, described["factor"].unit) == (
        "number", 2.0, "x",
    )  # fmt: skip
    assert described["first_rows"].help == "rows at the start"
    assert described["sizes"].type == "list of whole number"
    assert described["budget"].type == "whole number or none"
    assert not describe(NoOptions)


def test_nearest_prefers_the_closest_name():
    assert nearest("continous", ["continuous", "chunked"]) == "did you mean 'continuous'?"
    assert nearest("x", ["b", "a"]) == "known: a, b"
    assert nearest("x", []) == "there are none"


def test_a_name_that_is_only_half_alike_is_no_suggestion():
    assert nearest("trace", ["backend", "pool"]) == "known: backend, pool"


@pytest.mark.parametrize(
    ("factor", "wanted"),
    [("nan", "a finite number"), ("inf", "at most"), ("-inf", "more than"), ("1e308", "at most")],
)
def test_a_factor_that_no_rows_can_grow_by_is_refused(factor, wanted):
    with pytest.raises(UsageError, match=rf"factor is .*; {wanted}"):
        parse(GeometricOptions, {"factor": factor}, "pool 'geometric'")
