"""What a run is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from musebench.core.errors import UsageError
from musebench.core.options import nearest

ON_OOM = ("fail", "shrink")
"""After an out-of-memory: the step's requests fail, or the step is tried again with half of it."""


MOST_SEED = 2**63 - 1
MOST_REPLICAS = 1024
ROUTER = "round-robin"


@dataclass(frozen=True)
class RunOptions:
    """What `musebench run` is told. None leaves a choice to the workload, then to the defaults here.

    `step_timeout` (seconds) ends a run in which a step hangs; `on_oom` is one of `ON_OOM`. `settings` are
    option values by kind of component, as `--set KIND.NAME=VALUE` gives them. `router` says which of
    `replicas` equal simulated devices serves a request.
    """

    workload: str = "capitals"
    model: str = "bundled"
    device: str = "cpu"
    dtype: str | None = None
    executor: str = "eager"
    pool: str = "geometric"
    scheduler: str = "chunked"
    max_sessions: int | None = None
    max_context: int | None = None
    token_budget: int | None = None
    seed: int = 0
    warmup: int = 0
    repeat: int = 1
    overlap: bool | None = None
    margins: bool = False
    stepwise: bool = False
    slo: Mapping[str, float] = field(default_factory=dict)
    step_timeout: float | None = None
    on_oom: str = "fail"
    reference: str | None = None
    replicas: int = 1
    router: str | None = None
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    USED = ("backend", "executor", "model", "pool", "router", "scheduler", "workload")

    def check(self) -> None:
        """What can be said before anything is looked for.

        Raises:
            UsageError: in one line.
        """
        for kind in self.settings:
            if kind not in self.USED:
                raise UsageError(f"--set {kind}.…: a run has no {kind}; {nearest(kind, self.USED)}")
        if abs(self.seed) > MOST_SEED:
            raise UsageError(f"--seed is {self.seed}; at most {MOST_SEED:,} either way can be reported")
        if self.on_oom not in ON_OOM:
            raise UsageError(f"--on-oom is {self.on_oom!r}; {nearest(self.on_oom, ON_OOM)}")
        timeout = self.step_timeout
        if timeout is not None and not 0 < timeout < 1e6:
            raise UsageError(f"--step-timeout is {timeout}; seconds above 0 are wanted")
        natural("--replicas", self.replicas, 1, MOST_REPLICAS)
        if self.replicas == 1 and self.router is not None:
            raise UsageError(f"--router {self.router} routes between several replicas; add --replicas N")
        if self.replicas == 1 and "router" in self.settings:
            raise UsageError("--set router.…: one replica has no router; add --replicas N")
        if self.replicas > 1 and self.device.partition(":")[0] != "sim":
            raise UsageError(
                f"--replicas {self.replicas}: replicas are simulated; use --device sim:…, not {self.device}"
            )
        if self.replicas > 1 and timeout is not None:
            raise UsageError("--step-timeout is for one replica; leave it out, or --replicas")


MOST_REPEATS = 1_000_000
"""Of `--repeat` and of `--warmup`: more would not end, and each is kept."""


def natural(flag: str, value: int, least: int, most: int | None = None) -> None:
    """Refuse a value below the least or above the most, in one line."""
    if value < least:
        raise UsageError(f"{flag} is {value}; at least {least} is wanted")
    if most is not None and value > most:
        raise UsageError(f"{flag} is {value:,}; at most {most:,} is possible")
