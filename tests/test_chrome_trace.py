"""Trace events: valid by the format, on one clock, nested where they share a lane."""

from __future__ import annotations

import gzip
import itertools
import json
import shutil

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from report_examples import mixed_run, pool, report, request, requests, steps

from musebench.cli import root
from musebench.core.profiling import Activity
from musebench.report import files
from musebench.report.chrome_trace import trace
from musebench.report.columns import RunData

REQUIRED = {
    "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
    "C": {"name", "pid", "tid", "ts", "args"},
    "i": {"name", "cat", "pid", "tid", "ts", "s", "args"},
    "M": {"name", "pid", "tid", "args"},
}
"""By phase the fields that the Trace Event Format asks for."""

TOLERANCE = 0.0015
"""Microseconds: both ends are rounded to a nanosecond."""


def assert_valid(made) -> None:
    """By the format: known phases, all fields, plain values, and slices of a lane apart or nested."""
    assert set(made) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert made["displayTimeUnit"] in ("ms", "ns")
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    named = set()
    for event in made["traceEvents"]:
        assert REQUIRED[event["ph"]] <= set(event)
        assert type(event["pid"]) is int
        assert type(event["tid"]) is int
        assert type(event["name"]) is str
        if event["ph"] == "M":
            assert event["name"] in (
                "process_name", "process_sort_index", "thread_name", "thread_sort_index"
            )  # fmt: skip
            if event["name"] == "thread_name":
                named.add((event["pid"], event["tid"]))
            continue
        assert event["ts"] >= 0
        if event["ph"] == "C":
            assert all(type(value) in (int, float) for value in event["args"].values())
        if event["ph"] == "i":
            assert event["s"] in "gpt"
        if event["ph"] == "X":
            assert event["dur"] >= 0
            lanes.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["dur"]))
    assert set(lanes) <= named
    for slices in lanes.values():
        open_ends: list[float] = []
        for start, length in sorted(slices, key=lambda one: (one[0], -one[1])):
            while open_ends and open_ends[-1] <= start + TOLERANCE:
                open_ends.pop()
            assert not open_ends or start + length <= open_ends[-1] + TOLERANCE
            open_ends.append(start + length)


def slices(made, lane: str) -> list[tuple[str, float, float]]:
    """Name, start and end in seconds of the slices of the lanes of that name, in the order given."""
    events = made["traceEvents"]
    places = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == lane
    }
    return [
        (event["name"], event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6)
        for event in events
        if event["ph"] == "X" and (event["pid"], event["tid"]) in places
    ]


def test_a_report_makes_a_valid_trace_that_says_its_conditions():
    made = trace(report())
    assert_valid(made)
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert made["otherData"]["device"] == "Example GPU"


def test_a_step_on_the_device_ends_when_its_tokens_were_known():
    found = slices(trace(report()), "device")
    assert [name for name, _, _ in found] == ["prefill", "prefill and decode", "decode"]
    assert [one for _, *ends in found for one in ends] == pytest.approx([0.02, 0.1, 0.11, 0.2, 0.25, 0.4])


def test_a_step_without_device_time_lasts_from_its_start_and_has_no_host_slice():
    base = mixed_run()
    made = trace(report(RunData(base.requests, steps([0.1, 0.2, 0.4]), base.pool)))
    assert [start for _, start, _ in slices(made, "device")] == pytest.approx([0.0, 0.1, 0.2])
    assert slices(made, "host") == []


def test_device_times_that_overlap_are_cut_and_keep_their_figure():
    base = mixed_run()
    overlapping = steps([0.1, 0.2, 0.3], device_seconds=[0.1, 0.15, 0.1], host_seconds=[0.02, 0.3, 0.02])
    made = trace(report(RunData(base.requests, overlapping, base.pool)))
    assert_valid(made)
    assert [start for _, start, _ in slices(made, "device")] == pytest.approx([0.0, 0.1, 0.2])
    measured = [event["args"].get("device seconds") for event in made["traceEvents"] if event["ph"] == "X"]
    assert 0.15 in measured


def test_requests_hold_their_phases():
    made = trace(report())
    found = slices(made, "requests 1")
    assert found[0][0] == "request three"
    assert [name for name, _, _ in found[1:3]] == ["prefill", "decode"]
    (one,) = [event for event in made["traceEvents"] if event["name"] == "request broken"]
    assert one["args"]["ended"] == "failed"
    assert one["args"]["message"] == "step 2 failed: no memory"


def test_requests_that_follow_each_other_share_a_lane():
    rows = [
        request(
            f"r{index}", arrival_seconds=at, scheduled_seconds=at, first_token_seconds=at + 0.1,
            last_token_seconds=at + 0.1, finish_seconds=at + 0.1,
        )
        for index, at in enumerate((0.0, 0.05, 0.1, 0.15))
    ]  # fmt: skip
    made = trace(
        report(RunData(requests(*rows), steps([0.1, 0.15, 0.2, 0.25], start=[0, 0.05, 0.1, 0.15]), pool()))
    )
    assert_valid(made)
    assert [name for name, *_ in slices(made, "requests 1") if "request" in name] == [
        "request r0",
        "request r2",
    ]


def test_the_pool_is_a_counter_and_its_growths_are_marked():
    events = trace(report())["traceEvents"]
    counters = [event for event in events if event["ph"] == "C" and event["name"] == "pool"]
    assert [event["args"] for event in counters] == [
        {"rows": 8, "cells in use": 7},
        {"rows": 16, "cells in use": 11},
        {"rows": 16, "cells in use": 12},
    ]
    marks = [(event["name"], event["ts"]) for event in events if event["ph"] == "i"]
    assert marks == [("first allocation", 0.0), ("growth", 100000.0)]


def test_every_run_has_processes_of_its_own():
    made = trace(report(mixed_run(), mixed_run()))
    assert_valid(made)
    names = [event["args"]["name"] for event in made["traceEvents"] if event["name"] == "process_name"]
    assert names == [
        "run 1: host, device, pool", "run 1: requests", "run 2: host, device, pool", "run 2: requests",
    ]  # fmt: skip


def test_what_was_recorded_stands_in_lanes_of_its_own_beside_its_run():
    recorded = [
        Activity("kernel a", "stream 7", 0.02, 0.05, {"grid": [1, 2, 3]}),
        Activity("copy", "stream 8", 0.03, 0.01),
        Activity("kernel b", "stream 7", 0.08, 0.01),
    ]
    made = trace(report(), (mixed_run(), recorded))
    assert_valid(made)
    assert [name for name, *_ in slices(made, "stream 7")] == ["kernel a", "kernel b"]
    (kernel,) = [event for event in made["traceEvents"] if event["name"] == "kernel a"]
    assert (kernel["pid"], kernel["ts"], kernel["dur"]) == (3, 20000.0, 50000.0)
    assert kernel["args"] == {"grid": [1, 2, 3]}


times = st.lists(st.floats(0, 5, allow_nan=False), min_size=1, max_size=12)


@given(times, st.data())
def test_no_times_make_an_invalid_trace(drawn, data):
    ends = sorted(drawn)
    starts = sorted(data.draw(st.floats(0, end)) for end in ends)
    starts = [min(start, end) for start, end in zip(starts, ends, strict=True)]
    durations = st.lists(st.floats(0, 3), min_size=len(ends), max_size=len(ends))
    columns = {"start": starts, "device_seconds": data.draw(durations), "host_seconds": data.draw(durations)}
    rows = []
    for index, pair in enumerate(itertools.pairwise(ends)):
        first, last = pair
        rows.append(
            request(
                f"r{index}", arrival_seconds=min(starts[index], first), scheduled_seconds=first,
                first_token_seconds=last, last_token_seconds=last, finish_seconds=last,
            )
        )  # fmt: skip
    assert_valid(trace(report(RunData(requests(*rows), steps(ends, **columns), pool()))))


def invoke(*arguments: str):
    return CliRunner().invoke(root, list(arguments))


def test_the_command_writes_plain_and_gzipped_alike(tmp_path):
    path = files.write(report(), tmp_path / "one.json")
    for name, read in (("trace.json", bytes), ("trace.json.gz", gzip.decompress)):
        result = invoke("trace", str(path), "--out", str(tmp_path / name))
        assert result.exit_code == 0, result.output
        assert_valid(json.loads(read((tmp_path / name).read_bytes())))


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    path = files.write(report(), tmp_path / "one.json")
    result = invoke("trace", str(path), "--out", str(path / "trace.json"))
    assert (result.exit_code, len(result.output.splitlines())) == (2, 1)
    assert "cannot write the trace" in result.output


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """A run on the CPU with its trace, and one more run that was profiled."""
    folder = tmp_path_factory.mktemp("profiled")
    result = invoke(
        "run", "capitals", "--out", str(folder / "report.json"), "--trace-out", str(folder / "trace.json"),
        "--profile", "--profile-steps", "4", "--no-progress",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "nothing was recorded" not in result.output, result.output
    return files.read(folder / "report.json"), json.loads((folder / "trace.json").read_text())


def test_a_profiled_run_is_no_part_of_the_report(profiled):
    made, events = profiled
    assert len(made.runs) == made.conditions.repeats == 1
    assert_valid(events)
    names = [event["args"]["name"] for event in events["traceEvents"] if event["name"] == "process_name"]
    assert names[2:] == ["profiled run: host, device, pool", "profiled run: requests"]


def test_operations_lie_in_the_steps_that_launched_them(profiled):
    _, made = profiled
    own = {**made, "traceEvents": [event for event in made["traceEvents"] if event["pid"] == 3]}
    # From the host's start of a step to its end: the device's slice alone ends where the host has seen the
    # end, which is late where something else held the processor meanwhile.
    both = zip(slices(own, "host"), slices(own, "device"), strict=True)
    steps = [(start, end) for (_, start, _), (_, _, end) in both]
    products = [one for one in slices(own, "thread 1") if one[0] == "aten::mm"]
    assert products, [event for event in own["traceEvents"] if event["ph"] == "M"]
    places = [
        [at for at, (start, end) in enumerate(steps) if start <= (begin + stop) / 2 <= end]
        for _, begin, stop in products
    ]
    outside = [one for one, at in zip(products, places, strict=True) if len(at) != 1]
    assert not outside, f"products outside of every step: {outside}, of {steps[:6]}"
    counts = [places.count([at]) for at in range(len(steps))]
    assert len(set(counts[:4])) == 1, counts
    assert counts[0] > 0
    assert not any(counts[4:]), "nothing is recorded after the steps that were asked for"


def test_marks_tie_two_clocks_that_run_apart_and_are_set():
    """The profiler's clock is 100 s ahead, gains a thousandth and is set back by 50 ms; marks are held up."""
    from musebench.backends.torch_profile import tied

    def ahead(at: float) -> float:
        return 100.0 + 1e-3 * at - (0.05 if at > 2.5 else 0.0)

    spans, marks = [], []
    for step in range(5):
        for one, (before, after) in enumerate([(2e-3, 1e-6), (1e-6, 1e-6), (1e-6, 3e-3)]):
            read = step + one * 1e-4
            spans.append((read + ahead(read) - before, before + after))
            marks.append(read)
    places, offsets = tied(spans, [marks[at : at + 3] for at in range(0, 15, 3)])
    assert offsets == pytest.approx([ahead(step) for step in range(5)], abs=2e-6)
    assert places == sorted(places)
    with pytest.raises(ValueError, match="kept 14 of 15 marks"):
        tied(spans[1:], [marks])


def test_steps_to_profile_without_a_profile_are_refused():
    result = invoke("run", "capitals", "--profile-steps", "4")
    assert result.exit_code == 2
    assert "add --profile" in result.output


def test_a_profile_without_a_place_for_it_is_refused():
    result = invoke("run", "capitals", "--profile")
    assert result.exit_code == 2
    assert "--trace-out" in result.output


@pytest.mark.skipif(
    shutil.which("trace_processor_shell") is None,
    reason="Perfetto's trace_processor_shell is not installed (its Python package downloads it from the web)",
)
def test_perfetto_reads_the_trace(tmp_path):
    processor = pytest.importorskip("perfetto.trace_processor")
    path = files.write(report(), tmp_path / "one.json")
    assert invoke("trace", str(path), "--out", str(tmp_path / "trace.json")).exit_code == 0
    config = processor.TraceProcessorConfig(bin_path=shutil.which("trace_processor_shell"))
    with processor.TraceProcessor(trace=str(tmp_path / "trace.json"), config=config) as opened:
        (count,) = opened.query("select count(*) as n from slice where name = 'decode'")
        assert count.n == sum(event["name"] == "decode" for event in trace(report())["traceEvents"])
