"""What happens on the node: one run, in a process of its own, whose report goes back as bytes."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from musebench.matrix.process import run_to_end

PARENT = "MUSEBENCH_RAY_PARENT"
"""The variable that tells a run its worker's process id."""


@dataclass(frozen=True)
class Work:
    """A run as it travels: the arguments of `musebench` without `--out`, the name of its report's file, and
    `folder`, where it starts if the node has that folder (None: where the worker is)."""

    arguments: tuple[str, ...]
    report_name: str
    timeout_seconds: float | None
    folder: str | None
    python: str | None


@dataclass(frozen=True)
class Done:
    """Exit `code` (None: stopped, it took too long), the last of its standard error, its wall `seconds` and
    the content of its report (None: there is none)."""

    code: int | None
    errors: str
    seconds: float
    report: bytes | None


def carry_out(work: Work) -> Done:
    """Run it and wait. Its process dies with this one, however that ends."""
    folder = work.folder if work.folder is not None and os.path.isdir(work.folder) else None
    with tempfile.TemporaryDirectory(prefix="musebench-") as made:
        report = Path(made) / work.report_name
        ended = run_to_end(
            [
                work.python or sys.executable, "-m", "musebench_ray.guarded",
                *work.arguments, "--out", str(report),
            ],
            work.timeout_seconds,
            folder=folder,
            environment={**os.environ, PARENT: str(os.getpid())},
        )  # fmt: skip
        content = report.read_bytes() if report.exists() else None
    return Done(ended.code, ended.errors, ended.seconds, content)
