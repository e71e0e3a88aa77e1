"""The command line: help, list, doctor, compare, and how every mistake ends."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner, Result
from plugins_for_tests.install import install_folder, install_source
from report_examples import report

import musebench
from musebench.cli import root
from musebench.cli.format import render
from musebench.core.errors import InputError, UnsupportedError, UsageError
from musebench.plugin.hookspecs import KINDS
from musebench.plugin.registry import Registry
from musebench.report import files
from musebench.report.table import FORMATS

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGES = Path(__file__).parent / "plugins_for_tests"
BUILT_IN_COMMANDS = [component.name for component in Registry.installed().components("command")]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(root, list(arguments), prog_name="musebench")


def failed(*arguments: str) -> str:
    """The one line on standard error of a command that ends with 2 and shows nothing else."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("musebench: error: ")
    return line.removeprefix("musebench: error: ")


def in_process(*arguments: str, path: Path | None = None, **options) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "MUSEBENCH_STRICT_PLUGINS"}
    environment["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), *([str(path)] if path else [])])
    environment |= options.pop("environment", {})
    command = [sys.executable, "-m", "musebench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, **options)


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


# -- list -----------------------------------------------------------------------------------------------


def listed(*arguments: str) -> list[dict]:
    return json.loads(run("list", *arguments, "--format", "json").stdout)


def test_list_shows_every_component_of_every_kind():
    registry = Registry.installed()
    expected = [(kind, component.name) for kind in KINDS for component in registry.components(kind)]
    assert [(entry["kind"], entry["name"]) for entry in listed()] == expected


def test_list_of_one_kind_shows_that_kind_only():
    assert {entry["kind"] for entry in listed("scheduler")} == {"scheduler"}


def test_list_of_an_unknown_kind_gives_the_nearest():
    assert failed("list", "pools") == "there is no kind of component 'pools'; did you mean 'pool'?"


def test_list_of_a_kind_without_components_is_empty_in_every_format(monkeypatch):
    monkeypatch.setattr(Registry, "components", lambda registry, kind: [])
    assert listed("workload") == []
    for form in FORMATS:
        assert run("list", "workload", "--format", form).exit_code == 0


@pytest.fixture
def sample(tmp_path, monkeypatch):
    """The sample plugin package, installed for one test."""
    install_folder(PACKAGES / "sample", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("MUSEBENCH_STRICT_PLUGINS", raising=False)
    yield
    sys.modules.pop("musebench_sample", None)


@pytest.mark.usefixtures("sample")
def test_list_shows_a_plugins_component_with_options_package_and_version():
    (entry,) = [entry for entry in listed("pool") if entry["package"] == "musebench-sample"]
    assert (entry["name"], entry["version"], entry["summary"]) == ("sample", "1.10", "a pool for the tests")
    assert entry["options"] == [
        {
            "name": "rows",
            "type": "whole number",
            "default": 8,
            "unit": None,
            "help": "how many rows there are",
        },
        {
            "name": "strict",
            "type": "true or false",
            "default": False,
            "unit": None,
            "help": "refuse what others allow",
        },
    ]


@pytest.mark.usefixtures("sample")
def test_list_as_csv_has_a_row_for_each_component_and_each_option():
    rows = list(csv.DictReader(io.StringIO(run("list", "pool", "--format", "csv").stdout)))
    mine = [row for row in rows if row["package"] == "musebench-sample"]
    assert [(row["option"], row["default"]) for row in mine] == [("", ""), ("rows", "8"), ("strict", "false")]
    assert {row["version"] for row in mine} == {"1.10"}


@pytest.mark.usefixtures("sample")
@pytest.mark.parametrize("form", FORMATS)
def test_list_takes_every_format(form):
    result = run("list", "pool", "--format", form)
    assert result.exit_code == 0
    assert "1.10" in result.stdout


@pytest.mark.usefixtures("sample")
def test_command_of_a_plugin_runs_and_is_in_the_help():
    assert run("greet").stdout == "hello from a plugin\n"
    assert re.search(r"^  greet +Say hello\.", run("--help").stdout, re.M)


def test_list_says_which_component_cannot_be_loaded_and_shows_the_others(monkeypatch, tmp_path):
    source = '@hookimpl\ndef register_pools(register): register("lost", "no_such:Pool", "no_such:Options")'
    install_source(tmp_path, "alpha", source)
    monkeypatch.syspath_prepend(tmp_path)
    result = run("list", "pool", "--format", "plain")
    sys.modules.pop("alpha", None)
    assert result.exit_code == 0
    assert "lost" in result.stdout
    assert "geometric" in result.stdout
    assert "musebench: warning: pool 'lost' of alpha 1.0 cannot be imported" in result.stderr


# -- broken packages, in a process of their own -----------------------------------------------------------


def test_broken_package_is_one_warning_and_every_command_works(tmp_path):
    install_source(tmp_path, "broken-package", "raise RuntimeError('broken')")
    (tmp_path / "one.json").write_bytes(files.dumps(report()))
    warning = "musebench: warning: plugin broken-package 1.0 is left out: RuntimeError: broken"
    for arguments in (["--help"], ["list"], ["compare", "one.json"]):
        done = in_process(*arguments, path=tmp_path, cwd=tmp_path)
        assert done.returncode == 0
        assert done.stderr.splitlines() == [warning]


def test_broken_package_raises_in_strict_mode_with_its_traceback(tmp_path):
    install_source(tmp_path, "broken-package", "raise RuntimeError('broken')")
    done = in_process("list", path=tmp_path, environment={"MUSEBENCH_STRICT_PLUGINS": "1"})
    assert done.returncode == 1
    assert "broken_package.py" in done.stderr
    assert "plugin broken-package 1.0 is left out" in done.stderr.splitlines()[-1]


def test_name_of_two_packages_is_told_by_list_and_hurts_no_other(tmp_path):
    for package in ("alpha", "beta"):
        source = '@hookimpl\ndef register_pools(register):\n    register("twin", dict)\n'
        install_source(tmp_path, package, source)
    done = in_process("list", "pool", path=tmp_path)
    assert done.returncode == 0
    assert "geometric" in done.stdout
    assert done.stderr.splitlines()[-1] == (
        "musebench: warning: pool 'twin' is registered by alpha 1.0 and beta 1.0; uninstall "
        "all but one of them"
    )


# -- compare --------------------------------------------------------------------------------------------


@pytest.fixture
def reports(tmp_path, monkeypatch) -> Path:
    """A folder, made the current one, with the same report as one.json, two.json and base.json.gz."""
    monkeypatch.chdir(tmp_path)
    for name in ("one.json", "two.json", "base.json.gz"):
        files.write(dataclasses.replace(report(), id=name), tmp_path / name)
    return tmp_path


def compared(*arguments: str) -> dict:
    result = run("compare", *arguments, "--format", "json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.usefixtures("reports")
def test_first_report_is_the_baseline_unless_another_is_named():
    assert compared("one.json", "two.json")["baseline"] == "one"
    assert compared("one.json", "two.json", "--baseline", "two.json")["baseline"] == "two"


@pytest.mark.usefixtures("reports")
def test_baseline_that_is_none_of_the_reports_becomes_a_column():
    made = compared("one.json", "two.json", "--baseline", "base.json.gz")
    assert made["baseline"] == "base"
    assert list(made["verdicts"]) == ["base", "one", "two"]


@pytest.mark.usefixtures("reports")
@pytest.mark.parametrize("form", ["github", "plain", "csv", "html"])
def test_comparison_is_shown_in_the_format_asked_for(form):
    result = run("compare", "one.json", "two.json", "--format", form)
    assert result.exit_code == 0
    assert "two" in result.stdout


@pytest.mark.usefixtures("reports")
def test_missing_baseline_says_how_to_make_one_and_ends_well():
    result = run("compare", "one.json", "--baseline", "gone.json")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "there is no baseline at gone.json" in result.stderr
    assert "to make one" in result.stderr


@pytest.mark.usefixtures("reports")
def test_missing_baseline_that_is_required_fails():
    line = failed("compare", "one.json", "--baseline", "gone.json", "--require-baseline")
    assert "there is no baseline at gone.json" in line


@pytest.mark.usefixtures("reports")
def test_required_baseline_without_a_name_fails():
    assert "--require-baseline needs --baseline" in failed("compare", "one.json", "--require-baseline")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", None])
def test_report_that_cannot_be_read_is_refused_by_name(reports, content):
    if content is not None:
        (reports / "bad.json").write_bytes(content)
    assert "bad.json" in failed("compare", "one.json", "bad.json")


def test_compare_imports_no_torch(reports):
    code = (
        "import sys\nfrom musebench.cli import root\n"
        "try: root.main(['compare', 'one.json'], prog_name='musebench')\n"
        "except SystemExit as ended: assert not ended.code\n"
        "assert not {'torch', 'transformers', 'triton'} & set(sys.modules)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-c", code], cwd=reports, env=environment, check=True)


# -- doctor ---------------------------------------------------------------------------------------------


def test_doctor_prints_a_row_for_each_fact(monkeypatch):
    from musebench.measure import doctor

    facts = [doctor.Fact("device cuda", "missing", "no | device"), doctor.Fact("torch", "ok", "1.10")]
    monkeypatch.setattr(doctor, "diagnose", lambda: facts)
    rows = json.loads(run("doctor", "--format", "json").stdout)
    assert rows[:2] == [dict(zip(("what", "state", "detail"), fact.row, strict=True)) for fact in facts]
    assert rows[2]["what"] == "plugin"
    assert "no \\| device" in run("doctor").stdout
    assert run("doctor").exit_code == 0


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
