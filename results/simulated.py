"""The rows of the measured matrix on `sim:h200`."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from evidence import Measured, MissingReport

from musebench.core.errors import UnsupportedError
from musebench.plugin.registry import Registry

sys.path.append(str(Path(__file__).resolve().parent / "baselines" / "simulation"))

from own_runs import simulated


@cache
def _registry() -> Registry:
    return Registry.installed()


def simulated_row(row: Measured) -> Measured:
    """The row's first report, simulated.

    Raises:
        MissingReport: it ran weights of a file, or a dtype, that a simulated device does not know.
    """
    if not row.first.conditions.model.source.startswith("random:"):
        raise MissingReport
    try:
        return Measured((simulated(row.first, _registry()),))
    except UnsupportedError as error:
        raise MissingReport from error
