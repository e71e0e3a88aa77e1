"""Throw-away virtual environments that see the packages of the one that runs the tests.

Nothing is downloaded: what a plugin package needs is there already, and pip builds with what is there.
"""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import tomllib
import venv
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

TOP = Path(__file__).resolve().parents[2]

CLEARED = ("PYTHONPATH", "PYTHONHOME", "MUSEBENCH_STRICT_PLUGINS", "MUSEBENCH_TESTING")
"""Variables of whoever runs the tests that would reach into the environment."""

LEFT_BEHIND = shutil.ignore_patterns("build", "dist", "*.egg-info", "__pycache__", ".*_cache")


@dataclass(frozen=True)
class Package:
    """A folder with a pyproject.toml that makes an installable plugin."""

    folder: Path

    @cached_property
    def project(self) -> dict[str, Any]:
        project: dict[str, Any] = tomllib.loads((self.folder / "pyproject.toml").read_text())["project"]
        return project

    @property
    def name(self) -> str:
        return self.project["name"]

    @property
    def version(self) -> str:
        return self.project["version"]

    @property
    def modules(self) -> list[str]:
        """What its entry points name, without attributes."""
        entries = self.project["entry-points"]["musebench"].values()
        return [entry.partition(":")[0].partition(".")[0] for entry in entries]

    @property
    def installed_here(self) -> bool:
        """Whether whoever runs the tests has it installed beside musebench."""
        return any(True for _ in metadata.distributions(name=self.name))

    @property
    def missing(self) -> list[str]:
        """What it requires and is not installed here, or in another version."""
        wanted = [Requirement(text) for text in self.project.get("dependencies", [])]
        return [str(one) for one in wanted if (one.marker is None or one.marker.evaluate()) and not _met(one)]


def _met(requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(metadata.version(requirement.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return False


SAMPLE = Package(TOP / "tests" / "plugins_for_tests" / "sample")
"""The smallest there can be."""

PACKAGES = [*(Package(path.parent) for path in sorted((TOP / "plugins").glob("*/pyproject.toml"))), SAMPLE]


class Environment:
    """A virtual environment at `folder`: no pip, and everything importable that is so here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.EnvBuilder(with_pip=False, symlinks=os.name != "nt").create(folder)
        scripts = "Scripts" if os.name == "nt" else "bin"
        self.python = folder / scripts / "python"
        (target,) = folder.glob("Lib/site-packages" if os.name == "nt" else "lib/python*/site-packages")
        # The repository first: where musebench is installed from elsewhere, this one is meant.
        lines = [str(TOP), *(f"import site; site.addsitedir({path!r})" for path in _site_folders())]
        (target / "beside.pth").write_text("".join(f"{line}\n" for line in lines))

    def run(
        self, *arguments: str, cwd: Path | None = None, check: bool = True, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run its Python; a failure that is not expected shows what was printed."""
        kept = {name: value for name, value in os.environ.items() if name not in CLEARED}
        done = subprocess.run(
            [str(self.python), *arguments],
            cwd=cwd or self.folder,
            env={**kept, **variables},
            capture_output=True,
            text=True,
        )
        if check and done.returncode:
            raise AssertionError(
                f"{' '.join(arguments)} ended with {done.returncode}\n{done.stdout[-8000:]}\n"
                f"{done.stderr[-4000:]}"
            )
        return done

    def musebench(
        self, *arguments: str, check: bool = True, cwd: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "musebench", *arguments, check=check, cwd=cwd, **variables)

    def components(self, *kinds: str) -> list[dict[str, Any]]:
        """What `musebench list` says there is."""
        return [
            entry
            for kind in kinds or ("",)
            for entry in json.loads(self.musebench("list", *filter(None, [kind]), "--format", "json").stdout)
        ]

    def of(self, package: str) -> list[dict[str, Any]]:
        """The components that a package registered."""
        return [entry for entry in self.components() if entry["package"] == package]

    def install(self, *wheels: Path) -> None:
        self._pip("install", "--no-deps", "--no-index", *map(str, wheels))

    def uninstall(self, *names: str) -> None:
        self._pip("uninstall", "--yes", *names)

    def pytest(self, *arguments: str, root: Path) -> str:
        """Run tests of a repository at `root` here; what they printed."""
        return self.run(
            "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(root), *arguments, cwd=root
        ).stdout  # fmt: skip

    def _pip(self, *arguments: str) -> None:
        subprocess.run([*PIP, "--python", str(self.python), *arguments], check=True, capture_output=True)


PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


def build(folders: list[Path], target: Path) -> list[Path]:
    """Wheels of packages, built in `target` of copies of their folders, with the tools that are installed.

    In one run of pip, as starting it costs more than building.
    """
    copies = []
    for folder in folders:
        copies.append(target / f"{len(copies)}-{folder.name}")
        shutil.copytree(folder, copies[-1], ignore=LEFT_BEHIND)
    done = subprocess.run(
        [
            *PIP, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(target),
            *map(str, copies),
        ],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise AssertionError(f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    made = [
        next(target.glob(f"{package.name.replace('-', '_')}-{package.version}-*.whl"))
        for package in map(Package, copies)
    ]
    for copy in copies:
        shutil.rmtree(copy)
    return made


def write_package(folder: Path, name: str, source: str, version: str = "1.0") -> Path:
    """The folder of a package whose one module (hyphens as underscores) is `source`; it has `hookimpl`."""
    module = name.replace("-", "_")
    folder = folder / name
    folder.mkdir(parents=True)
    (folder / f"{module}.py").write_text(f"from musebench.plugin import hookimpl\n{source}")
    (folder / "pyproject.toml").write_text(
        "[build-system]\n"
        'requires = ["setuptools>=77"]\n'
        'build-backend = "setuptools.build_meta"\n'
        "[project]\n"
        f'name = "{name}"\nversion = "{version}"\ndependencies = ["musebench"]\n'
        "[project.entry-points.musebench]\n"
        f'{name} = "{module}"\n'
        "[tool.setuptools]\n"
        f'py-modules = ["{module}"]\n'
    )
    return folder


def _site_folders() -> list[str]:
    """Where packages are installed here."""
    own = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    return [path for path in own if Path(path).is_dir()]
