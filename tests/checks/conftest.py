"""Two honest reports of the same requests, and a registry that has planted faults beside all else."""

from __future__ import annotations

import pytest
from planted import Plugin

import musebench
from musebench.plugin import builtin
from musebench.plugin.registry import Registry
from musebench.run import RunOptions, run


@pytest.fixture(scope="session")
def registry():
    made = Registry(strict=True)
    made.add(builtin, "musebench", musebench.__version__)
    made.add(Plugin(), "faults", "1")
    return made


@pytest.fixture(scope="session")
def honest(registry):
    return run(RunOptions("capitals", reference="transformers", margins=True, repeat=2), registry)


@pytest.fixture(scope="session")
def alone(registry):
    """The same requests one at a time: other batch shapes."""
    return run(RunOptions("capitals", scheduler="solo", margins=True, repeat=2), registry)
