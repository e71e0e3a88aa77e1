"""A process that is started, waited for within bounds and never left behind, for launchers of runs."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

TAIL_BYTES = 4096


@dataclass(frozen=True)
class Exit:
    """Exit `code` (negative: the signal that killed it; None: it took too long and was stopped), the last of
    what it wrote to standard error, and its wall `seconds`."""

    code: int | None
    errors: str
    seconds: float


def run_to_end(
    command: Sequence[str],
    timeout_seconds: float | None,
    *,
    folder: str | None = None,
    environment: Mapping[str, str] | None = None,
    held: Sequence[int] = (),
) -> Exit:
    """Run `command` in `folder` (None: here) and wait, without an input and an output.

    It has a session of its own: an interrupt from the terminal reaches its parent alone, which then stops it
    with all that it started (a run itself would make an incomplete report of it). It inherits the file
    descriptors `held`.
    """
    started = time.monotonic()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
            pass_fds=held,
        )
        try:
            code: int | None = process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - TAIL_BYTES))
        text = errors.read().decode(errors="replace")
    return Exit(code, text, time.monotonic() - started)
