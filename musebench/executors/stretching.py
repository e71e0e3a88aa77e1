"""Handing a stretch to a backend that takes one."""

from __future__ import annotations

from musebench.core.protocols import Backend
from musebench.core.stretch import Stretch, Stretching, StretchOutput


def launch(backend: Backend | Stretching, stretch: Stretch) -> StretchOutput | None:
    """None where the backend runs steps one by one, as every real device does."""
    launcher = getattr(backend, "stretch", None)
    return None if launcher is None else launcher(stretch)
