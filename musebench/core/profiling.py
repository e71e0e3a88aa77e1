"""The seam between a run and what records the work that a backend launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Activity:
    """One kernel, copy or operation: `start` and `seconds` on the run's clock, in a `lane` (a stream of the
    device, a thread of the host) where nothing overlaps that is not nested."""

    name: str
    lane: str
    start: float
    seconds: float
    details: Mapping[str, Any] = field(default_factory=dict)


class Profiler(Protocol):
    """Records activities from `start` to `stop`, which may be called again. `mark` reads the run's clock
    (`now`, seconds) and ties the recorder's own to it, so one mark at least is needed."""

    def start(self) -> None: ...

    def mark(self, now: Callable[[], float]) -> None: ...

    def stop(self) -> None: ...

    def activities(self) -> list[Activity]:
        """What was recorded, by start; empty without a mark."""
