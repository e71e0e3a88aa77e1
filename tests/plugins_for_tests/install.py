"""Lays a plugin package out as an installer would, without running one: modules and metadata."""

from __future__ import annotations

import tomllib
from pathlib import Path

PREAMBLE = "from musebench.plugin import hookimpl\n"


def install_folder(folder: Path, target: Path) -> None:
    """Install the package of `folder`, with what its pyproject.toml says, into `target`."""
    facts = tomllib.loads((folder / "pyproject.toml").read_text())
    project = facts["project"]
    for module in facts["tool"]["setuptools"]["py-modules"]:
        (target / f"{module}.py").write_text((folder / f"{module}.py").read_text())
    _write_metadata(target, project["name"], project["version"], project["entry-points"]["musebench"])


def install_source(target: Path, name: str, source: str, version: str = "1.0") -> None:
    """Install a package `name` whose one module (hyphens as underscores) is `source`; it has `hookimpl`."""
    module = name.replace("-", "_")
    (target / f"{module}.py").write_text(PREAMBLE + source)
    _write_metadata(target, name, version, {"plugin": module})


def _write_metadata(target: Path, name: str, version: str, entry_points: dict[str, str]) -> None:
    folder = target / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"{entry} = {module}" for entry, module in entry_points.items()]
    (folder / "entry_points.txt").write_text("\n".join(["[musebench]", *lines, ""]))
