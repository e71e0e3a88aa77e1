"""Reports side by side: what differs is said, percents are against the baseline, INVALID is not ranked."""

from __future__ import annotations

import csv
import dataclasses
import io
import json

import pytest
from report_examples import mixed_run, pool, report, request, requests, steps

from musebench.core.errors import UsageError
from musebench.report.compare import compare, labels_of, missing_baseline
from musebench.report.schema import Choice, Costs, RunData
from musebench.report.verdict import Verdict


def one_token_at(seconds, **changed):
    """A run of one request that took so long, in one step: it passes every check."""
    row = request(
        "x", first_token_seconds=seconds, last_token_seconds=seconds, finish_seconds=seconds, **changed
    )
    step = steps([seconds], decode_tokens=[0], prefill_tokens=[4])
    return RunData(requests(row, token_steps=[0]), step, one_step_pool())


def one_step_pool(**changed):
    """What a step of four cells leaves of a pool of eight rows, scratch among them."""
    return pool(**({"bytes": 8 * 1024, "most_in_use": 4} | changed))


def conditions(**changed):
    return dataclasses.replace(report().conditions, **changed)


def eager(run, **changed):
    choices = dataclasses.replace(report().choices, executor=Choice("eager", "musebench", "0.1.0", {}))
    return report(run, choices=choices, **changed)


def row(comparison, name):
    (found,) = [row for table in comparison.tables for row in table.rows if row.name == name]
    return found


GOLDEN = """\
warning: driver differs: 1.2 (graph); 1.3 (eager)
warning: code with uncommitted changes: eager

| choices          |      graph |      eager |
|------------------|------------|------------|
| verdict          |      VALID |      VALID |
| device           |       cuda |       cuda |
| executor         |      graph |      eager |
| pool             |  geometric |  geometric |
| scheduler        | continuous | continuous |
| executor.ladder  |  [1, 2, 4] |          - |
| executor.padding |       True |          - |

| against graph     |     graph |               eager |
|-------------------|-----------|---------------------|
| output tokens/s   |     10.00 |     5.000 (-50.0 %) |
| prompt tokens/s   |     40.00 |     20.00 (-50.0 %) |
| requests/s        |     10.00 |     5.000 (-50.0 %) |
| TTFT p50          |  100.0 ms | 200.0 ms (+100.0 %) |
| TTFT p99          |  100.0 ms | 200.0 ms (+100.0 %) |
| E2E p50           |  100.0 ms | 200.0 ms (+100.0 %) |
| E2E p99           |  100.0 ms | 200.0 ms (+100.0 %) |
| wait p50          |       0 s |                 0 s |
| wait p99          |       0 s |                 0 s |
| requests          |         1 |               1 (=) |
| succeeded         |         1 |               1 (=) |
| generated tokens  |         1 |               1 (=) |
| steps             |         1 |               1 (=) |
| forwards          |         1 |               1 (=) |
| padded tokens     |         0 |               0 (=) |
| preemptions       |         0 |               0 (=) |
| pool bytes        |  8.00 KiB |        8.00 KiB (=) |
| most cells in use |         4 |               4 (=) |
| growths           |         0 |               0 (=) |
| bytes copied      |       0 B |             0 B (=) |
| memory            | 68.41 KiB |       68.41 KiB (=) |
| device peak       | 29.30 KiB |       29.30 KiB (=) |
one sample of each: the noise is unknown; --repeat, or several reports, show it"""


def test_the_text_of_a_comparison():
    costs = Costs()
    slow = eager(one_token_at(0.2), conditions=conditions(driver="1.3", dirty=True), costs=costs)
    shown = compare([report(one_token_at(0.1), costs=costs), slow], ["graph", "eager"]).show("github")
    assert shown == GOLDEN


def test_percents_are_against_the_named_baseline():
    fast, slow = report(one_token_at(0.1)), report(one_token_at(0.2))
    assert row(compare([fast, slow], ["fast", "slow"]), "TTFT p50").changes == (None, 100.0)
    other = compare([fast, slow], ["fast", "slow"], baseline="slow")
    assert other.baseline == "slow"
    assert row(other, "TTFT p50").changes == (-50.0, None)


def test_any_number_of_reports_stand_side_by_side():
    reports = [report(one_token_at(0.1 * (index + 1))) for index in range(4)]
    made = row(compare(reports, list("abcd")), "output tokens/s")
    assert made.values == pytest.approx((10.0, 5.0, 10 / 3, 2.5))
    assert made.changes[1:] == pytest.approx((-50.0, -200 / 3, -75.0))
    assert row(compare(reports[:1], ["a"]), "output tokens/s").changes == (None,)


def test_equal_conditions_give_no_warning():
    assert compare([report(), report(id="other")], ["a", "b"]).warnings == ()


@pytest.mark.parametrize(
    ("changed", "warning"),
    [
        ({"device": "Other GPU"}, "device differs: Example GPU (a); Other GPU (b)"),
        ({"driver": None}, "driver differs: 1.2 (a); unknown (b)"),
        ({"commit": "fedc"}, "commit differs: 0123456789abcdef (a); fedc (b)"),
        ({"seed": 1}, "seed differs: 0 (a); 1 (b)"),
        ({"clock": "virtual"}, "clock differs: host (a); virtual (b)"),
        ({"warmup": 0}, "warmup differs: 1 (a); 0 (b)"),
        ({"versions": {"python": "3.11.7", "torch": "2.11.0"}},
         "versions torch differs: 2.13.0 (a); 2.11.0 (b)"),
        ({"backend": {}}, "backend power limit watts differs: 300 (a); unknown (b)"),
        (
            {"workload": dataclasses.replace(conditions().workload, sha256="cc")},
            "workload sha256 differs: aa (a); cc (b)",
        ),
        (
            {"model": dataclasses.replace(conditions().model, dtype="bfloat16")},
            "model dtype differs: float32 (a); bfloat16 (b)",
        ),
    ],
)  # fmt: skip
def test_a_condition_that_differs_is_warned_of_with_who_has_what(changed, warning):
    made = compare([report(), report(conditions=conditions(**changed))], ["a", "b"])
    assert made.warnings[0] == warning
    assert all("different machines" in more for more in made.warnings[1:])


def test_the_command_is_no_condition():
    assert compare([report(), report(conditions=conditions(command=["other"]))], ["a", "b"]).warnings == ()


def test_another_model_is_warned_of_without_each_of_its_facts():
    plain = conditions().model
    facts = dataclasses.replace(plain.facts, layers=30, hidden=576)
    bigger = dataclasses.replace(plain, name="bigger", source="random:bigger", facts=facts)
    made = compare([report(), report(conditions=conditions(model=bigger))], ["a", "b"])
    assert made.warnings == (
        "model name differs: tiny (a); bigger (b)",
        "model source differs: random:tiny (a); random:bigger (b)",
    )


def test_options_and_limits_that_differ_are_rows_and_equal_ones_are_not():
    plain = report().choices
    choices = dataclasses.replace(
        plain,
        pool=Choice("geometric", "musebench", "0.1.0", {"factor": 1.5}),
        bounds=dataclasses.replace(plain.bounds, capacity=None),
    )
    made = compare([report(), report(choices=choices)], ["a", "b"])
    assert row(made, "pool.factor").values == ("2.0", "1.5")
    assert row(made, "bounds.capacity").values == ("64", "none")
    names = [found.name for found in made.tables[0].rows]
    assert names == ["verdict", "device", "executor", "pool", "scheduler", "pool.factor", "bounds.capacity"]


def test_another_version_of_a_package_is_a_row():
    choices = dataclasses.replace(report().choices, scheduler=Choice("continuous", "musebench", "0.2.0", {}))
    made = compare([report(), report(choices=choices)], ["a", "b"])
    assert row(made, "scheduler package").values == ("musebench 0.1.0", "musebench 0.2.0")


def invalid():
    return report(one_token_at(0.05, expect="Paris", correct=False))


def test_an_invalid_report_is_struck_out_in_speed_and_not_ranked():
    made = compare([report(one_token_at(0.1)), invalid()], ["good", "bad"])
    assert row(made, "output tokens/s").changes == (None, None)
    assert row(made, "steps").changes == (None, 0.0)
    shown = made.show("plain")
    assert shown.startswith("bad: INVALID: 1 of 1 answers are wrong\n")
    (line,) = [line.split() for line in shown.splitlines() if line.startswith("output tokens/s")]
    assert line[2:] == ["10.00", "~~20.00~~"]
    assert row(made, "verdict").values == ("VALID", "INVALID")


def test_nothing_is_compared_in_speed_with_an_invalid_baseline():
    made = compare([invalid(), report(one_token_at(0.1))], ["bad", "good"])
    assert made.warnings == ("the baseline bad is INVALID: no speed is compared with it",)
    assert row(made, "output tokens/s").changes == (None, None)
    assert row(made, "pool bytes").changes == (None, 0.0)


def test_a_plugins_check_can_strike_a_report_out():
    class NotB:
        def check(self, reports):
            return [Verdict(reports[1].id, "mine", False, "no")]

    made = compare([report(id="1"), report(id="2")], ["a", "b"], checks=[NotB()])
    assert [one.valid for one in made.judgements] == [True, False]


def test_missing_and_zero_values_have_no_percent():
    made = compare([report(one_token_at(0.1)), report(mixed_run())], ["a", "b"])
    assert row(made, "TPOT p50").values == (None, pytest.approx(0.15))
    assert row(made, "TPOT p50").changes == (None, None)
    assert row(made, "padded tokens").values == (0, 4)
    assert row(made, "padded tokens").changes == (None, None)


def test_tokens_to_pay_off_are_the_extra_one_off_time_over_the_time_saved_a_token():
    base = report(one_token_at(0.2), costs=Costs(seconds={"import": 1.0}))
    faster = report(one_token_at(0.1), costs=Costs(seconds={"import": 9.0, "capture": 1.0}))
    assert row(compare([base, faster], ["eager", "graph"]), "tokens to pay off").values == (None, 10)
    slower = report(one_token_at(0.3), costs=Costs(seconds={"capture": 1.0}))
    names = [found.name for found in compare([base, slower], ["eager", "graph"]).tables[1].rows]
    assert "tokens to pay off" not in names


def test_a_row_that_no_report_has_is_left_out():
    names = [found.name for found in compare([report(one_token_at(0.1))], ["a"]).tables[1].rows]
    assert "output tokens/J" not in names
    assert "output tokens/J" in [found.name for found in compare([report()], ["a"]).tables[1].rows]


def test_a_report_without_a_run_is_compared_as_missing():
    empty = report(runs=[], status="incomplete", message="stopped")
    made = compare([report(), empty], ["a", "b"])
    assert row(made, "pool bytes").values == (16384, None)
    assert row(made, "output tokens/s").values == (8.0, None)


def test_json_has_warnings_verdicts_values_and_changes():
    made = json.loads(compare([report(one_token_at(0.1)), invalid()], ["good", "bad"]).show("json"))
    assert made["baseline"] == "good"
    assert made["verdicts"]["bad"] == {"valid": False, "reasons": ["1 of 1 answers are wrong"]}
    (found,) = [one for one in made["tables"][1]["rows"] if one["name"] == "output tokens/s"]
    assert found["values"] == {"good": 10.0, "bad": 20.0}
    assert found["change_percent"] == {"good": None, "bad": None}
    assert found["invalid"] == ["bad"]


def test_csv_has_changes_and_says_what_is_invalid():
    made = compare([report(one_token_at(0.1)), report(one_token_at(0.2)), invalid()], ["a", "b", "c"])
    lines = list(csv.DictReader(io.StringIO(made.show("csv"))))
    found = [line for line in lines if line["row"] == "TTFT p50"]
    assert [line["valid"] for line in found] == ["yes", "yes", "no"]
    assert [line["change_percent"] for line in found] == ["", "100.0", ""]


def test_what_cannot_be_compared_is_refused_by_name():
    with pytest.raises(UsageError, match="nothing to compare"):
        compare([], [])
    with pytest.raises(UsageError, match="two reports have one label: a, a"):
        compare([report(), report()], ["a", "a"])
    with pytest.raises(UsageError, match="baseline 'grap' is none of the reports; did you mean 'graph'"):
        compare([report(), report()], ["graph", "eager"], baseline="grap")
    with pytest.raises(UsageError, match="no table format 'gitub'"):
        compare([report()], ["a"]).show("gitub")


@pytest.mark.parametrize(
    ("paths", "labels"),
    [
        (["results/a.json", "b.json.gz"], ("a", "b")),
        (["x/a.json", "y/a.json"], ("x/a.json", "y/a.json")),
        (["a.json", "a.json"], ("a.json (1)", "a.json (2)")),
    ],
)
def test_labels_are_short_and_all_different(paths, labels):
    assert labels_of(paths) == labels


def test_a_missing_baseline_is_said_with_how_to_make_one():
    line = missing_baseline("results/baselines/cpu.json")
    assert line.startswith("there is no baseline at results/baselines/cpu.json, so nothing was compared")
    assert "cp REPORT.json results/baselines/cpu.json" in line
    assert "\n" not in line
