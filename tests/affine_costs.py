"""A cost model of a few sums, and a simulated device of it: fast, exact, and different in every part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from musebench.backends.simulated import device as device_module
from musebench.backends.simulated.device import SimulatedDevice
from musebench.backends.simulated.options import SimulatedOptions
from musebench.backends.simulated.shape import Costs, StepShape
from musebench.core.facts import ModelFacts
from musebench.core.table import Contexts

FACTOR = {"eager": 3.0, "compiled": 2.0, "graph": 1.0, "compiled graph": 0.5}


@dataclass(frozen=True)
class AffineCosts:
    """Seconds = fixed + tokens x `token` + cells attended x `cell`; `host` a step on the host."""

    fixed: float = 4e-3
    token: float = 2e-5
    cell: float = 5e-8
    host: float = 3e-4
    launch: float = 2e-3

    def step(self, shape: StepShape, program: str) -> float:
        tokens = int(shape.queries.sum()) + shape.padded_tokens
        return self._seconds(program, tokens + shape.rows, int(shape.contexts.sum()))

    def _seconds(self, program: str, tokens: int, cells: int) -> float:
        return self.fixed * FACTOR[program] + tokens * self.token + cells * self.cell

    def decode_stretch(self, contexts: np.ndarray, steps: int, program: str, padded: int = 0) -> np.ndarray:
        count, cells = len(contexts), int(contexts.sum())
        tokens = 2 * (count + padded)
        fixed = self.fixed * FACTOR[program] + tokens * self.token
        return fixed + (cells + count * np.arange(steps)) * self.cell

    def decodes(self, contexts: Contexts, steps: int, program: str, padded: int = 0) -> list[float]:
        made: list[float] = self.decode_stretch(contexts.each(), steps, program, padded).tolist()
        return made

    def host_seconds(self, slices: int, tokens: int) -> float:
        return self.host + slices * 1e-7

    def launch_seconds(self, program: str) -> float:
        return self.launch * FACTOR[program]

    def capture_seconds(self, sequences: int) -> float:
        return 0.1 + sequences * 1e-3

    def copy_seconds(self, copied_bytes: int) -> float:
        return 1e-4 + copied_bytes / 1e12

    def graph_bytes(self, sequences: int) -> int:
        return sequences << 20

    def activation_bytes(self, tokens: int, rows: int) -> int:
        return tokens * 50_000 + rows * 300_000


def use(monkeypatch: pytest.MonkeyPatch, costs: Costs = AffineCosts(), memory_bytes: int = 80 << 30) -> None:
    """Let `--device sim:affine` cost what `costs` say."""

    def opened(name: str, facts: ModelFacts, options: SimulatedOptions) -> SimulatedDevice:
        return SimulatedDevice(name, memory_bytes, facts.weight_bytes, facts.cell_bytes, costs)

    monkeypatch.setattr(device_module, "open_device", opened)
