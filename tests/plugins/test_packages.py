"""Every package in plugins/ is built, installed where nothing else is, tested there and taken away."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from environment import PACKAGES, SAMPLE, TOP, Package


def test_a_package_is_listed_with_its_version_until_it_is_uninstalled(package, wheels, fresh):
    assert not fresh.of(package.name)
    fresh.install(wheels[package.name])
    found = fresh.of(package.name)
    assert found
    assert {entry["version"] for entry in found} == {package.version}
    assert all(entry["summary"] for entry in found if entry["kind"] != "command")
    fresh.uninstall(package.name)
    assert not fresh.of(package.name)


def test_a_package_passes_its_own_tests_where_nothing_else_is_installed(package, wheels, fresh):
    if package == SAMPLE:
        pytest.skip("it has none")
    if package.missing:
        pytest.skip(f"it needs {', '.join(package.missing)}, not installed here")
    fresh.install(wheels[package.name])
    printed = fresh.pytest("tests", root=package.folder)
    assert re.search(r"\d+ passed", printed), printed


def test_all_packages_together_leave_no_warning_and_no_name_in_doubt(everything):
    for command in (["list"], ["--help"]):
        assert everything.musebench(*command, MUSEBENCH_STRICT_PLUGINS="1").stderr == ""


def test_a_package_says_what_it_is(package):
    project = package.project
    assert project["description"]
    assert "musebench" in [re.split(r"[^\w.-]", text)[0] for text in project["dependencies"]]
    if package == SAMPLE:
        return
    assert package.folder.name == package.name
    assert project["license"] == "Apache-2.0"
    assert (package.folder / "README.md").read_text().startswith(f"# {package.name}\n")
    assert list((package.folder / "tests").glob("test_*.py"))


def imports(source: str) -> Iterator[str]:
    """Full names of everything that a file imports, inside functions too; relative ones left out."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def private_or_foreign(name: str, package: Package, others: set[str]) -> bool:
    root, *rest = name.split(".")
    if root == "musebench":
        return any(part.startswith("_") and part != "__version__" for part in rest)
    return root in others - set(package.modules)


def test_a_package_imports_nothing_private_and_no_other_package(package):
    others = {module for one in PACKAGES for module in one.modules}
    wrong = [
        f"{path.relative_to(TOP)} imports {name}"
        for path in sorted(package.folder.rglob("*.py"))
        for name in imports(path.read_text())
        if private_or_foreign(name, package, others)
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("musebench.core.plan.StepPlan", False),
        ("musebench.__version__", False),
        ("musebench.core._plan.StepPlan", True),
        ("musebench.run._measure", True),
        ("one_of_mine.part", False),
        ("one_of_another", True),
        ("numpy", False),
    ],
)
def test_the_rule_of_imports_knows_right_from_wrong(tmp_path, name, wrong):
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "mine"\n[project.entry-points.musebench]\nx = "one_of_mine.plugin"\n'
    )
    assert private_or_foreign(name, Package(tmp_path), {"one_of_mine", "one_of_another"}) is wrong


ASKS = re.compile(r"Registry\.installed|REGISTRY|CliRunner|\"-m\", \"musebench\"")
"""How a test of the core comes to what is installed: through the registry, or a command."""

LONG = {
    "accept", "check_command", "chrome_trace", "conformance_executors", "conformance_pools",
    "conformance_schedulers", "exported_refusals", "exported_tokens", "failing_plugins", "faults", "gate",
    "matrix_resume", "plots", "profiler", "sim_run", "sim_stretches", "smollm2", "tokens", "turns",
}  # fmt: skip
"""Of those, the ones of a quarter of a minute and more, left out for CI's time: they name the components that
they try, or try every executor, of which plugins/ has none. All run where none of the packages is."""

ALSO = ("test_layers.py", "test_documents.py::test_every_output_shown_is_what_its_command_prints_now")
"""What starts commands in other ways."""


def modules_that_ask() -> list[str]:
    return [
        str(path)
        for path in sorted((TOP / "tests").glob("test_*.py"))
        if ASKS.search(path.read_text()) and path.stem.removeprefix("test_") not in LONG
    ]


def test_what_is_left_out_is_there():
    assert all((TOP / "tests" / f"test_{name}.py").exists() for name in LONG)


@pytest.mark.parametrize("half", [0, 1])
def test_the_core_passes_its_tests_with_all_packages_installed(half, everything):
    """In two halves, so that two processes can share them."""
    chosen = (modules_that_ask() + [str(TOP / "tests" / test) for test in ALSO])[half::2]
    printed = everything.pytest(*chosen, root=TOP)
    assert re.search(r"\d+ passed", printed), printed


def test_a_run_with_all_packages_installed_is_right(everything, tmp_path):
    printed = everything.musebench("run", "capitals", "--out", str(tmp_path / "report.json")).stdout
    assert "VALID" in printed.splitlines()
