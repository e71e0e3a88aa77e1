"""What a simulated forward makes: the time it is done, and tokens that stand for any."""

from __future__ import annotations

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
        return np.full(self._rows, self._token, np.int32)
