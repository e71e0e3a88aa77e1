"""What fails, is left out, comes first or is best among groups of reports, and the command that says so."""

from __future__ import annotations

import dataclasses
import json

import pytest
from click.testing import CliRunner
from compared_groups import PLAIN, compared, made, repeats, written
from report_examples import report
from test_compare import one_token_at

from musebench.cli import root
from musebench.core.errors import UsageError
from musebench.report.failing import fail_if, keep, order
from musebench.report.groups import Source, factors
from musebench.report.numbers import METRICS, metric
from musebench.report.ranking import front, rank

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
