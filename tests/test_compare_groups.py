"""Reports as groups of repeats: who belongs together, with which noise, and what fails, filters and sorts."""

from __future__ import annotations

import dataclasses
import json

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from report_examples import report
from test_compare import one_step_pool, one_token_at

from musebench.cli import root
from musebench.core.errors import UsageError
from musebench.report import files
from musebench.report.compare import compare_groups
from musebench.report.expression import Condition, Joined, Quantity, parse
from musebench.report.failing import fail_if, keep, order
from musebench.report.groups import Group, Source, factors, make_groups, read_sources
from musebench.report.numbers import METRICS, metric
from musebench.report.ranking import front, rank
from musebench.report.schema import Choice

PLAIN = report()
STEADY = (1.0, 1.004, 0.996, 1.002, 0.998)


def made(seconds=0.1, executor="graph", pool_name="geometric", virtual=False, growths=0, **changed):
    """A report of one request that took `seconds`; `changed` are conditions."""
    choices = dataclasses.replace(
        PLAIN.choices,
        executor=Choice(executor, "musebench", "0.1.0", {}),
        pool=Choice(pool_name, "musebench", "0.1.0", {}),
    )
    conditions = dataclasses.replace(
        PLAIN.conditions, clock="virtual" if virtual else "host", **{"repeats": 1, **changed}
    )
    run = one_token_at(seconds)
    run = dataclasses.replace(run, pool=one_step_pool(preemptions=growths, bytes=8192 + growths))
    return report(run, choices=choices, conditions=conditions)


def repeats(seconds, **choices):
    return [made(seconds * factor, **choices) for factor in STEADY]


def compared(*groups, **choices):
    """Groups a, b, ... of these lists of reports, against the first."""
    named = [Group(label, tuple(one)) for label, one in zip("abcdef", groups, strict=False)]
    return compare_groups(named, [0] * len(named), "a", **choices)


def written(folder, name, *reports):
    """The reports as files in folder/name; returns that folder."""
    for index, one in enumerate(reports):
        files.write(one, folder / name / f"{index}.json")
    return folder / name


def labels(*arguments, **choices):
    return [group.label for group in make_groups(read_sources(arguments), **choices)]


def cell(comparison, name, column):
    (row,) = [row for table in comparison.tables for row in table.rows if row.name == name]
    return row.remarks[comparison.labels.index(column)]


# -- groups -------------------------------------------------------------------------------------------------


def test_groups_are_found_by_what_differs_and_named_by_the_least_that_tells_them_apart(tmp_path):
    reports = [
        made(0.1, executor, pool_name)
        for executor in ("eager", "graph")
        for pool_name in ("fixed", "geometric")
    ]
    folder = written(tmp_path, "all", *reports, *reports)
    groups = make_groups(read_sources([folder]))
    assert [group.label for group in groups] == [
        "eager, fixed", "eager, geometric", "graph, fixed", "graph, geometric"
    ]  # fmt: skip
    assert [len(group.reports) for group in groups] == [2, 2, 2, 2]
    assert labels(written(tmp_path, "pools", *reports[:2])) == ["fixed", "geometric"]
    assert labels(written(tmp_path, "one", reports[0])) == ["all"]


def test_an_option_or_a_commit_that_differs_is_in_the_label_by_name(tmp_path):
    commits = [made(commit="a" * 40), made(commit="b" * 40)]
    assert labels(written(tmp_path, "c", *commits)) == ["commit=aaaaaaaaaa", "commit=bbbbbbbbbb"]
    seeds = [made(seed=1), made(seed=2), made(seed=2)]
    assert labels(written(tmp_path, "s", *seeds)) == ["seed=1", "seed=2"]


def test_by_leaves_other_differences_inside_a_group(tmp_path):
    folder = written(
        tmp_path, "s", *(made(seed=seed, executor=e) for seed in (1, 2) for e in ("eager", "graph"))
    )
    assert labels(folder, by=["executor"]) == ["eager", "graph"]
    with pytest.raises(UsageError, match="no such factor; did you mean 'executor'"):
        labels(folder, by=["executer"])


def test_folders_of_the_same_things_are_told_apart_by_the_folder(tmp_path):
    before = written(tmp_path, "before", *repeats(0.1))
    after = written(tmp_path, "after", *repeats(0.1))
    assert labels(before, after) == ["before", "after"]


def test_files_of_the_same_thing_named_one_by_one_are_compared_with_one_another(tmp_path):
    folder = written(tmp_path, "x", made(0.1), made(0.2))
    assert labels(folder / "0.json", folder / "1.json") == ["0", "1"]


def test_a_baseline_is_never_mixed_with_what_is_compared_with_it(tmp_path):
    new, base = written(tmp_path, "new", *repeats(0.1)), written(tmp_path, "base", *repeats(0.1))
    groups = make_groups(read_sources([base, new]), baseline=base)
    assert [len(group.reports) for group in groups] == [5, 5]


# -- noise, and what is exact -------------------------------------------------------------------------------


def test_a_difference_within_the_noise_says_so_and_one_beyond_it_has_its_interval():
    comparison = compared(repeats(0.1), repeats(0.1001), repeats(0.11))
    assert cell(comparison, "TTFT p50", "b").startswith("within noise: -")
    assert cell(comparison, "TTFT p50", "c").startswith("+10.0 %: +9")
    difference = comparison.difference(metric("ttft_p50"), 2)
    low, high = difference.interval_percent
    assert low < 10.0 < high


def test_counts_and_bytes_are_compared_to_the_last_one():
    comparison = compared([made(growths=0)], [made(growths=0)], [made(growths=1)])
    assert cell(comparison, "pool bytes", "b") == "="
    assert cell(comparison, "pool bytes", "c").startswith("+1 B")


def test_a_count_that_varies_within_a_group_says_from_where_to_where():
    comparison = compared([made()] * 3, [made(growths=0), made(growths=2), made(growths=2)])
    assert cell(comparison, "pool bytes", "b") == "varies: 8,192 to 8,194"


def test_times_on_a_virtual_clock_are_exact():
    comparison = compared([made(0.1, virtual=True)], [made(0.1, virtual=True)], [made(0.105, virtual=True)])
    assert cell(comparison, "TTFT p50", "b") == "="
    assert cell(comparison, "TTFT p50", "c") == "+5.000 ms, +5.0 %"


def test_repeats_inside_one_report_are_samples_and_several_reports_are_each_one():
    runs = [one_token_at(0.1 * factor) for factor in STEADY]
    inside = report(*runs)
    assert len(compared([inside]).measured["ttft_p50"][0].samples) == 5
    assert len(compared([inside, inside]).measured["ttft_p50"][0].samples) == 2


def test_repeats_inside_one_process_are_said_to_hide_what_differs_between_processes():
    inside = report(*[one_token_at(0.1 * factor) for factor in STEADY])
    assert "not in the intervals" in compared([inside], [inside]).show("github")
    assert "not in the intervals" not in compared([inside] * 3, [inside] * 3).show("github")


def test_reports_with_unequal_repeats_are_compared_in_their_first_where_counts_add_up():
    comparison = compared([report(one_token_at(0.1))], [report(*[one_token_at(0.1)] * 3)])
    assert cell(comparison, "steps", "b") == "="
    assert any("numbers of repeats differ" in line for line in comparison.warnings)


def test_times_of_another_machine_are_shown_and_not_judged_and_counts_are():
    comparison = compared(repeats(0.1), repeats(0.2, cpu="Other CPU"))
    assert cell(comparison, "TTFT p50", "b") == "+100.0 %, another machine"
    assert cell(comparison, "steps", "b") == "="
    assert any("different machines: times are not judged" in line for line in comparison.warnings)


# -- expressions --------------------------------------------------------------------------------------------


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


# -- failing ------------------------------------------------------------------------------------------------


def test_a_slowdown_beyond_limit_and_noise_fires_and_within_either_does_not():
    comparison = compared(repeats(0.1), repeats(0.11), repeats(0.101), repeats(0.1001))
    outcome = fail_if(comparison, "output_tokens_per_second < 0.97x")
    (line,) = outcome.fired
    assert line.startswith("output_tokens_per_second < 0.97x: b: output tokens/s is 9.0")
    assert "of the baseline's 10.00" in line
    outcome = fail_if(comparison, "ttft_p50 > 1.0005x")
    assert [line.split(": ")[1] for line in outcome.fired] == ["b", "c"]
    assert [line.split(": ")[1] for line in outcome.notes] == ["d"]
    assert "within noise" in outcome.notes[0]


def test_exact_numbers_fire_at_the_smallest_difference_and_in_any_repeat():
    assert fail_if(compared([made()], [made(growths=1)]), "pool_bytes > 1x").fired
    assert not fail_if(compared([made()], [made()]), "pool_bytes > 1x").fired
    assert fail_if(compared([made()] * 3, [made(), made(), made(growths=1)]), "pool_bytes > 1x").fired


def test_one_sample_is_judged_as_it_is_with_a_note():
    outcome = fail_if(compared([made(0.1)], [made(0.2)]), "ttft_p50 > +50%")
    assert len(outcome.fired) == 1
    assert "its noise is unknown" in outcome.notes[0]


def test_absolute_limits_need_no_baseline_and_hold_for_all():
    outcome = fail_if(compared([made(0.1)], [made(0.2)]), "ttft_p50 >= 100 ms and steps = 1")
    assert len(outcome.fired) == 2
    with pytest.raises(UsageError, match="there is nothing beside it"):
        fail_if(compared([made()]), "ttft_p50 > 1.1x")


def test_what_cannot_be_believed_is_never_taken_for_no_regression():
    wrong = report(one_token_at(0.05, expect="Paris", correct=False))
    right = report(one_token_at(0.1))
    assert "INVALID" in fail_if(compared([right], [wrong]), "ttft_p50 > 1.1x").fired[0]
    assert "the baseline a: INVALID" in fail_if(compared([wrong], [right]), "ttft_p50 > 1.1x").fired[0]
    assert "it has no TPOT p50" in fail_if(compared([right], [right]), "tpot_p50 > 1.1x").fired[0]


def test_a_baseline_of_another_machine_judges_counts_and_not_times():
    comparison = compared(repeats(0.1), repeats(0.3, cpu="Other CPU", growths=1))
    outcome = fail_if(comparison, "ttft_p50 > 1.1x or pool_bytes > 1x")
    assert "pool bytes" in outcome.fired[0]
    assert "TTFT" not in outcome.fired[0]
    outcome = fail_if(comparison, "ttft_p50 > 1.1x")
    assert not outcome.fired
    assert "another machine" in outcome.notes[0]


# -- filters, order, marks ----------------------------------------------------------------------------------


def test_filters_take_factors_and_numbers():
    comparison = compared([made(0.1, "eager")], [made(0.2, "graph")], [made(0.3, "graph", "fixed")])
    assert keep(comparison, "executor = graph") == [1, 2]
    assert keep(comparison, "executor = graph and pool != fixed or ttft_p50 < 150 ms") == [0, 1]
    assert keep(comparison, "tpot_p50 > 0") == []
    for text, words in (
        ("exector = graph", "did you mean 'executor'"),
        ("executor < graph", "is text"),
        ("ttft_p50 < 1x", "not with the baseline"),
    ):
        with pytest.raises(UsageError, match=words):
            keep(comparison, text)


def test_order_puts_the_best_first_and_what_is_invalid_last():
    wrong = report(one_token_at(0.05, expect="Paris", correct=False))
    comparison = compared([made(0.2)], [wrong], [made(0.1)])
    assert order(comparison, "output tokens/s", range(3)) == [2, 0, 1]
    assert order(comparison, "ttft_p50", range(3)) == [2, 0, 1]


def test_the_best_is_marked_and_what_its_noise_hides_is_tied():
    comparison = compared(repeats(0.1), repeats(0.1001), repeats(0.2))
    lines = rank(comparison, [metric("ttft_p50"), metric("steps")]).lines
    assert [line.marks for line in lines] == [("*", ""), ("~", ""), ("", "")]


def test_an_invalid_group_is_never_best_nor_on_the_front():
    wrong = report(one_token_at(0.05, expect="Paris", correct=False))
    comparison = compared([made(0.1)], [wrong])
    ranking = rank(comparison, [metric("ttft_p50")])
    assert [line.front for line in ranking.lines] == [True, False]
    assert ranking.lines[1].marks == ("",)
    assert "~~50.00 ms~~" in ranking.show("github")


def test_what_did_other_work_is_ranked_apart():
    other = dataclasses.replace(PLAIN.conditions.workload, name="other", sha256="bb")
    comparison = compared(
        [made(0.1)], [made(0.2)], [made(0.01, workload=other)], [made(0.02, workload=other)]
    )
    lines = rank(comparison, [metric("ttft_p50")]).lines
    assert [line.marks for line in lines] == [("*",), ("",), ("*",), ("",)]
    assert [line.front for line in lines] == [True, False, True, False]


def test_the_front_holds_who_is_not_beaten_in_everything():
    def with_memory(seconds, weights):
        one = made(seconds)
        computed = dataclasses.replace(one.memory.computed, weights=weights)
        return dataclasses.replace(one, memory=dataclasses.replace(one.memory, computed=computed))

    comparison = compared(
        [with_memory(0.1, 4000)], [with_memory(0.2, 1000)], [with_memory(0.2, 4000)], [with_memory(0.1, 4000)]
    )
    assert front(comparison, range(4)) == {0, 1, 3}


def test_every_metric_can_be_named_by_key_and_by_name():
    for one in METRICS:
        assert metric(one.key) is metric(one.name) is one


# -- the command --------------------------------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(root, ["compare", *map(str, arguments)])


@pytest.fixture
def both(tmp_path):
    """Folders old and new of two cells each; new is slower in one."""
    old = written(tmp_path, "old", *repeats(0.1, executor="eager"), *repeats(0.2, executor="graph"))
    new = written(tmp_path, "new", *repeats(0.1, executor="eager"), *repeats(0.3, executor="graph"))
    return old, new


def test_each_cell_is_compared_with_its_counterpart_in_a_baseline_folder(both):
    old, new = both
    result = run(new, "--baseline", old, "--fail-if", "output_tokens_per_second < 0.97x")
    assert result.exit_code == 1
    fired = [line for line in result.stderr.splitlines() if line.startswith("fail-if: ")]
    assert len(fired) == 1
    assert "new: graph" in fired[0]
    assert run(new, "--baseline", old, "--fail-if", "output_tokens_per_second < 0.5x").exit_code == 0


def test_a_baseline_goes_by_label_too_and_an_unknown_one_names_the_nearest(both):
    values = json.loads(run(both[0], "--baseline", "graph", "--format", "json").stdout)
    assert values["baseline"] == "graph"
    result = run(both[0], "--baseline", "grap")
    assert result.exit_code == 2
    assert "did you mean 'graph'" in result.stderr


def test_a_missing_baseline_is_said_and_fails_only_when_required(both, tmp_path):
    gone = tmp_path / "gone.json"
    result = run(both[1], "--baseline", gone, "--fail-if", "ttft_p50 > 1x")
    assert result.exit_code == 0
    assert "there is no baseline at" in result.stderr
    assert run(both[1], "--baseline", gone, "--require-baseline").exit_code == 2


@pytest.mark.parametrize("content", ["", '{"schema": 1, "id"', '{"schema": 99}'])
def test_a_report_that_is_none_is_refused_by_name_and_never_no_regression(both, content):
    (both[1] / "9.json").write_text(content)
    result = run(both[1], "--baseline", both[0], "--fail-if", "ttft_p50 > 100x")
    assert result.exit_code == 2
    assert "9.json" in result.stderr


def test_columns_sort_and_filter_shape_the_table(both):
    result = run(both[0], "--columns", "ttft_p50,steps", "--sort", "ttft_p50", "--filter", "executor != none")
    lines = [line for line in result.stdout.splitlines() if line.startswith("| ")]
    assert [line.split("|")[1].strip() for line in lines[1:]] == ["eager", "graph"]
    assert "100.0 ms * |" in lines[1]
    result = run(both[0], "--filter", "executor = graph", "--format", "json")
    assert json.loads(result.stdout)["tables"][0]["rows"][0]["values"] == {"graph": "VALID"}
    assert run(both[0], "--filter", "executor = other").exit_code == 2


def test_many_groups_are_a_line_each_and_their_warnings_name_a_few(tmp_path):
    folder = written(tmp_path, "many", *(made(0.1 + 0.01 * seed, seed=seed) for seed in range(8)))
    result = run(folder)
    lines = result.stdout.splitlines()
    assert sum(line.startswith("| seed=") for line in lines) == 8
    wide = json.loads(run(folder, "--format", "json").stdout)
    assert len(wide["tables"][1]["rows"][0]["values"]) == 8
    commits = [made(commit="a", seed=seed) for seed in range(6)] + [made(commit="b", seed=9)]
    result = run(written(tmp_path, "commits", *commits))
    assert "commit differs: a (seed=0, seed=1, seed=2, seed=3, 2 more); b (seed=9)" in result.stdout


@pytest.mark.parametrize("form", ["github", "latex", "html", "csv", "json", "grid"])
def test_both_shapes_come_in_every_format(both, form):
    for more in ([], ["--columns", "ttft_p50"]):
        result = run(both[0], "--format", form, *more)
        assert result.exit_code == 0, result.output
        assert "eager" in result.stdout


def test_factors_name_everything_that_was_chosen():
    named = factors(made())
    assert named["executor"] == "graph"
    assert named["bounds.capacity"] == "64"
    assert named["model"] == "random:tiny"
    assert "repeats" not in named
    assert isinstance(Source(made(), None, None).report, type(PLAIN))


def test_what_was_measured_of_the_device_tells_no_repeats_apart(tmp_path):
    from musebench.report.conditions import conditions_of

    assert not any(name.startswith("ceilings") for name in conditions_of(made()))
