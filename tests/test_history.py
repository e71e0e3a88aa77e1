"""Metrics over commits: order, series, earlier versions in git, and where a level changed."""

from __future__ import annotations

import csv
import dataclasses
import json
import subprocess

import numpy as np
import pytest
from click.testing import CliRunner
from report_examples import pool, report, request, requests, steps

from musebench.cli import root
from musebench.core.errors import UsageError
from musebench.report import files
from musebench.report.changepoints import change_points
from musebench.report.groups import Source
from musebench.report.history import make_history
from musebench.report.history_plot import draw
from musebench.report.numbers import metric
from musebench.report.schema import Choice, RunData

# -- change points on series of known truth -----------------------------------------------------------------


def series(draw_, levels, spread=0.01, samples=3):
    return [(level * np.exp(spread * draw_.standard_normal(samples))).tolist() for level in levels]


def test_a_shift_of_5_percent_in_noise_of_1_percent_is_found_at_its_place():
    draw_ = np.random.default_rng(0)
    found = [change_points(series(draw_, [10] * 6 + [9.5] * 6), False) for _ in range(100)]
    assert sum(one == [6] for one in found) >= 90
    assert all(one for one in found)


def test_two_shifts_are_both_found_even_back_to_the_old_level():
    draw_ = np.random.default_rng(1)
    found = [change_points(series(draw_, [10] * 5 + [8] * 5 + [10] * 5), False) for _ in range(20)]
    assert sum(one == [5, 10] for one in found) >= 18


def test_a_series_without_a_change_shows_one_in_at_most_5_of_100():
    draw_ = np.random.default_rng(2)
    alarms = sum(bool(change_points(series(draw_, [10] * 8), False)) for _ in range(200))
    assert alarms <= 10


def test_one_sample_a_commit_is_enough_when_there_are_many_commits():
    draw_ = np.random.default_rng(3)
    assert change_points(series(draw_, [10] * 10 + [9] * 10, samples=1), False) == [10]
    assert change_points([[10.0], [9.0]], False) == []


def test_exact_values_change_where_they_change_and_missing_points_are_passed_over():
    assert change_points([[3], [3], [], [4], [4], [3]], True) == [3, 5]
    assert change_points([], True) == []
    assert change_points([[0.0], [0.0, 1.0]], False) == []


# -- series -------------------------------------------------------------------------------------------------


def made(commit, seconds, day, growths=0, **changed):
    run = RunData(
        requests(
            request("x", first_token_seconds=seconds, last_token_seconds=seconds, finish_seconds=seconds),
            token_steps=[0],
        ),
        steps([seconds], decode_tokens=[0], prefill_tokens=[4]),
        pool(bytes=8 * 1024, most_in_use=4, refusals=growths),
    )
    conditions = dataclasses.replace(report().conditions, commit=commit, **changed)
    return report(
        run, conditions=conditions, id=f"{commit}-{day}-{seconds}", created=f"2026-01-{day:02}T00:00:00+00:00"
    )


def sources(tmp_path, *reports):
    return [Source(one, tmp_path / f"{index}.json", tmp_path) for index, one in enumerate(reports)]


TTFT = metric("ttft_p50")


def test_commits_are_points_in_gits_order_and_reports_of_one_commit_its_samples(tmp_path):
    given = sources(tmp_path, made("b", 0.2, 1), made("a", 0.1, 2), made("a", 0.12, 3), made("a", 0.11, 4))
    (one,) = make_history(given, TTFT, {"a": 0, "b": 1}).series
    assert [(point.commit, point.reports) for point in one.points] == [("a", 3), ("b", 1)]
    assert [point.measured.value for point in one.points] == pytest.approx([0.11, 0.2])
    (by_date,) = make_history(given, TTFT, {}).series
    assert [point.commit for point in by_date.points] == ["b", "a"]


def test_other_choices_and_other_machines_are_series_of_their_own_and_versions_are_not(tmp_path):
    plain = made("a", 0.1, 1)
    choices = dataclasses.replace(plain.choices, pool=Choice("fixed", "musebench", "0.1.0", {}))
    fixed = dataclasses.replace(plain, choices=choices, id="fixed")
    given = sources(
        tmp_path, plain, fixed, made("b", 0.1, 2, cpu="Other CPU"), made("c", 0.1, 3, driver="9.9")
    )
    found = make_history(given, TTFT, {}).series
    assert sorted(len(one.points) for one in found) == [1, 1, 2]


def test_one_report_that_is_there_twice_counts_once(tmp_path):
    (one,) = make_history(sources(tmp_path, made("a", 0.1, 1), made("a", 0.1, 1)), TTFT, {}).series
    assert one.points[0].reports == 1


def test_an_invalid_report_is_a_point_without_a_speed(tmp_path):
    wrong = dataclasses.replace(made("b", 0.05, 2), status="incomplete", message="stopped")
    given = sources(tmp_path, made("a", 0.1, 1), wrong, made("c", 0.1, 3))
    history = make_history(given, TTFT, {})
    assert [point.measured.value for point in history.series[0].points] == [0.1, None, 0.1]
    assert "INVALID" in history.show("plain")


def test_a_change_is_marked_with_how_much(tmp_path):
    reports = [
        made(commit, base * (1 + 0.001 * k), day, driver=None)
        for day, (commit, base) in enumerate((("a", 0.1), ("b", 0.1), ("c", 0.12)), 1)
        for k in range(4)
    ]
    history = make_history(sources(tmp_path, *reports), TTFT, {})
    assert [point.change for point in history.series[0].points] == [False, False, True]
    assert "+20.0 %:" in history.series[0].points[2].remark
    assert history.series[0].sparkline() == "▁▁█"
    lines = [line for line in history.show("github").splitlines() if "<- change" in line]
    assert len(lines) == 1
    assert "| c " in lines[0]
    values = json.loads(history.show("json"))
    assert [point["change"] for point in values["series"][0]["points"]] == [False, False, True]
    head, *rows = csv.reader(history.show("csv").splitlines())
    assert head == ["series", "commit", "when", "reports", "value", "change"]
    assert [dict(zip(head, row, strict=True))["commit"] for row in rows] == ["a", "b", "c"]
    assert {row[0] for row in rows} == {history.series[0].label}


def test_a_plot_is_drawn_in_both_forms_and_others_are_refused(tmp_path):
    pytest.importorskip("matplotlib")
    history = make_history(sources(tmp_path, made("a", 0.1, 1), made("b", 0.2, 2)), TTFT, {})
    assert draw(history, tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in draw(history, tmp_path / "a.svg").read_text()
    with pytest.raises(UsageError, match=r"ends with \.png or \.svg"):
        draw(history, tmp_path / "a.gif")


# -- the command, over a repository -------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path):
    """One baseline that was committed twice, once broken in between."""

    def git(*arguments):
        names = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *names, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def commit(text):
        git("add", ".")
        git("commit", "-m", text)

    path = tmp_path / "results" / "base.json"
    git("init", "-q")
    files.write(made("a", 0.1, 1), path)
    commit("first")
    path.write_text("{")
    commit("broken")
    files.write(made("b", 0.2, 2), path)
    commit("second")
    return tmp_path / "results"


def history_of(*arguments):
    result = CliRunner().invoke(root, ["history", *map(str, arguments), "--format", "json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_earlier_versions_of_a_committed_report_are_points(repository):
    values = history_of(repository, "--metric", "ttft_p50")
    (one,) = values["series"]
    assert [(point["commit"], point["value"]) for point in one["points"]] == [("a", 0.1), ("b", 0.2)]
    (warning,) = values["warnings"]
    assert "base.json of commit" in warning
    (now,) = history_of(repository, "--metric", "ttft_p50", "--files-only")["series"]
    assert [point["commit"] for point in now["points"]] == ["b"]


def test_a_folder_outside_of_git_goes_by_its_files(tmp_path):
    files.write(made("a", 0.1, 1), tmp_path / "x.json")
    assert len(history_of(tmp_path)["series"]) == 1


def test_a_broken_file_and_an_empty_folder_are_refused_by_name(tmp_path):
    result = CliRunner().invoke(root, ["history", str(tmp_path)])
    assert result.exit_code == 2
    assert "holds no report" in result.stderr
    (tmp_path / "bad.json").write_text("{")
    result = CliRunner().invoke(root, ["history", str(tmp_path)])
    assert result.exit_code == 2
    assert "bad.json" in result.stderr
