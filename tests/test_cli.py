"""The command line: help, how every mistake ends, and rows in every format."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from commands import failed, in_process, run

import musebench
from musebench.cli.format import render
from musebench.core.errors import InputError, UnsupportedError, UsageError
from musebench.plugin.hookspecs import KINDS
from musebench.plugin.registry import Registry
from musebench.report.table import FORMATS

REPOSITORY = Path(__file__).resolve().parents[1]
BUILT_IN_COMMANDS = [component.name for component in Registry.installed().components("command")]


def add_command(monkeypatch, body) -> None:
    """Let `musebench act` run `body`."""
    component = SimpleNamespace(
        name="act", summary="", load=lambda: click.command("act")(lambda: body()), factory=None
    )
    monkeypatch.setattr(Registry, "get", lambda registry, kind, name: component)


# -- help and version -----------------------------------------------------------------------------------


def test_help_names_every_command_with_its_summary():
    result = run("--help")
    assert result.exit_code == 0
    for component in Registry.installed().components("command"):
        assert re.search(rf"^  {component.name} +{re.escape(component.summary[:40])}", result.stdout, re.M)


def test_no_command_shows_the_help():
    result = run()
    assert result.exit_code == 0
    assert result.stdout == run("--help").stdout


def test_version_is_the_packages():
    assert run("--version").stdout == f"musebench, version {musebench.__version__}\n"


def test_readme_names_the_built_in_components_of_every_kind():
    table = re.findall(
        r"^\| (\w+) \| .* \| ((?:`[\w-]+`,? ?)+)\|$", (REPOSITORY / "README.md").read_text(), re.M
    )
    named = {kind: sorted(re.findall(r"[\w-]+", names)) for kind, names in table}
    registry = Registry.installed()
    built_in = {
        kind: [one.name for one in registry.components(kind) if one.package == "musebench"] for kind in KINDS
    }
    assert named == {kind: names for kind, names in built_in.items() if names and kind != "command"}


@pytest.mark.parametrize("name", BUILT_IN_COMMANDS)
def test_every_command_has_complete_help_with_examples(name):
    command = Registry.installed().get("command", name).load()
    assert f"Examples:\n      musebench {name}" in command.help.replace("\b\n", "").replace("    \b\n", "")
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help
    assert run(name, "--help").exit_code == 0


@pytest.mark.parametrize("name", BUILT_IN_COMMANDS)
def test_every_example_in_the_help_parses(name):
    command = Registry.installed().get("command", name).load()
    examples = re.findall(rf"^ *musebench {name}\b(.*)$", command.help, re.M)
    assert examples
    for example in examples:
        arguments = example.partition(" > ")[0].split()
        command.make_context(name, arguments, resilient_parsing=False)


def test_python_dash_m_runs_the_same_command():
    done = in_process("--version")
    assert (done.returncode, done.stdout) == (0, f"musebench, version {musebench.__version__}\n")


# -- mistakes -------------------------------------------------------------------------------------------


def test_unknown_command_gives_the_nearest():
    assert failed("compair") == "there is no command 'compair'; did you mean 'compare'?"


def test_unknown_option_is_one_line_that_names_the_help():
    line = failed("list", "--formt", "json")
    assert "'--formt'" in line
    assert line.endswith("see 'musebench list --help'")


def test_unknown_option_of_the_group_is_one_line():
    assert "'--verion'" in failed("--verion")


def test_missing_argument_is_one_line():
    assert "REPORT" in failed("compare")


def test_unknown_format_gives_the_nearest():
    assert failed("list", "--format", "jsn") == "there is no table format 'jsn'; did you mean 'json'?"


@pytest.mark.parametrize("kind", [UsageError, InputError, UnsupportedError])
def test_mistake_raised_by_a_command_is_one_line_and_ends_with_2(monkeypatch, kind):
    def body():
        raise kind("pool 'fixed' needs 9 rows;\n  lower --max-sessions")

    add_command(monkeypatch, body)
    assert failed("act") == "pool 'fixed' needs 9 rows; lower --max-sessions"


def test_fault_of_the_code_keeps_its_traceback(monkeypatch):
    def body():
        raise KeyError("a fault")

    add_command(monkeypatch, body)
    assert isinstance(run("act").exception, KeyError)


def test_exit_code_that_a_command_chooses_is_kept(monkeypatch):
    add_command(monkeypatch, lambda: click.get_current_context().exit(1))
    assert run("act").exit_code == 1


def test_interrupt_ends_with_130_and_one_line(monkeypatch):
    def body():
        raise KeyboardInterrupt

    add_command(monkeypatch, body)
    result = run("act")
    assert result.exit_code == 130
    assert result.stderr.split() == ["musebench:", "error:", "interrupted"]


def test_reader_that_goes_away_is_met_in_silence():
    read, write = os.pipe()
    os.close(read)
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-m", "musebench", "list"],
        stdout=write,
        stderr=subprocess.PIPE,
        env=environment,
        check=False,
    )
    os.close(write)
    assert done.stderr == b""


# -- rows -----------------------------------------------------------------------------------------------


def test_missing_value_is_null_in_json_empty_in_csv_and_a_dash_in_tables():
    rows = [{"a": None, "b": "1.10"}]
    assert json.loads(render(("a", "b"), rows, "json")) == rows
    assert render(("a", "b"), rows, "csv") == "a,b\n,1.10"
    assert render(("a", "b"), rows, "tsv").splitlines()[-1].split() == ["-", "1.10"]


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_shows_rows_and_takes_none(form):
    assert "seven" in render(("a",), [{"a": "seven"}], form)
    assert render(("a",), [], form) is not None


@pytest.mark.parametrize("columns", [80, 120])
def test_rows_fit_a_terminal_and_are_whole_in_a_pipe(monkeypatch, columns):
    words = [f"word{number}" for number in range(60)]
    rows = [
        {"what": "device", "state": "ok", "detail": " ".join(words)},
        {"what": "a", "state": "", "detail": "b"},
    ]
    whole = render(("what", "state", "detail"), rows, "simple")
    monkeypatch.setattr("musebench.cli.format.sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))
    wrapped = render(("what", "state", "detail"), rows, "simple")
    assert max(map(len, whole.splitlines())) > 300
    assert columns - 20 < max(map(len, wrapped.splitlines())) <= columns
    assert [word for word in wrapped.split() if word.startswith("word")] == words
