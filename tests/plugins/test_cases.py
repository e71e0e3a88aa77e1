"""Faults that people met elsewhere, on packages that pip installed. The numbers are those of the cases."""

from __future__ import annotations

import json

import pytest
from environment import write_package

BROKEN = "import no_such_module_at_all\n"
WARNING = (
    "musebench: warning: plugin broken-package 2.5 is left out: "
    "ModuleNotFoundError: No module named 'no_such_module_at_all'"
)

EVERY_COMMAND = """
import json
from click.testing import CliRunner
from musebench.cli import root
from musebench.plugin.registry import Registry
print(json.dumps({
    command.name: [(made := CliRunner().invoke(root, [command.name, "--help"])).exit_code, made.stderr]
    for command in Registry.installed().components("command")
}))
"""


@pytest.fixture(scope="module")
def with_broken(install, tmp_path_factory):
    """An environment where one package fails at import (case 23), and another works."""
    folder = tmp_path_factory.mktemp("sources")
    working = "@hookimpl\ndef register_pools(register): register('works', dict, summary='none')\n"
    return install(
        write_package(folder, "broken-package", BROKEN, version="2.5"),
        write_package(folder, "working-package", working),
    )


def test_23_every_command_works_beside_a_package_that_fails_at_import_with_one_warning(with_broken):
    found = json.loads(with_broken.run("-c", EVERY_COMMAND).stdout)
    assert {"run", "list", "compare", "check", "matrix"} <= found.keys()
    assert found == {name: [0, WARNING + "\n"] for name in found}


def test_23_a_run_is_made_and_the_other_package_is_there(with_broken, tmp_path):
    run = with_broken.musebench(
        "run", "mixed-small", "--device", "sim:h200", "--model", "llama-3.2-1b", "--out",
        str(tmp_path / "report.json"),
    )  # fmt: skip
    assert "VALID" in run.stdout.splitlines()
    assert run.stderr.splitlines().count(WARNING) == 1
    assert [entry["name"] for entry in with_broken.of("working-package")] == ["works"]


def test_23_strict_mode_raises_with_the_traceback(with_broken):
    done = with_broken.musebench("list", check=False, MUSEBENCH_STRICT_PLUGINS="1")
    assert done.returncode == 1
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert "PluginFailed" in last
    assert "broken-package 2.5" in last
    assert "broken_package.py" in done.stderr


def test_24_a_name_of_two_packages_is_an_error_naming_both_for_that_name_only(install, tmp_path):
    source = (
        "from musebench.schedulers.solo import SoloScheduler as Solo\n"
        "@hookimpl\n"
        "def register_schedulers(register):\n"
        "    register('twin', Solo, summary='claimed twice')\n"
        "    register('only-NAME', Solo, summary='claimed once')\n"
    )
    folders = [write_package(tmp_path, name, source.replace("NAME", name)) for name in ("alpha", "beta")]
    environment = install(*folders)

    def run(scheduler: str):
        return environment.musebench(
            "run", "mixed-small", "--device", "sim:h200", "--model", "llama-3.2-1b", "--scheduler", scheduler,
            "--out", str(tmp_path / f"{scheduler}.json"), check=False,
        )  # fmt: skip

    conflict = "scheduler 'twin' is registered by alpha 1.0 and beta 1.0; uninstall all but one of them\n"
    refused = run("twin")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == f"musebench: error: {conflict}"
    for name in ("only-alpha", "only-beta", "chunked"):
        assert run(name).returncode == 0
    listed = environment.musebench("list", "scheduler", "--format", "json")
    names = {entry["name"] for entry in json.loads(listed.stdout)}
    assert {"only-alpha", "only-beta", "chunked"} <= names
    assert "twin" not in names
    assert listed.stderr == f"musebench: warning: {conflict}"
    environment.uninstall("beta")
    assert run("twin").returncode == 0


def test_a_package_that_wants_newer_hooks_is_refused_by_name(install, tmp_path):
    source = (
        "musebench_hook_version = 99\n"
        "@hookimpl\ndef register_pools(register): register('future', dict, summary='none')\n"
    )
    environment = install(write_package(tmp_path, "from-the-future", source, version="7.1"))
    done = environment.musebench("list", "pool")
    assert "future" not in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        "musebench: warning: plugin from-the-future 7.1 is left out: it wants hook version 99 "
    )
    assert line.endswith("; upgrade musebench")
