"""The gate: what is exact differs by nothing, or it says what; times of a real clock are left alone."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from gate_reports import (
    MIB,
    FatStorage,
    narrow_forwards,
    two_launches,
    virtual_report,
    with_more_weights,
)
from report_examples import mixed_run, report

from musebench.backends.torch_storage import TorchStorage
from musebench.cli import root
from musebench.core.engine import Engine
from musebench.core.errors import InputError, UsageError
from musebench.executors.eager import EagerExecutor
from musebench.gate import entries
from musebench.plugin.registry import Registry
from musebench.pools.geometric import GeometricPool
from musebench.report import files
from musebench.report.gate import gate
from musebench.workload.yamlfile import read_yaml

BASELINES = Path(__file__).parents[1] / "results" / "baselines" / "gate"


@pytest.fixture(scope="module")
def baseline():
    return virtual_report()


def test_the_same_run_passes_twenty_times(baseline):
    for _ in range(20):
        assert gate(virtual_report(), baseline) == []


def test_a_scheduler_that_is_5_percent_slower_on_the_virtual_clock_fails(baseline):
    lines = gate(virtual_report(slower=0.05), baseline)
    (rate,) = [line for line in lines if line.startswith("output tokens/s:")]
    assert "-4.8 %" in rate
    assert any("steps.end" in line for line in lines)


def test_one_extra_growth_fails(baseline, monkeypatch):
    plain = GeometricPool.rows_for

    def one_more(self, needed):
        return needed if len(self.resizes) == 1 else plain(self, needed)

    monkeypatch.setattr(GeometricPool, "rows_for", one_more)
    lines = gate(virtual_report(), baseline)
    assert any(line.startswith("growths: ") and "(+1" in line for line in lines), lines


def test_one_extra_launch_a_step_fails(baseline):
    lines = gate(virtual_report(executor=two_launches), baseline)
    assert any("counters.forwards" in line for line in lines), lines


def test_one_extra_forward_in_full_steps_fails(baseline):
    lines = gate(virtual_report(executor=narrow_forwards), baseline)
    assert any(line.startswith("forwards: ") for line in lines), lines


def test_one_mib_more_memory_fails_in_rows_and_in_weights(baseline):
    lines = gate(virtual_report(storage=FatStorage()), baseline)
    assert any(line.startswith("pool bytes: ") and "+1.00 MiB" in line for line in lines), lines
    (line, *_) = gate(with_more_weights(baseline), baseline)
    assert line.startswith("memory: ")
    assert "+1.00 MiB" in line
    (line, *_) = gate(with_more_weights(baseline, 1), baseline)
    assert "+1 B" in line
    assert MIB == 1048576


def slower_clock(run):
    """The same run on a host clock that ran three times as slow."""
    requests, steps = run.requests, run.steps
    times = ("arrival_seconds", "scheduled_seconds", "first_token_seconds", "last_token_seconds",
             "finish_seconds")  # fmt: skip

    def scaled(column):
        return [None if value is None else 3 * value for value in column]

    return dataclasses.replace(
        run,
        requests=dataclasses.replace(requests, **{name: scaled(getattr(requests, name)) for name in times}),
        steps=dataclasses.replace(
            steps, **{name: scaled(getattr(steps, name)) for name in ("start", "end", "device_seconds")}
        ),
    )


def test_times_of_a_host_clock_are_not_judged_and_another_machine_changes_nothing():
    old = report(mixed_run())
    elsewhere = dataclasses.replace(old.conditions, cpu="Other CPU", cores=64, device="Other", driver="9")
    assert gate(report(slower_clock(mixed_run()), conditions=elsewhere), old) == []


def test_a_column_that_differs_is_named_with_its_first_row():
    run = mixed_run()
    steps = dataclasses.replace(run.steps, in_use=[7, 10, 12])
    assert gate(report(dataclasses.replace(run, steps=steps)), report(run)) == [
        "runs[0].steps.in_use: 1 of 3 rows differ, first row 1: 11 -> 10"
    ]


def test_a_baseline_of_something_else_judges_nothing_and_says_so():
    conditions = dataclasses.replace(report().conditions, seed=3)
    (line,) = gate(report(), report(conditions=conditions))
    assert "judges nothing: seed is 0, the baseline's 3" in line


# -- the command, on the committed baselines ----------------------------------------------------------------


def invoke(*arguments):
    return CliRunner().invoke(root, ["gate", *map(str, arguments)])


def test_this_commit_is_the_same_as_its_committed_baselines():
    result = invoke(BASELINES, "--require-baseline")
    assert result.exit_code == 0, result.output
    assert result.output.count("the same as its baseline") == len(entries(BASELINES))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "gate.yaml").write_text("runs:\n  one: {workload: single}\n")
    return tmp_path


REAL, VIRTUAL = "capitals-geometric-chunked", "sim-h200-graph-geometric"


@pytest.fixture
def committed(tmp_path):
    """A run on a real clock and one on a virtual one, with the baselines that CI holds them against."""
    runs = read_yaml(BASELINES / "gate.yaml")["runs"]
    (tmp_path / "gate.yaml").write_text(
        yaml.safe_dump({"runs": {name: runs[name] for name in (REAL, VIRTUAL)}})
    )
    for name in (REAL, VIRTUAL):
        shutil.copy(BASELINES / f"{name}.json", tmp_path)
    return tmp_path


def slow_scheduler(monkeypatch):
    step = Engine.step

    def slower(self):
        before = self.clock.now()
        step(self)
        if hasattr(self.clock, "advance"):
            self.clock.advance(0.05 * (self.clock.now() - before))

    monkeypatch.setattr(Engine, "step", slower)


def one_more_growth(monkeypatch):
    """64, 128, 192, 256 and 512 cells in place of 64, 128, 256 and 512."""
    plain = GeometricPool.rows_for
    monkeypatch.setattr(
        GeometricPool,
        "rows_for",
        lambda self, needed: needed if len(self.resizes) < 4 else plain(self, needed),
    )


def one_more_launch_a_step(monkeypatch):
    """Behind the executor's own count."""
    plain = EagerExecutor.execute

    def twice(self, batch):
        self.backend.forward(batch).wait()
        return plain(self, batch)

    monkeypatch.setattr(EagerExecutor, "execute", twice)


def one_more_mib(monkeypatch):
    plain = TorchStorage.bytes.fget
    monkeypatch.setattr(TorchStorage, "bytes", property(lambda self: plain(self) + MIB))


@pytest.mark.parametrize(
    ("plant", "name", "words"),
    [
        (slow_scheduler, VIRTUAL, "  output tokens/s: "),
        (one_more_growth, REAL, "  growths: 3 -> 4"),
        (one_more_launch_a_step, REAL, "].audit.launched twice: none -> 9"),
        (one_more_mib, REAL, "+1.00 MiB"),
    ],
)
def test_each_planted_fault_fails_against_the_committed_baselines(committed, monkeypatch, plant, name, words):
    plant(monkeypatch)
    result = invoke(committed)
    assert result.exit_code == 1
    found = result.output.partition(f"{name}: differs from its baseline\n")[2]
    assert words in found, result.output


def test_without_a_baseline_it_says_how_to_make_one_and_fails_only_when_one_is_required(folder):
    result = invoke(folder)
    assert result.exit_code == 0
    assert "there is no baseline at" in result.output
    assert f"musebench gate {folder} --update" in result.output
    assert invoke(folder, "--require-baseline").exit_code == 2


def test_update_makes_a_baseline_that_twenty_runs_equal_and_a_changed_one_fails(folder):
    assert invoke(folder, "--update").exit_code == 0
    registry = Registry.installed()
    from musebench.gate import hold

    for _ in range(20):
        assert [held.differences for held in hold(folder, registry)] == [()]
    path = folder / "one.json"
    values = json.loads(path.read_text())
    values["runs"][0]["pool"]["bytes"] += MIB
    path.write_text(json.dumps(values))
    result = invoke(folder)
    assert result.exit_code == 1
    assert "pool bytes: " in result.output


@pytest.mark.parametrize("content", ["", "{", '{"schema": 99}'])
def test_a_baseline_that_is_none_is_refused_by_name_and_never_passes(folder, content):
    (folder / "one.json").write_text(content)
    result = invoke(folder)
    assert result.exit_code == 2
    assert "one.json" in result.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("runs: {}", "mapping of names"),
        ("runs: {a: {workload: single, poool: fixed}}", "'poool'; did you mean 'pool'"),
        ("runs: {a: {repeat: many}}", "a.repeat is 'many'; int is wanted"),
        ("other: 1", "one key `runs`"),
    ],
)
def test_a_list_that_is_wrong_is_one_line(folder, text, words):
    (folder / "gate.yaml").write_text(text)
    with pytest.raises(InputError, match=words.replace("?", ".").replace("(", ".")):
        entries(folder)


def test_a_run_whose_steps_depend_on_the_machines_speed_can_be_no_baseline(folder):
    (folder / "late.yaml").write_text(
        "requests: 2\nprompt_tokens: 5\noutput_tokens: 2\narrivals: {poisson: 100}\n"
    )
    (folder / "gate.yaml").write_text(f"runs:\n  one: {{workload: {folder}/late.yaml}}\n")
    from musebench.gate import update

    with pytest.raises(UsageError, match="arrive over time on a real clock"):
        list(update(folder, Registry.installed()))


def test_a_report_read_back_is_the_same(baseline, tmp_path):
    path = files.write(baseline, tmp_path / "a.json")
    assert gate(files.read(path), baseline) == []


def test_a_column_that_the_baseline_did_not_record_is_not_held_against_it_and_a_lost_one_is(baseline):
    (run,) = baseline.runs
    old = dataclasses.replace(run, steps=dataclasses.replace(run.steps, logit_rows=None))
    without = dataclasses.replace(baseline, runs=[old])
    assert gate(baseline, without) == []
    assert gate(without, baseline) == [f"runs[0].steps.logit_rows: {len(run.steps):,} rows -> none"]
