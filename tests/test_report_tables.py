"""Tables of hand-made reports, against their whole text."""

from __future__ import annotations

import csv
import dataclasses
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_examples import FAILED, REFUSED, mixed_run, pool, report, request, requests, steps

from musebench.core.errors import UsageError
from musebench.report import tables
from musebench.report.schema import Costs, Memory, RunData
from musebench.report.table import (
    DATA_FORMATS,
    FORMATS,
    TEXT_FORMATS,
    Row,
    Table,
    pretty,
    text,
    to_csv,
    to_json,
)
from musebench.report.verdict import exit_code

HEADLINE = (
    "20250102-030405-abcdef: tiny in float32 on Example GPU, workload chat: executor graph, pool geometric, "
    "scheduler continuous"
)

MIXED = f"""\
{HEADLINE}
VALID

| throughput       |    value |
|------------------|----------|
| output tokens/s  |    8.000 |
| prompt tokens/s  |    12.00 |
| requests/s       |    4.000 |
| output tokens    |        4 |
| prompt tokens    |        6 |
| requests counted |        2 |
| span             | 500.0 ms |
| energy           |  2.000 J |
| output tokens/J  |    2.000 |

| latency   |     mean |      p50 |      p90 |      p99 |   samples |
|-----------|----------|----------|----------|----------|-----------|
| TTFT      | 125.0 ms | 125.0 ms | 145.0 ms | 149.5 ms |         2 |
| TPOT      | 150.0 ms | 150.0 ms | 150.0 ms | 150.0 ms |         1 |
| ITL       | 150.0 ms | 150.0 ms | 190.0 ms | 199.0 ms |         2 |
| E2E       | 275.0 ms | 275.0 ms | 375.0 ms | 397.5 ms |         2 |
| wait      | 25.00 ms | 25.00 ms | 45.00 ms | 49.50 ms |         2 |

| steps               |    value |
|---------------------|----------|
| steps               |        3 |
| decode tokens       |        3 |
| prefill tokens      |        9 |
| padded tokens       |        4 |
| tokens a step       |        4 |
| forwards            |        4 |
| forwards of decode  |        2 |
| forwards of prefill |        2 |
| device time         | 320.0 ms |
| host time           |        - |
| executor: captures  |        2 |
| executor: replays   |        3 |

| steps by kind (means)   |   decode |   prefill |    mixed |
|-------------------------|----------|-----------|----------|
| steps                   |        1 |         1 |        1 |
| tokens                  |        1 |         7 |        4 |
| bytes that had to move  |        - |         - |        - |
| floor                   |        - |         - |        - |
| time on the device      | 150.0 ms |  80.00 ms | 90.00 ms |
| share of the floor      |        - |         - |        - |
| host time not hidden    | 50.00 ms |  20.00 ms | 10.00 ms |
floor: the device's ceilings are not known; musebench doctor --measure finds them

| pool              |     value |
|-------------------|-----------|
| policy            | geometric |
| capacity (cells)  |        64 |
| rows              |        16 |
| most cells in use |        12 |
| bytes per cell    |  1.00 KiB |
| bytes             | 16.00 KiB |
| growths           |         1 |
| bytes copied      |  7.00 KiB |
| growth time       |  3.000 ms |
| passing peak      | 24.00 KiB |
| refusals          |         1 |
| preemptions       |         0 |

| memory     |   computed |   measured |
|------------|------------|------------|
| weights    |   3.91 KiB |   4.00 KiB |
| rows       |  64.00 KiB |  16.00 KiB |
| workspace  |      512 B |          - |
| graphs     |        0 B |          - |
| sum / peak |  68.41 KiB |  29.30 KiB |

| memory by phase   |   allocated |   reserved |      peak |   NVML device |   NVML process |       host |   host peak |
|-------------------|-------------|------------|-----------|---------------|----------------|------------|-------------|
| start             |         0 B |          - |         - |             - |              - | 976.56 KiB |           - |
| loaded            |    4.00 KiB |          - |         - |             - |              - |   1.91 MiB |           - |
| peak              |   19.53 KiB |          - | 29.30 KiB |    572.20 MiB |              - |          - |           - |
process memory: NVML names the process but not its memory

| correctness                               |   value |
|-------------------------------------------|---------|
| requests                                  |       5 |
| succeeded                                 |       3 |
| succeeded without a token                 |       1 |
| answers expected                          |       1 |
| answers right                             |       1 |
| answers wrong                             |       0 |
| ended: failed                             |       1 |
| ended: length                             |       2 |
| ended: refused                            |       1 |
| ended: stop                               |       1 |
| failed: step 2 failed: no memory          |       1 |
| refused: needs 107 cells; the pool has 64 |       1 |

| one-off costs   |    value |
|-----------------|----------|
| import          |  2.500 s |
| load            | 750.0 ms |
| capture         | 50.00 ms |
| captures        |        2 |"""  # noqa: E501 - a line of the table is as long as it is

ALL_FAILED = f"""\
{HEADLINE}
INVALID: none of 3 requests succeeded: 2 failed (no memory), 1 refused (too | big)

| steps          |   value |
|----------------|---------|
| steps          |       1 |
| decode tokens  |       1 |
| prefill tokens |       0 |
| padded tokens  |       0 |
| tokens a step  |       1 |
| forwards       |       1 |
| device time    |       - |
| host time      |       - |

| steps by kind (means)   |   decode |
|-------------------------|----------|
| steps                   |        1 |
| tokens                  |        1 |
| bytes that had to move  |        - |
| floor                   |        - |
| time on the device      |        - |
| share of the floor      |        - |
| host time not hidden    |        - |
floor: the device's ceilings are not known; musebench doctor --measure finds them

| pool              |     value |
|-------------------|-----------|
| policy            | geometric |
| capacity (cells)  |         - |
| rows              |         8 |
| most cells in use |        12 |
| bytes per cell    |  1.00 KiB |
| bytes             | 16.00 KiB |
| growths           |         0 |
| bytes copied      |       0 B |
| growth time       |   ~~0 s~~ |
| passing peak      |         - |
| refusals          |         0 |
| preemptions       |         0 |

| memory     |   computed |   measured |
|------------|------------|------------|
| weights    |          - |          - |
| rows       |          - |  16.00 KiB |
| workspace  |          - |          - |
| graphs     |          - |          - |
| sum / peak |          - |          - |

| correctness               |   value |
|---------------------------|---------|
| requests                  |       3 |
| succeeded                 |       0 |
| succeeded without a token |       0 |
| answers expected          |       0 |
| answers right             |       - |
| answers wrong             |       - |
| ended: failed             |       2 |
| ended: refused            |       1 |
| failed: no memory         |       2 |
| refused: too \\| big       |       1 |"""


def all_failed():
    rows = [request(name, finish_reason=FAILED, message="no memory") for name in "ab"]
    rows.append(request("c", session=None, finish_reason=REFUSED, message="too | big"))
    run = RunData(requests(*rows), steps([0.1]), pool(capacity=None))
    return report(run, memory=Memory(), costs=Costs())


def wrong_answer():
    row = request("x", expect="Paris", correct=False, text="Rome")
    return report(RunData(requests(row), steps([0.1]), pool()))


def test_every_table_of_a_report():
    assert tables.show(report(), "github") == MIXED
    assert exit_code(report()) == 0


def test_a_report_in_which_all_failed_says_so_first_and_shows_no_speed():
    assert tables.show(all_failed(), "github") == ALL_FAILED
    assert exit_code(all_failed()) == 1


def test_the_speed_of_an_invalid_report_is_struck_out_and_its_counts_are_not():
    shown = tables.show(wrong_answer(), "plain").splitlines()
    assert shown[1] == "INVALID: 1 of 1 answers are wrong"
    found = {line[:17].strip(): line[17:].split() for line in shown[3:12]}
    assert found["output tokens/s"] == ["~~10.00~~"]
    assert found["output tokens"] == ["1"]
    (ttft,) = [line.split() for line in shown if line.startswith("TTFT")]
    assert ttft == ["TTFT", *["~~100.0", "ms~~"] * 4, "1"]
    assert exit_code(wrong_answer()) == 1


def test_a_one_token_answer_shows_a_dash_for_what_it_cannot_have():
    made = report(RunData(requests(request("x"), token_steps=[0]), steps([0.1]), pool()))
    shown = tables.show(made, "plain")
    (tpot,) = [line.split() for line in shown.splitlines() if line.startswith("TPOT")]
    assert tpot == ["TPOT", "-", "-", "-", "-", "0"]


def test_several_runs_show_the_lowest_and_highest():
    slow = RunData(requests(request("x", finish_seconds=0.2)), steps([0.1]), pool())
    fast = RunData(requests(request("x")), steps([0.1]), pool(), energy_reason="no counter")
    shown = text([tables.throughput(report(fast, slow))], "plain").splitlines()
    assert shown[0].split() == ["throughput", "all", "runs", "lowest", "highest"]
    assert shown[1].split() == ["output", "tokens/s", "6.667", "5.000", "10.00"]
    assert shown[4].split() == ["output", "tokens", "2", "1", "1"]
    assert shown[8].split() == ["energy", "-", "-", "-"]
    assert shown[-1] == "energy: no counter"


def test_reasons_beyond_ten_are_summed_in_one_row():
    rows = [request(str(i), finish_reason=FAILED, message=f"reason {i}") for i in range(13)]
    made = tables.correctness(report(RunData(requests(*rows), steps([0.1]), pool())))
    assert [row.name for row in made.rows if row.name.startswith("failed: ")] == [
        f"failed: reason {i}" for i in range(10)
    ]
    assert (made.rows[-1].name, made.rows[-1].values) == ("3 more reasons", (3,))


def test_json_keeps_raw_numbers_null_for_missing_and_the_verdict():
    made = json.loads(tables.show(wrong_answer(), "json"))
    assert made["verdict"] == {"valid": False, "reasons": ["1 of 1 answers are wrong"]}
    throughput, latency = made["tables"][:2]
    assert throughput["rows"][0] == {
        "name": "output tokens/s",
        "unit": "/s",
        "values": {"value": 10.0},
        "invalid": ["value"],
    }
    assert latency["rows"][1]["values"] == {"mean": None, "p50": None, "p90": None, "p99": None, "samples": 0}
    assert latency["rows"][0]["invalid"] == ["mean", "p50", "p90", "p99"]


def test_csv_has_one_line_a_value_with_its_unit():
    lines = list(csv.DictReader(io.StringIO(tables.show(report(), "csv"))))
    (p99,) = [line for line in lines if line["row"] == "TTFT" and line["column"] == "p99"]
    assert p99 == {
        "table": "latency", "row": "TTFT", "column": "p99", "value": p99["value"], "unit": "s",
        "valid": "yes", "change_percent": "",
    }  # fmt: skip
    assert float(p99["value"]) == pytest.approx(0.1495)
    (samples,) = [line for line in lines if line["row"] == "TTFT" and line["column"] == "samples"]
    assert (samples["value"], samples["unit"]) == ("2", "count")
    (host,) = [line for line in lines if line["row"] == "host time"]
    assert host["value"] == ""


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_shows_every_table(form):
    shown = tables.show(report(), form)
    assert "most cells in use" in shown
    assert "NaN" not in shown


def test_there_are_all_formats_of_tabulate_and_two_for_data():
    assert {"github", "plain", "html", "latex", "rst"} <= set(TEXT_FORMATS)
    assert set(FORMATS) == set(TEXT_FORMATS) | set(DATA_FORMATS)


def test_an_unknown_format_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match="there is no table format 'gitub'; did you mean 'github'"):
        tables.show(report(), "gitub")


def test_an_incomplete_report_is_shown_as_such():
    made = report(runs=[], status="incomplete", message="stopped by a person")
    shown = tables.show(made, "plain").splitlines()
    assert "20250102-030405-abcdef (incomplete): " in shown[0]
    assert shown[1].startswith("INVALID: the run is incomplete (stopped by a person)")
    assert exit_code(made) == 1


def test_virtual_time_is_named():
    conditions = dataclasses.replace(report().conditions, clock="virtual")
    assert "on Example GPU in virtual time, " in tables.headline(report(conditions=conditions))


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (None, "s", "-"),
        (0, "s", "0 s"),
        (1.2345, "s", "1.234 s"),
        (0.0123456, "s", "12.35 ms"),
        (0.000123456, "s", "123.5 µs"),
        (1.5e-8, "s", "15.00 ns"),
        (-0.5, "s", "-500.0 ms"),
        (3600, "s", "3,600 s"),
        (1023, "bytes", "1,023 B"),
        (1024, "bytes", "1.00 KiB"),
        (24 * 2**30, "bytes", "24.00 GiB"),
        (-2048, "bytes", "-2.00 KiB"),
        (2**60, "bytes", "1,048,576.00 TiB"),
        (1234567, "count", "1,234,567"),
        (2.5, "count", "2.50"),
        (12345.678, "/s", "12,346"),
        (0.00012, "/s", "0.00012"),
        (12.34, "percent", "12.3 %"),
        (350.0, "W", "350.0 W"),
        (True, "", "yes"),
        ("two\nlines\x1b[31m", "", "two lines?[31m"),
    ],
)
def test_numbers_as_a_person_reads_them(value, unit, shown):
    assert pretty(value, unit) == shown


@given(st.text(), st.sampled_from(TEXT_FORMATS))
def test_a_name_of_any_text_stays_in_its_line(name, form):
    plain = text([Table("t", ("v",), (Row("x", "", ("a",)),))], form)
    odd = text([Table("t", ("v",), (Row(name, "", (name,)),))], form)
    assert len(odd.splitlines()) == len(plain.splitlines())


def test_a_row_of_another_length_than_the_columns_is_refused():
    with pytest.raises(ValueError, match="row 'x': 1 values, 2 columns"):
        Table("t", ("a", "b"), (Row("x", "", (1,)),))


def test_a_table_without_a_row_is_left_out_of_the_text_and_kept_in_data():
    empty = Table("nothing", ("a",), ())
    assert text([empty], "github") == ""
    assert json.loads(to_json([empty]))["tables"] == [{"title": "nothing", "rows": [], "notes": []}]
    assert to_csv([empty]) == "table,row,column,value,unit,valid,change_percent"


def test_repeats_of_the_same_run_add_counts_and_keep_latencies():
    once, twice = tables.latency(report()), tables.latency(report(mixed_run(), mixed_run()))
    assert twice.rows[0].values[0] == pytest.approx(once.rows[0].values[0])
    assert twice.rows[0].values[4] == 4
