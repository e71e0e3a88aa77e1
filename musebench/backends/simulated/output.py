"""What a simulated forward makes: the time it is done, and tokens that stand for any."""

from __future__ import annotations

import functools

import numpy as np

from musebench.core.clock import VirtualClock


class SimulatedOutput:
    """See `musebench.core.protocols.StepOutput`. All of its `rows` tokens are `token`."""

    margins: np.ndarray | None = None

    def __init__(
        self, clock: VirtualClock, done: float, device_seconds: float | None, rows: int, token: int
    ) -> None:
        self.done = done
        self.device_seconds = device_seconds
        self._clock = clock
        self._rows = rows
        self._token = token

    def wait(self) -> np.ndarray:
        self._clock.sleep_until(self.done)
        return _tokens(self._token, self._rows)


@functools.lru_cache(1024)
def _tokens(token: int, count: int) -> np.ndarray:
    """Shared by all outputs of as many rows."""
    made = np.full(count, token, np.int32)
    made.flags.writeable = False
    return made
