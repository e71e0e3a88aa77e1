"""Where the runs of a matrix happen: `local`, one process after another, and what plugins register."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from musebench.core.options import NoOptions
from musebench.matrix.process import run_to_end


@dataclass(frozen=True)
class Launch:
    """One run to launch: the arguments of `musebench`, and the file at which its report must stand in the
    end (the arguments name it too)."""

    name: str
    arguments: tuple[str, ...]
    report: Path


@dataclass(frozen=True)
class Ended:
    """How a run ended: exit `code` (negative: the signal that killed it; None: it took too long and was
    stopped), the last lines it wrote to standard error, and the wall `seconds` of its process."""

    launch: Launch
    code: int | None
    errors: str
    seconds: float


class Launcher(Protocol):
    """Runs launches, each in a process of its own, and yields each as it ends.

    It draws from `launches` only when it can start one: what ended before decides what comes. Where runs
    happen elsewhere, the launcher brings each report back to `Launch.report`, whole or not at all. `held` is
    a file descriptor that a local process should inherit: the folder counts as in use until all have ended.
    """

    def launch(
        self, launches: Iterable[Launch], timeout_seconds: float | None, held: int
    ) -> Iterator[Ended]: ...


class LocalLauncher:
    """On this machine, one at a time, so that no run disturbs another."""

    Options = NoOptions

    def __init__(self, options: NoOptions) -> None:
        self.options = options

    def launch(self, launches: Iterable[Launch], timeout_seconds: float | None, held: int) -> Iterator[Ended]:
        for launch in launches:
            yield _run(launch, timeout_seconds, held)


def _run(launch: Launch, timeout_seconds: float | None, held: int) -> Ended:
    command = [sys.executable, "-m", "musebench", *launch.arguments]
    ended = run_to_end(command, timeout_seconds, held=(held,))
    return Ended(launch, ended.code, ended.errors, ended.seconds)
