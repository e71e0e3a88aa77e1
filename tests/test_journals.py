"""Journals: what a killed run leaves, whole, cut and broken, becomes its report or is refused."""

from __future__ import annotations

import dataclasses
import json
import os

import pytest
from click.testing import CliRunner
from run_reports import tokens_of

from musebench.cli import root
from musebench.core.errors import InputError
from musebench.report import files
from musebench.report.journal import recover
from musebench.report.verdict import judge


@pytest.fixture
def journalled(tmp_path, monkeypatch):
    """A journal of two whole repeats, and the report of the same run."""
    from musebench.report.journal import Journal

    monkeypatch.setattr(Journal, "close", lambda self, *, remove: None)
    out = tmp_path / "report.json"
    assert CliRunner().invoke(root, ["run", "capitals", "--repeat", "2", "--out", str(out)]).exit_code == 0
    return tmp_path / "report.json.journal", files.read(out)


def test_the_journal_of_a_whole_run_holds_all_of_its_report_but_the_texts(journalled):
    path, report = journalled
    made = recover(path)
    assert (made.id, made.created, made.conditions, made.choices) == (
        report.id, report.created, report.conditions, report.choices,
    )  # fmt: skip
    for run, kept in zip(report.runs, made.runs, strict=True):
        bare = dataclasses.replace(run.requests, text=[None] * 5, correct=[None] * 5)
        assert kept.requests == bare
        assert kept.steps == run.steps
        assert (kept.pool, kept.counters) == (run.pool, run.counters)


def test_every_cut_of_a_journal_is_a_report_or_refused(journalled, tmp_path):
    path, report = journalled
    data, cut = path.read_bytes(), tmp_path / "cut.json.journal"
    head = data.index(b"\n") + 1
    whole = tokens_of(report)
    for end in range(head, len(data), 97):
        cut.write_bytes(data[:end])
        made = recover(cut)
        starts = ("the run is incomplete", "none of 5 requests", "there is no request")
        assert all(reason.startswith(starts) for reason in judge([made])[0].reasons)
        for run in made.runs:
            for name, row in tokens_of(dataclasses.replace(made, runs=[run])).items():
                assert row in ([], whole[name])
    for end in (0, 1, head // 2):
        cut.write_bytes(data[:end])
        with pytest.raises(InputError, match="journal"):
            recover(cut)


def test_a_broken_line_in_the_middle_is_refused_by_number(journalled, tmp_path):
    path, _ = journalled
    lines = path.read_bytes().splitlines(keepends=True)
    bad = tmp_path / "bad.json.journal"
    bad.write_bytes(b"".join([*lines[:2], lines[2][:40] + b"\n", *lines[3:]]))
    with pytest.raises(InputError, match="line 3 is not a journal's"):
        recover(bad)
    bad.write_bytes(json.dumps(json.loads(lines[0]) | {"journal": 9}).encode() + b"\n")
    with pytest.raises(InputError, match="version 9"):
        recover(bad)


def test_a_journal_that_is_in_the_way_is_kept(tmp_path):
    out, journal = tmp_path / "r.json", tmp_path / "r.json.journal"
    journal.write_text("what a killed run left\n")
    result = CliRunner().invoke(root, ["run", "capitals", "--out", str(out)])
    assert result.exit_code == 0
    assert f"is kept as {journal}.1" in result.output
    assert (tmp_path / "r.json.journal.1").read_text() == "what a killed run left\n"
    assert not journal.exists()


def test_a_journal_of_a_run_that_is_still_going_is_left_to_it(journalled, tmp_path):
    journal, _ = journalled
    before = journal.read_bytes()
    result = CliRunner().invoke(root, ["run", "capitals", "--out", str(tmp_path / "report.json")])
    assert result.exit_code == 2
    assert f"{journal} is written by a run that is still going" in result.stderr
    assert journal.read_bytes() == before
    assert not (tmp_path / "report.json.journal.1").exists()


def test_a_journal_that_took_the_name_meanwhile_is_not_removed(tmp_path, monkeypatch):
    from musebench.report.journal import Journal

    out, close = tmp_path / "r.json", Journal.close

    def take_the_name(self, *, remove):
        if remove:
            self.path.unlink()
            self.path.write_text("another run's\n")
        close(self, remove=remove)

    monkeypatch.setattr(Journal, "close", take_the_name)
    assert CliRunner().invoke(root, ["run", "capitals", "--out", str(out)]).exit_code == 0
    assert (tmp_path / "r.json.journal").read_text() == "another run's\n"


def test_a_journal_that_cannot_go_on_is_said_once_and_costs_no_run(tmp_path, monkeypatch):
    from musebench.report import journal

    real, calls = os.write, []

    def full(file, data):
        calls.append(file)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return real(file, data)

    monkeypatch.setattr(journal.os, "write", full)
    result = CliRunner().invoke(root, ["run", "capitals", "--out", str(tmp_path / "r.json")])
    assert result.exit_code == 0
    assert result.output.count("No space left on device") == 1


def test_recover_overwrites_no_report(journalled):
    path, _ = journalled
    result = CliRunner().invoke(root, ["recover", str(path)])
    assert result.exit_code == 2
    assert "is there already" in result.output
    assert path.exists()
