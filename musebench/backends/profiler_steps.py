"""Whole steps of a small model, timed: launches, replays, captures, growths, and what their kernels take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from musebench.backends.cuda_graphs import WARM_UPS
from musebench.backends.torch_backend import TorchBackend
from musebench.backends.torch_options import TorchOptions
from musebench.core.batch import BatchLayout, StepBatch
from musebench.core.errors import UnsupportedError
from musebench.core.protocols import PoolBounds
from musebench.models.source import Model

ROUNDS = 7
CAPTURE_LAUNCHES = WARM_UPS + 1
"""Forwards that a capture launches one by one."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds of a decode of one sequence: `eager_host` until it was launched one operation after the other;
    `replay_host` and `replay_device` of its graph, and `capture` of it; None where nothing can be captured.
    `compiled_host` None: not asked for."""

    layers: int
    eager_host: float
    eager_device: float
    replay_host: float | None = None
    replay_device: float | None = None
    capture: float | None = None
    compiled_host: float | None = None


@dataclass(frozen=True, slots=True)
class GrowthTime:
    """One growth: bytes copied, and the host's seconds until the device was done with it."""

    copied_bytes: int
    seconds: float


class StepMeter:
    """A model opened on a device, with one sequence of `context` cells to decode; `close` frees it."""

    def __init__(self, model: Model, device: str, context: int) -> None:
        self._backend = TorchBackend(TorchOptions(), device, model)
        self._backend.open(PoolBounds(1, context))
        self._storage = self._backend.storage()
        self._storage.resize(context + 1, 0)
        for rows in self._storage.buffers.tensors:
            rows.normal_()
        self._layout = BatchLayout(1, 1, 1, decode=True)
        self._batch = self._decode(context)
        self._backend.forward(self._batch).wait()  # fills the cell table, compiles kernels
        self._later = self._decode(context, known=True)
        self.layers = model.facts.layers

    def times(self, compiled: bool) -> StepTimes:
        """All of them; compiling takes the better part of a minute on a GPU."""
        backend = self._backend
        eager_host, eager_device = self._timed(lambda: backend.forward(self._later))
        replay_host = replay_device = capture = compiled_host = None
        try:
            backend.require_capture()
        except UnsupportedError:
            pass
        else:
            captures = []
            for _ in range(3):
                backend.synchronize()
                start = time.perf_counter()
                graph = backend.capture(self._layout)
                captures.append(time.perf_counter() - start)
                replay_host, replay_device = self._timed(lambda g=graph: backend.replay(g, self._later))
                backend.drop(graph)
            capture = statistics.median(captures)
        if compiled:
            backend.compile()
            compiled_host, _ = self._timed(lambda: backend.forward(self._later))
        return StepTimes(
            self.layers, eager_host, eager_device, replay_host, replay_device, capture, compiled_host
        )

    def growths(self, sizes: Sequence[int]) -> list[GrowthTime]:
        """Doublings of the pool that copy about each of `sizes` bytes."""
        made = []
        storage = self._storage
        for size in sizes:
            rows = max(2, size // storage.cell_bytes)
            if storage.rows != rows:
                storage.resize(rows, 0)
            self._backend.synchronize()
            start = time.perf_counter()
            copied = storage.resize(2 * rows, rows).copied_bytes
            made.append(GrowthTime(copied, time.perf_counter() - start))
            storage.resize(2, 0)
        return made

    def close(self) -> None:
        self._backend.close()

    def _timed(self, launch: Any) -> tuple[float, float]:
        """Medians of (host seconds until a launch returned, device seconds), after two that do not count."""
        hosts, devices = [], []
        for number in range(ROUNDS + 2):
            self._backend.synchronize()
            start = time.perf_counter()
            output = launch()
            host = time.perf_counter() - start
            output.wait()
            if number >= 2:
                hosts.append(host)
                devices.append(output.device_seconds)
        return statistics.median(hosts), statistics.median(devices)

    def _decode(self, context: int, known: bool = False) -> StepBatch:
        """The last of `context` tokens of slot 1; unless it is `known`, the cells before it are edits."""
        buffer = np.zeros(self._layout.words, np.int32)
        fields = self._layout.fields(buffer)
        fields.token_ids[:] = 1
        fields.positions[:] = context - 1
        fields.cells[:] = context
        fields.slots[:] = fields.sequence_slots[:] = fields.row_slots[:] = 1
        fields.starts[:] = (0, 1)
        cells = np.arange(1, context + 1, dtype=np.int32)
        edits = () if known else ((1, 0, cells),)
        return StepBatch(
            self._layout, buffer, 1, 1, 1, context=context, contexts_sum=context,
            generation=self._storage.generation, edits=edits,
        )  # fmt: skip
