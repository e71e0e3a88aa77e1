"""What happens on the node: one run, in a process of its own, whose report goes back as bytes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

TAIL_BYTES = 4096
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
    started = time.monotonic()
    folder = work.folder if work.folder is not None and os.path.isdir(work.folder) else os.getcwd()
    with tempfile.TemporaryDirectory(prefix="musebench-") as made, tempfile.TemporaryFile() as errors:
        report = Path(made) / work.report_name
        process = subprocess.Popen(
            [
                work.python or sys.executable, "-m", "musebench_ray.guarded",
                *work.arguments, "--out", str(report),
            ],
            cwd=folder,
            env={**os.environ, PARENT: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )  # fmt: skip
        try:
            code: int | None = process.wait(work.timeout_seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - TAIL_BYTES))
        text = errors.read().decode(errors="replace")
        content = report.read_bytes() if report.exists() else None
    return Done(code, text, time.monotonic() - started, content)
