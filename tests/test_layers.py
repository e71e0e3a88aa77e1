"""Imports go downward only, and what should start fast imports nothing heavy."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "musebench"

LAYERS = (
    ("cli",),
    ("pytest_plugin",),
    ("testing",),
    ("capacity", "gate", "neighbours", "accept", "peers"),
    ("run", "matrix", "export"),
    ("keeping", "checks"),
    ("report",),
    ("plugin",),
    ("schedulers", "routers", "pools", "executors", "backends", "models", "workload", "measure"),
    ("kernels", "programs"),
    ("core",),
)
"""Top to bottom. A module imports its own part and the layers below, and no neighbour in its layer."""

RANK = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}
ALLOWED_NEIGHBOURS = {
    ("backends", "models.source"),
    ("workload", "models.source"),
    ("backends", "measure.memory"),
    ("models", "measure.memory"),
    ("backends", "measure.nvml"),
    ("backends", "measure.ceilings"),
}
"""Part and module: the types of an opened model, which hold no code of a model source, the readers of memory,
which a backend asks about its own device and a load about its own peak, and a device's copy bandwidth, which
a profile and a floor must not measure in two ways."""

TORCH_FREE = ("core", "plugin", "cli", "checks", "schedulers", "routers", "pools", "executors", "programs")
HEAVY = ("torch", "transformers", "triton")


def part_of(file: Path) -> str:
    """The part of musebench that a file belongs to; `__main__` and the package itself are outside of it."""
    name = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "cli" if name == "__main__" else name


def imported_modules(source: str, module: str) -> Iterator[tuple[int, str]]:
    """Line and full name of every import in a file, inside functions too; relative ones resolved."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".")[: -node.level] if node.level else []
            full = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{full}.{alias.name}") for alias in node.names)


def module_name(file: Path) -> str:
    """As an import would name it; of a package, the name of its `__init__`."""
    return ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)


def wrong_direction(part: str, imported: str) -> bool:
    """Whether a module of `part` may not import `imported`, a full name."""
    root, _, rest = imported.partition(".")
    target = rest.split(".")[0]
    if root != PACKAGE.name or target not in RANK or target == part:
        return False
    if RANK[target] > RANK[part]:
        return False
    return not any(
        part == importer and f"{rest}.".startswith(f"{module}.") for importer, module in ALLOWED_NEIGHBOURS
    )


SOURCES = sorted(file for file in PACKAGE.rglob("*.py") if file != PACKAGE / "__init__.py")


def test_every_part_has_its_layer():
    assert {part_of(file) for file in SOURCES} <= set(RANK)


def test_imports_go_downward_only():
    wrong = [
        f"{file.relative_to(PACKAGE.parent)}:{line} imports {imported}"
        for file in SOURCES
        for line, imported in imported_modules(file.read_text(), module_name(file))
        if wrong_direction(part_of(file), imported)
    ]
    assert not wrong


def test_torch_free_parts_import_no_heavy_package_anywhere():
    wrong = [
        f"{file.relative_to(PACKAGE.parent)}:{line} imports {imported}"
        for file in SOURCES
        if part_of(file) in TORCH_FREE
        for line, imported in imported_modules(file.read_text(), module_name(file))
        if imported.split(".")[0] in HEAVY
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("part", "imported", "wrong"),
    [
        ("core", "musebench.plugin.registry", True),
        ("core", "musebench.core.plan", False),
        ("plugin", "musebench.report.table", True),
        ("report", "musebench.plugin.registry", False),
        ("pools", "musebench.schedulers.solo", True),
        ("backends", "musebench.models.source.Model", False),
        ("backends", "musebench.models.gguf", True),
        ("backends", "musebench.models.sources_of_trouble", True),
        ("backends", "musebench.kernels.op", False),
        ("kernels", "musebench.backends.torch_backend", True),
        ("cli", "musebench.run.measure", False),
        ("run", "musebench.cli.group", True),
        ("core", "numpy", False),
        ("core", "musebench.__version__", False),
    ],
)
def test_the_rule_itself_knows_up_from_down(part, imported, wrong):
    assert wrong_direction(part, imported) is wrong


def test_the_rule_reads_every_form_of_import():
    source = "import a.b\nfrom c import d\nfrom . import e\nfrom ..f.g import h\ndef late():\n    import i\n"
    found = [name for _, name in imported_modules(source, "musebench.core.plan")]
    assert sorted(found) == ["a.b", "c.d", "i", "musebench.core.e", "musebench.f.g.h"]


def modules_after(code: str) -> set[str]:
    """Top-level packages that are imported after `code` ran in an interpreter of its own."""
    report = "import json, sys; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"],
        capture_output=True,
        text=True,
        check=True,
        cwd=PACKAGE.parent,
    )
    modules: list[str] = json.loads(done.stdout.splitlines()[-1])
    return set(modules)


def after_command(*arguments: str) -> set[str]:
    return modules_after(
        f"from musebench.cli import root\n"
        f"try: root.main({list(arguments)!r}, prog_name='musebench')\n"
        f"except SystemExit as ended: assert not ended.code, ended.code"
    )


def test_core_imports_nothing_heavy():
    modules = [module_name(file).removesuffix(".__init__") for file in SOURCES if part_of(file) == "core"]
    loaded = modules_after("\n".join(f"import {module}" for module in modules))
    assert not loaded.intersection(HEAVY)


@pytest.mark.parametrize(
    "arguments",
    [
        "--help",
        "--version",
        "compare --help",
        "doctor --help",
        "plot --help",
        "trace --help",
        "check --help",
        "conformance --help",
        "accept --help",
    ],
)
def test_help_imports_nothing_heavy_and_no_numpy(arguments):
    assert not after_command(*arguments.split()).intersection([*HEAVY, "numpy"])


@pytest.mark.parametrize("arguments", [["list"], ["list", "backend", "--format", "json"]])
def test_list_imports_nothing_heavy(arguments):
    assert not after_command(*arguments).intersection(HEAVY)
