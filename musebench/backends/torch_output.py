"""What one forward made, on its way from the device."""

from __future__ import annotations

import numpy as np

from musebench.backends.torch_device import Download, Stopwatch
from musebench.backends.torch_program import FINITE, MARGINS, TOKENS
from musebench.core.errors import NonFiniteLogits


class TorchOutput:
    """See `musebench.core.protocols.StepOutput`. `rows` counts the real ones, which come first.

    After `wait`, `device_seconds` is the time from the copy of the batch to the last sampled token; on a CPU
    that is the host's time of the forward.
    """

    def __init__(self, download: Download, stopwatch: Stopwatch, rows: int) -> None:
        self.device_seconds: float | None = None
        self.margins: np.ndarray | None = None
        self._download = download
        self._stopwatch = stopwatch
        self._rows = rows

    def wait(self) -> np.ndarray:
        """Token ids int32 [rows].

        Raises:
            NonFiniteLogits: logits of a row that are not finite; names the rows.
        """
        results = self._download.wait()[:, : self._rows]
        self.device_seconds = self._stopwatch.seconds()
        if results.shape[0] > MARGINS:
            self.margins = results[MARGINS].view(np.float32)
        if not results[FINITE].all():
            broken = np.flatnonzero(results[FINITE] == 0).tolist()
            raise NonFiniteLogits(broken, self._rows, results[TOKENS])
        return results[TOKENS]
