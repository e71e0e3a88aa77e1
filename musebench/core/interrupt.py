"""An interrupt waits for the end of the step under way, so that what a run has recorded stays whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What asks a run to end."""


class RunInterrupted(KeyboardInterrupt):
    """Raised between two steps: nothing is half done."""


class Interruptible(Protocol):
    """Raises `RunInterrupted` at its next step once `interrupted` is set; `resting` while it only waits."""

    interrupted: bool
    resting: bool


@contextmanager
def between_steps(engines: Sequence[Interruptible]) -> Iterator[None]:
    """While this is open, an interrupt takes effect between steps; a second one acts at once.

    Signals that would end the process as such stay as they are, and threads other than the main one get none.
    """
    before: dict[int, Callable[[int, FrameType | None], Any]] = {}

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(number, before[number])
        for engine in engines:
            engine.interrupted = True
        if any(engine.resting for engine in engines):
            raise RunInterrupted

    if threading.current_thread() is threading.main_thread():
        for number in STOPS:
            handler = signal.getsignal(number)
            if callable(handler):
                before[number] = handler
                signal.signal(number, stop)
    try:
        yield
    finally:
        for caught, handler in before.items():
            signal.signal(caught, handler)
