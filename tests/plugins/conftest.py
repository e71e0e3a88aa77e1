"""Environments for a test, and the wheels of the packages in plugins/, built once."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
from environment import PACKAGES, SAMPLE, Environment, Package, build


@pytest.fixture(scope="session")
def wheels(tmp_path_factory) -> dict[str, Path]:
    """By the package's name: its wheel."""
    _need_pip()
    made = build([package.folder for package in PACKAGES], tmp_path_factory.mktemp("wheels"))
    return {package.name: wheel for package, wheel in zip(PACKAGES, made, strict=True)}


@pytest.fixture(scope="session")
def everything(wheels, tmp_path_factory) -> Environment:
    """All packages of plugins/ installed. For reading: whoever changes it takes one of his own."""
    environment = Environment(tmp_path_factory.mktemp("everything") / "venv")
    if len(wheels) > 1:
        environment.install(*(wheel for name, wheel in wheels.items() if name != SAMPLE.name))
    return environment


@pytest.fixture
def fresh(tmp_path_factory) -> Environment:
    """Nothing but what is here."""
    return Environment(tmp_path_factory.mktemp("fresh") / "venv")


@pytest.fixture(scope="session")
def install(tmp_path_factory) -> Callable[..., Environment]:
    """A function that builds the packages of folders and installs them into an environment of their own."""

    def built_and_installed(*folders: Path) -> Environment:
        _need_pip()
        environment = Environment(tmp_path_factory.mktemp("own") / "venv")
        if folders:
            environment.install(*build(list(folders), tmp_path_factory.mktemp("built")))
        return environment

    return built_and_installed


@pytest.fixture(params=PACKAGES, ids=lambda package: package.name)
def package(request) -> Package:
    """Each package in turn."""
    made: Package = request.param
    if made.installed_here:
        pytest.skip(f"{made.name} is installed beside musebench already: pip uninstall it to test it")
    return made


def _need_pip() -> None:
    # By its metadata: looking the module up would tell setuptools to leave the standard library's distutils
    # in place, and then nothing could be compiled in this process any more.
    if not any(metadata.distributions(name="pip")):
        pytest.skip("packages are installed by pip, which this environment does not have")
