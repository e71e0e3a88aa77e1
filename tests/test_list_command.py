"""`musebench list` and `musebench doctor`: what is installed, and packages that are broken."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from pathlib import Path

import pytest
from commands import failed, in_process, run
from plugins_for_tests.install import install_folder, install_source
from report_examples import report

from musebench.plugin.hookspecs import KINDS
from musebench.plugin.registry import Registry
from musebench.report import files
from musebench.report.table import FORMATS

PACKAGES = Path(__file__).parent / "plugins_for_tests"


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
