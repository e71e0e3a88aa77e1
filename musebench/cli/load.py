"""The options of a command that say what load a run gets, and what they mean for its workload."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from musebench.core.errors import UsageError

if TYPE_CHECKING:
    from musebench.workload.workload import Workload

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

NEEDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "recorded": ((), ("rate", "speedup")),
    "at-once": ((), ()),
    "constant": (("rate",), ()),
    "poisson": (("rate",), ()),
    "gamma": (("rate", "burstiness"), ()),
    "closed": (("concurrency",), ()),
}
"""By the name of an arrival process: the options that it needs, and those that it may have."""

_OPTIONS = (
    click.option("--trace", metavar="FILE", help="A recorded trace instead of WORKLOAD."),
    click.option("--requests", type=click.IntRange(1), help="Most requests; prompts are gone through again."),
    click.option(
        "--duration", type=click.FloatRange(0, min_open=True), metavar="SECONDS",
        help="Only a trace's rows that were recorded less than this after its first.",
    ),
    click.option("--arrivals", type=click.Choice(list(NEEDS)), help="When requests arrive."),
    click.option(
        "--rate", type=click.FloatRange(0, min_open=True), metavar="PER_SECOND",
        help="Requests a second: of an arrival process, or a trace's own times scaled to it.",
    ),
    click.option(
        "--speedup", type=click.FloatRange(0, min_open=True), metavar="FACTOR",
        help="Divide a trace's times by this.",
    ),
    click.option(
        "--burstiness", type=click.FloatRange(0, min_open=True), metavar="CV",
        help="Of gamma arrivals: standard deviation of the gaps over their mean; 1 is Poisson.",
    ),
    click.option(
        "--concurrency", type=click.IntRange(1), metavar="N",
        help="Of closed arrivals: requests at a time; the next one arrives when one has ended.",
    ),
    click.option(
        "--skip-bad-rows", is_flag=True,
        help="Leave out and count a trace's rows that cannot be read, instead of refusing the trace.",
    ),
)  # fmt: skip


def load_options(function: Decorated) -> Decorated:
    """Decorates a command's function, which gets the options by name; `Load` takes them."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@dataclass(frozen=True)
class Load:
    """The values of `load_options`."""

    trace: str | None = None
    requests: int | None = None
    duration: float | None = None
    arrivals: str | None = None
    rate: float | None = None
    speedup: float | None = None
    burstiness: float | None = None
    concurrency: int | None = None
    skip_bad_rows: bool = False

    def workload(self, named: str | None) -> str | None:
        """The workload's name or path; `named` is the command's argument, None where it was left out.

        Raises:
            UsageError: both a workload and a trace.
        """
        if self.trace is not None and named is not None:
            raise UsageError(f"there is a workload ({named}) and a --trace ({self.trace}); give one of them")
        if self.trace is None:
            return named
        return self.trace if "/" in self.trace else f"./{self.trace}"  # a path, not a workload's name

    def require_times(self, workload: Workload) -> None:
        """Refuse what changes recorded times, or rows of a trace, where there are none.

        Raises:
            UsageError: names the option and what has no trace.
        """
        if workload.spec.trace is not None:
            return
        flags = [
            *(["duration"] if self.duration is not None else []),
            *(["skip-bad-rows"] * self.skip_bad_rows),
        ]
        if (arrivals := self._arrivals()) is not None and "recorded" in arrivals:
            flags += arrivals["recorded"] or ["arrivals recorded"]
        for flag in flags:
            raise UsageError(
                f"--{flag} is of a trace, and workload {workload.name!r} has none; "
                "give --trace FILE, or times by --arrivals constant, poisson, gamma or closed"
            )

    def settings(self) -> dict[str, Any]:
        """Changes of the workload, as `Workload.with_overrides` takes them.

        Raises:
            UsageError: an option that goes with no or with another arrival process.
        """
        made: dict[str, Any] = {}
        if self.requests is not None:
            made["requests"] = self.requests
        if self.duration is not None:
            made["trace.duration"] = self.duration
        if self.skip_bad_rows:
            made["trace.options.skip_bad_rows"] = True
        if (arrivals := self._arrivals()) is not None:
            made["arrivals"] = arrivals
        return made

    def _arrivals(self) -> dict[str, dict[str, float]] | None:
        given = {
            name: value
            for name in ("rate", "speedup", "burstiness", "concurrency")
            if (value := getattr(self, name)) is not None
        }
        kind = self.arrivals or ("recorded" if {"rate", "speedup"} & given.keys() else None)
        if kind is None:
            for name in given:
                process = next(one for one, (needed, _) in NEEDS.items() if name in needed)
                raise UsageError(f"--{name} changes nothing without --arrivals {process}")
            return None
        needed, allowed = NEEDS[kind]
        for name in needed:
            if name not in given:
                raise UsageError(f"--arrivals {kind} needs --{name}")
        for name in given:
            if name not in (*needed, *allowed):
                raise UsageError(f"--{name} does not go with --arrivals {kind}")
        if "burstiness" in given:
            given["cv"] = given.pop("burstiness")
        return {kind.replace("-", "_"): given}
