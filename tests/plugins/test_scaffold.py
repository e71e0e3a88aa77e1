"""What `musebench new-plugin` makes is built, installed and tested as it is, for each kind."""

from __future__ import annotations

import re
import tomllib

import pytest
import yaml
from click.testing import CliRunner
from environment import SAMPLE

from musebench.cli import root
from musebench.plugin.scaffold import SKETCHES

NAMES = {kind: f"made-{kind}" for kind in SKETCHES}


def new(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(root, ["new-plugin", *arguments])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a package of each kind."""
    folder = tmp_path_factory.mktemp("made")
    for kind, name in NAMES.items():
        new(kind, name, "--out", str(folder))
    return folder


@pytest.fixture(scope="module")
def installed(made, install):
    """All of them in one environment."""
    return install(*(made / f"musebench-{name}" for name in NAMES.values()))


@pytest.mark.parametrize("kind", NAMES)
def test_a_new_package_installs_and_passes_its_tests(kind, made, installed):
    name = NAMES[kind]
    (entry,) = installed.of(f"musebench-{name}")
    assert (entry["kind"], entry["name"], entry["version"]) == (kind, name, "0.1.0")
    printed = installed.pytest("tests", root=made / f"musebench-{name}")
    assert re.search(r"\d+ passed", printed), printed


def test_new_packages_leave_no_warning(installed):
    assert installed.musebench("list", MUSEBENCH_STRICT_PLUGINS="1").stderr == ""


@pytest.mark.parametrize("kind", NAMES)
def test_a_new_package_has_all_that_a_package_has(kind, made):
    folder = made / f"musebench-{NAMES[kind]}"
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == folder.name
    assert project["license"] == "Apache-2.0"
    assert "Apache License" in (folder / "LICENSE").read_text()
    assert (folder / "README.md").read_text().startswith(f"# {folder.name}\n")
    (job,) = yaml.safe_load((folder / ".github" / "workflows" / "test.yml").read_text())["jobs"].values()
    assert {"run": "pytest"} in job["steps"]
    assert not [
        path
        for path in folder.rglob("*")
        if path.is_file() and "{" + "{ " in path.read_text() and path.suffix != ".yml"
    ]


def test_the_files_are_printed_as_they_are_made(tmp_path):
    printed = new("pool", "some-pool", "--out", str(tmp_path)).splitlines()
    folder = tmp_path / "musebench-some-pool"
    assert printed == sorted(str(path) for path in folder.rglob("*") if path.is_file())


MISTAKES = {
    "taken": (("pool", "fixed"), r"there is a pool 'fixed', of musebench \S+; choose another name"),
    "capital": (("pool", "Mine"), "pool 'Mine' is no name; a lowercase letter"),
    "digit": (("pool", "2d"), "pool '2d' is no name; a lowercase letter"),
    "path": (("pool", "../x"), "is no name"),
    "underscore": (("trace", "a_b"), "is no name"),
    "newline": (("trace", "a\n"), "is no name"),
    "prefix": (("check", "musebench-mine"), "the package is named musebench-NAME by itself"),
    "kind": (("backend", "mine"), "'backend' is not one of"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line_and_makes_nothing(tmp_path, case):
    arguments, line = MISTAKES[case]
    error = new(*arguments, "--out", str(tmp_path), code=2)
    assert len(error.splitlines()) == 1
    assert re.search(line, error)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_there_is_left_alone(tmp_path):
    (tmp_path / "musebench-mine").mkdir()
    error = new("pool", "mine", "--out", str(tmp_path), code=2)
    assert "musebench-mine is there already" in error
    assert not list((tmp_path / "musebench-mine").iterdir())


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    error = new("pool", "mine", "--out", str(tmp_path / "file"), code=2)
    assert error.startswith("musebench: error: ")
    assert "cannot write it" in error


def test_the_name_of_an_installed_package_is_refused(install, tmp_path):
    environment = install(SAMPLE.folder)
    done = environment.musebench("new-plugin", "check", "sample", "--out", str(tmp_path), check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "musebench: error: a package 'musebench-sample' is installed; choose another name\n"
    )
