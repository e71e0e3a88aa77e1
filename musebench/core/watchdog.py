"""Notices a step that does not end.

A thread looks at the engine: nothing else can, for the thread that runs the step may be inside a call of the
driver that no exception reaches. It therefore ends the process, after whatever is known has been written. A
call that also holds the interpreter's lock stops this thread too; for that case a timer below the interpreter
(faulthandler's) ends the process with a traceback after twice the time and a little, and what remains is the
journal.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType

from musebench.core.engine import Engine

LOOKS = 10
"""Looks at the engine in one timeout."""

GRACE_SECONDS = 30.0
"""For `on_hang` to write its report, before the timer ends the process without it."""


class Watchdog:
    """A context around a run: calls `on_hang(text)` on a thread of its own when a step takes longer than
    `seconds` of the host's time. Waiting for a request to arrive is no step.

    After `on_hang` the process ends with code 1. Compilation and capture at first use are part of their
    steps.
    """

    def __init__(self, engine: Engine, seconds: float, on_hang: Callable[[str], None]) -> None:
        self._engine = engine
        self._seconds = seconds
        self._on_hang = on_hang
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="musebench-watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self._arm()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        faulthandler.cancel_dump_traceback_later()

    def _arm(self) -> None:
        faulthandler.dump_traceback_later(
            2 * self._seconds + GRACE_SECONDS, exit=True, file=sys.__stderr__ or sys.stderr
        )

    def _watch(self) -> None:
        seen, since = self._progress(), time.monotonic()
        while not self._over.wait(self._seconds / LOOKS):
            now = self._progress()
            if now is None or now != seen:
                seen, since = now, time.monotonic()
                self._arm()
            elif time.monotonic() - since > self._seconds:
                self._end()

    def _end(self) -> None:
        try:
            self._on_hang(self._text())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def _progress(self) -> tuple[int, ...] | None:
        """Changes with every step that ends, in whatever way; None while nothing is to be done."""
        engine = self._engine
        if not (len(engine.running) or engine.waiting):
            return None
        recorder = engine.recorder
        return len(recorder.steps), recorder.failed_steps, recorder.preemptions, len(recorder.ended)

    def _text(self) -> str:
        engine = self._engine
        running = [sequence.request.id for sequence in (*engine.running.all(), *engine.waiting)]
        shown = ", ".join(map(repr, running[:4])) + (f" and {len(running) - 4:,} more" if running[4:] else "")
        return (
            f"step {len(engine.recorder.steps)} (executor {engine.executor.name!r}, requests {shown}) "
            f"has not ended for {self._seconds:g} s"
        )
