"""Whole engines: requests in, records out.

A peer brings its own scheduler, pool and executor; musebench hands it requests as they arrive, and keeps
what it says became of them (`musebench.core.service.Service`). Steps, cells and rows are its own business: a
report holds none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from musebench.core.protocols import MemorySnapshot
from musebench.core.service import Service

BUILT_IN = "musebench"
"""The engine that is put together from an executor, a pool and a scheduler."""

LIMITS = ("max_sessions", "max_context", "token_budget")
"""Limits of a run that a peer may take."""


@dataclass(frozen=True, slots=True)
class PeerSetting:
    """What a peer is made for. `model` is the opened model (musebench.models.source.Model) of one that runs
    weights handed to it, else a `RemoteModel`; `device`, `dtype` and `seed` are the run's.

    The limits are None where the peer does not take them: most sequences at a time, most tokens of one, most
    tokens of a step.
    """

    model: Any
    device: str
    dtype: str
    seed: int
    max_sessions: int | None = None
    max_context: int | None = None
    token_budget: int | None = None


@runtime_checkable
class Peer(Protocol):
    """One engine, opened. Its factory has two attributes that are looked at before it is called:

    `HAS_WEIGHTS` (bool): False when musebench opens `--model` for it. True when the model is its own, here or
    elsewhere; the factory then has `remote_model(options, text)` -> `musebench.models.source.RemoteModel`.
    `TAKES`: names out of `LIMITS`; a limit that a person gives and the peer does not take is refused.
    """

    HAS_WEIGHTS: ClassVar[bool]
    TAKES: ClassVar[tuple[str, ...]]

    def prepare(self) -> Mapping[str, float]:
        """One-off work before the first request; seconds by name."""

    def serve(self, service: Service) -> None:
        """Serve until `service.over`. A request that fails ends with its reason and the others go on; what
        this raises ends the run, with everything that was told before it in the report."""

    def counters(self) -> Mapping[str, int | float]:
        """Monotonic counts for the report, as an executor's."""

    def memory(self) -> MemorySnapshot: ...

    def reset_peak(self) -> None: ...

    def conditions(self) -> Mapping[str, Any]:
        """What a number measured here depends on, as a backend's: `device`, `driver`, versions. JSON values,
        no secret among them."""

    def close(self) -> None:
        """Free everything; safe to call twice."""
