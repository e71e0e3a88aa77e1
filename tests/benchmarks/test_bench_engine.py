"""The engine's bookkeeping (plan, reserve, pack, commit) at 256 running sequences, on a device that takes no
time. Target: at most 150 microseconds a step."""

from __future__ import annotations

import numpy as np

from musebench.core.clock import VirtualClock
from musebench.core.engine import Engine
from musebench.core.options import NoOptions
from musebench.core.plan import Limits
from musebench.core.protocols import PoolBounds, Resize
from musebench.core.request import Request
from musebench.executors.eager import EagerExecutor
from musebench.plugin.registry import Registry

SEQUENCES = 256
STEPS = 400


class Nothing:
    """A storage and a backend in one that do nothing at once."""

    rows = bytes = 0
    cell_bytes = 1

    def __init__(self) -> None:
        self.clock = VirtualClock()

    def resize(self, rows, live):
        return Resize(True)

    def free_bytes(self):
        return None

    def forward(self, batch):
        return Made(batch.rows)


class Made:
    device_seconds = 0.0
    margins = None

    def __init__(self, rows: int) -> None:
        self._tokens = np.zeros(rows, np.int32)

    def wait(self):
        return self._tokens


def test_step_of_256_decodes(benchmark):
    registry, limits, nothing = Registry.installed(), Limits(most_sequences=SEQUENCES), Nothing()
    bounds = PoolBounds(SEQUENCES, 64 * STEPS)
    engine = Engine(
        registry.get("scheduler", "chunked").make({}),
        registry.get("pool", "geometric").make({"start": "8000000"}, bounds, nothing),
        EagerExecutor(NoOptions(), nothing, limits), nothing.clock, limits, SEQUENCES,
    )  # fmt: skip
    for index in range(SEQUENCES):
        engine.submit(Request(str(index), range(8), 60 * STEPS))
    while len(engine.running.decoding) < SEQUENCES:
        engine.step()
    benchmark.pedantic(engine.step, rounds=20, iterations=STEPS, warmup_rounds=1)
    benchmark.extra_info["microseconds_a_step"] = benchmark.stats.stats.median * 1e6
