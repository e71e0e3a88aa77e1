"""The report's file: what goes in comes out, and nothing else is taken for a report."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_examples import STOP, mixed_run, pool, report, request, requests, steps

from musebench.core.errors import InputError
from musebench.core.request import FinishReason
from musebench.report.codec import Mismatch, encode
from musebench.report.files import dumps, loads, read, write
from musebench.report.schema import (
    SCHEMA,
    Choice,
    GrowthColumns,
    RequestColumns,
    RunData,
    StepColumns,
    new_report,
)

any_text = st.text(st.characters(exclude_categories=()), max_size=8)  # lone surrogates and NUL too
counts = st.integers(0, 2**63 - 1)
numbers = st.floats(allow_nan=False, allow_infinity=False)
free = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63 - 1), 2**63 - 1) | numbers | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def runs(draw):
    count, step_count = draw(st.integers(0, 3)), draw(st.integers(1, 3))
    made = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))

    def column(values, length=count):
        return draw(st.lists(values, min_size=length, max_size=length))

    def optional(values, length=count):
        return column(st.none() | values, length)

    columns = RequestColumns(
        id=column(any_text),
        session=optional(counts),
        arrival_seconds=column(numbers),
        scheduled_seconds=optional(numbers),
        first_token_seconds=optional(numbers),
        last_token_seconds=optional(numbers),
        finish_seconds=optional(numbers),
        prompt_tokens=column(counts),
        generated_tokens=made,
        max_new_tokens=column(counts),
        finish_reason=optional(st.sampled_from(FinishReason)),
        message=optional(any_text),
        preemptions=column(counts),
        expect=optional(any_text),
        correct=optional(st.booleans()),
        text=optional(any_text),
        prompt_sha256=optional(any_text),
        tags=column(st.dictionaries(any_text, free, max_size=2)),
        token_ids=draw(st.none() | st.just([3] * sum(made))),
        token_steps=draw(st.none() | st.just([step_count - 1] * sum(made))),
        margins=draw(st.none() | st.just([None] * sum(made))),
    )
    step_columns = steps(
        column(numbers, step_count),
        device_seconds=optional(numbers, step_count),
        rows=column(counts, step_count),
        programs={draw(any_text): column(counts, step_count)},
    )
    return RunData(
        columns,
        step_columns,
        pool(capacity=draw(st.none() | counts), counters=draw(st.dictionaries(any_text, free, max_size=2))),
        energy_joules=draw(st.none() | numbers),
    )


@settings(max_examples=60)
@given(st.lists(runs(), max_size=2), any_text, free, st.none() | any_text)
def test_a_report_comes_back_from_its_text_as_it_was(made, identity, options, message):
    plain = report()
    executor = Choice(identity, None, message, {"free": options})
    choices = dataclasses.replace(plain.choices, executor=executor)
    before = dataclasses.replace(plain, runs=made, id=identity, message=message, choices=choices)
    data = dumps(before)
    assert loads(data, "x") == before
    assert dumps(loads(data, "x")) == data
    data.decode("ascii")


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "deeper/folder/a.json"])
def test_a_report_comes_back_from_its_file_and_nothing_is_left_beside_it(tmp_path, name):
    path = write(report(), tmp_path / name)
    assert read(path) == report()
    assert os.listdir(path.parent) == [path.name]
    assert path.read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")


def test_content_and_not_the_name_says_whether_a_file_is_gzipped(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(gzip.compress(dumps(report())))
    assert read(path) == report()


def test_the_same_report_gives_the_same_bytes_gzipped_too(tmp_path):
    first, second = write(report(), tmp_path / "a.json.gz"), write(report(), tmp_path / "b.json.gz")
    assert first.read_bytes() == second.read_bytes()


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch):
    path = write(report(), tmp_path / "a.json")
    old = path.read_bytes()

    def no_space(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(InputError, match=r"a\.json: cannot write the report: No space left on device"):
        write(report(id="new"), path)
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_folder_that_cannot_be_made_is_named_in_one_line(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot write the report") as caught:
        write(report(), tmp_path / "file" / "a.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_nan_and_infinity_are_not_written(tmp_path, value):
    spoiled = dataclasses.replace(mixed_run(), energy_joules=value)
    with pytest.raises(ValueError, match="not JSON compliant"):
        write(report(spoiled), tmp_path / "a.json")
    assert os.listdir(tmp_path) == []


def test_every_cut_of_a_report_is_refused_by_name():
    data = dumps(report()).rstrip()
    for end in range(0, len(data), 37):
        with pytest.raises(InputError, match=r"^cut\.json is not a (whole )?report"):
            loads(data[:end], "cut.json")


@pytest.mark.parametrize("keep", [12, 200])
def test_a_cut_off_gzip_is_refused_by_name(tmp_path, keep):
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(dumps(report()))[:keep])
    with pytest.raises(InputError, match=r"a\.json\.gz is not a whole report: its gzip data is cut off"):
        read(path)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (b"\xff\xfe{", "codec can't decode"),
        (b"[]", "no schema number"),
        (b"{}", "no schema number"),
        (b"7", "no schema number"),
        (b'{"schema": "1"}', "its schema is '1'"),
        (b'{"schema": true}', "its schema is True"),
        (b'{"schema": 0}', "its schema is 0"),
        (b'{"schema": 1, "schema": 1}', "the key 'schema' twice"),
        (b'{"schema": 1, "id": NaN}', "holds NaN"),
        (b'{"schema": 1, "id": -Infinity}', "holds -Infinity"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"schema": 1} {"schema": 1}', "cut off or broken at line 1, column 15"),
        (b'{"schema": ' + b"9" * 5000 + b"}", "Exceeds the limit"),
    ],
)  # fmt: skip
def test_what_is_not_a_report_is_refused_in_one_line_that_names_it(data, words):
    with pytest.raises(InputError) as caught:
        loads(data, "results/x.json")
    text = str(caught.value)
    assert text.startswith("results/x.json is not a ")
    assert words in text
    assert "\n" not in text


def test_a_newer_schema_is_refused_before_anything_else_is_looked_at():
    data = json.dumps({"schema": SCHEMA + 1, "new": "things"}).encode()
    with pytest.raises(InputError, match=rf"x\.json has schema {SCHEMA + 1}; .* upgrade musebench"):
        loads(data, "x.json")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"gone\.json: cannot read the report: No such file"):
        read(tmp_path / "gone.json")


def doctored(path, value):
    """The report's JSON with the value at a path of keys replaced, or its last key taken away (`value` None
    as a type)."""
    values = json.loads(dumps(report()))
    inner = values
    for key in path[:-1]:
        inner = inner[key]
    if value is KeyError:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return json.dumps(values).encode()


FIRST = ("runs", 0, "requests")


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("runs",), KeyError, "runs is missing"),
        (("speed",), 7, "speed is not known; a report has id, created"),
        (("conditions", "seed"), "0", "conditions.seed is a text ('0'); a whole number is wanted"),
        (("conditions", "seed"), True, "conditions.seed is True; a whole number is wanted"),
        (("conditions", "seed"), 1.5, "conditions.seed is a number (1.5); a whole number is wanted"),
        (("conditions", "seed"), None, "conditions.seed is null; a whole number is wanted"),
        (("conditions", "model", "colour"), 1, "conditions.model.colour is not known"),
        (("conditions", "model", "facts", "windows"), ["a"], "facts.windows[0] is a text ('a')"),
        (("conditions", "command"), {}, "conditions.command is an object ({}); a list is wanted"),
        (("choices", "limits", "most_sequences"), 0, "choices.limits: most sequences is 0"),
        (("costs", "seconds", "load"), None, "costs.seconds.load is null; a number is wanted"),
        (("status",), "half", "status is 'half'"),
        ((*FIRST, "finish_reason", 0), "done", "requests.finish_reason[0] is a text ('done'); one of stop,"),
        ((*FIRST, "correct", 0), 1, "correct[0] is a whole number (1); null or true or false is wanted"),
        ((*FIRST, "arrival_seconds", 1), None, "requests.arrival_seconds[1] is null; a number is wanted"),
        ((*FIRST, "prompt_tokens", 1), 2.0, "requests.prompt_tokens[1] is a number (2.0)"),
        ((*FIRST, "prompt_tokens", 1), -2, "requests: column prompt_tokens holds -2; at least 0"),
        ((*FIRST, "arrival_seconds"), [0.0], "column arrival_seconds has 1 values, column id has 5"),
        ((*FIRST, "token_ids"), [1, 2], "token_ids has 2 values for 6 generated tokens"),
        ((*FIRST, "token_steps", 0), 3, "runs[0]: token_steps names steps 0 to 3; the run has 3 steps"),
        ((*FIRST, "token_steps", 0), -1, "token_steps names steps -1 to 2"),
        (("runs", 0, "steps", "programs", "decode"), [1], "programs.decode has 1 values for 3 steps"),
        (("runs", 0, "pool", "growths", "rows"), [8], "column rows has 1 values, column step has 2"),
        (("memory", "snapshots", "peak", "peak"), "much", "memory.snapshots.peak.peak is a text ('much')"),
    ],
)  # fmt: skip
def test_a_doctored_report_is_refused_with_the_place_and_what_was_wanted(path, value, words):
    with pytest.raises(InputError) as caught:
        loads(doctored(path, value), "x.json")
    assert str(caught.value).startswith(f"x.json is not a report of schema {SCHEMA}: ")
    assert words in str(caught.value)


@pytest.mark.parametrize("place", [(*FIRST, "arrival_seconds", 1), (*FIRST, "finish_seconds", 1)])
def test_a_number_too_large_for_a_float_is_refused(place):
    data = doctored(place, "HERE").replace(b'"HERE"', b"1e999")
    with pytest.raises(InputError, match=r"seconds\[1\] is not a finite number"):
        loads(data, "x.json")
    data = doctored(("conditions", "backend", "power limit watts"), "HERE").replace(b'"HERE"', b"[1e999]")
    with pytest.raises(InputError, match=r"watts\[0\] is not a finite number"):
        loads(data, "x.json")


def test_a_field_with_a_default_may_be_missing():
    assert loads(doctored(("message",), KeyError), "x") == report()


def test_whole_numbers_are_taken_as_seconds():
    made = loads(doctored((*FIRST, "arrival_seconds"), [0, 1, 2, 3, 4]), "x")
    assert made.runs[0].requests.arrival_seconds == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert set(map(type, made.runs[0].requests.arrival_seconds)) == {float}


def test_columns_take_numpy_arrays_with_nan_for_missing():
    row = request("x", scheduled_seconds=None)
    columns = {name: [value] for name, value in row.items()}
    columns["scheduled_seconds"] = np.array([np.nan])
    columns["prompt_tokens"] = np.array([4], np.int32)
    columns["finish_reason"] = ["stop"]
    made = RequestColumns.of(**columns)
    assert made == requests(row)
    assert made.finish_reason[0] is STOP
    assert type(made.prompt_tokens[0]) is int
    growths = GrowthColumns.of(
        step=np.array([0]), rows=np.array([8]), bytes=np.array([8]), copied_bytes=np.array([0]),
        seconds=np.array([0.5]), peak_bytes=np.array([8]),
    )  # fmt: skip
    assert growths.seconds == [0.5]


def test_programs_take_numpy_arrays():
    made = steps([0.1, 0.2], programs={"decode": np.array([1, 0])})
    assert made.programs == {"decode": [1, 0]}


def test_columns_of_two_lengths_are_refused_when_they_are_made():
    with pytest.raises(Mismatch, match="column end has 1 values, column start has 2"):
        StepColumns.of(**{**dataclasses.asdict(steps([0.1, 0.2])), "end": [0.1]})


def test_options_are_stored_with_their_defaults_and_without_tuples():
    @dataclasses.dataclass(frozen=True)
    class Options:
        ladder: tuple[int, ...] = (1, 2)
        factor: float = 2.0

    assert Choice.of("x", None, None, Options()).options == {"ladder": [1, 2], "factor": 2.0}


def test_what_has_no_json_form_is_refused_when_it_is_encoded():
    with pytest.raises(TypeError, match="set"):
        encode({"a": {1, 2}})
    with pytest.raises(TypeError, match="key is 1"):
        encode({1: 2})
    assert encode([np.int64(3), np.float32(0.5), np.bool_(True), (1, None)]) == [3, 0.5, True, [1, None]]


def test_a_new_report_is_of_now_with_an_id_of_its_own_and_incomplete_with_a_message():
    plain = report()
    first = new_report(plain.conditions, plain.choices, plain.runs)
    second = new_report(plain.conditions, plain.choices, plain.runs, message="stopped by a person")
    assert first.id != second.id
    assert first.created.endswith("+00:00")
    assert (first.status, second.status) == ("complete", "incomplete")
    assert loads(dumps(second), "x") == second


def test_reading_and_comparing_reports_imports_neither_torch_nor_transformers():
    code = (
        "import sys, musebench.report.files, musebench.report.compare, musebench.report.tables, "
        "musebench.measure.host, musebench.report.verdict, musebench.measure.memory, "
        "musebench.measure.energy, musebench.measure.doctor; "
        "print([name for name in ('torch', 'transformers', 'pynvml') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
