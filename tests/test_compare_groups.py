"""Reports as groups of repeats: who belongs together, and with which noise."""

from __future__ import annotations

import pytest
from compared_groups import STEADY, cell, compared, labels, made, repeats, written
from report_examples import report
from test_compare import one_token_at

from musebench.core.errors import UsageError
from musebench.report.groups import make_groups, read_sources
from musebench.report.numbers import metric

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
