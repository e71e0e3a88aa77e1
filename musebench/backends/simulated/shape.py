"""What the simulated backend asks of a cost model: a step's shape in, seconds out.

One step: `StepBatch` -> `StepShape` (counts and contexts, no token's content) -> `Costs.step` -> the virtual
clock moves on. A stretch of decodes in which nothing arrives, ends or runs out asks once, with
`Costs.decode_stretch`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True, slots=True)
class StepShape:
    """One forward: for each slice its `queries` (tokens computed now) and `context` (cells that its last
    query attends, itself included), both int64 [slices]; `padded_tokens` more tokens that only pad, and
    logit `rows`, padding included."""

    queries: np.ndarray
    contexts: np.ndarray
    rows: int
    padded_tokens: int = 0


class Costs(Protocol):
    """Seconds of one model on one device, pure functions of shapes. Every step has a host term."""

    def step(self, shape: StepShape, program: str) -> float:
        """Device seconds of one forward; `program` is "eager" (a launch a kernel), "graph" (one replay) or
        "compiled" (fewer kernels, a launch each)."""

    def decode_stretch(self, contexts: np.ndarray, steps: int, program: str, padded: int = 0) -> np.ndarray:
        """Device seconds of each of `steps` forwards that decode one token a sequence, float64 [steps];
        `contexts` int64 [sequences] are those of the first. Equal to `step` of each, to the last bit."""

    def host_seconds(self, slices: int, tokens: int) -> float:
        """Host work of one step (plan, reserve, pack, commit), which overlap may hide."""

    def launch_seconds(self, program: str) -> float:
        """Host seconds until the device has all of one forward's work."""

    def capture_seconds(self, sequences: int) -> float:
        """Seconds to capture one graph for that many sequences."""

    def copy_seconds(self, copied_bytes: int) -> float:
        """Seconds that a growth's copy of live rows takes, its allocation included."""

    def graph_bytes(self, sequences: int) -> int:
        """Device bytes of the graphs' pool for a ladder up to that many sequences."""

    def activation_bytes(self, tokens: int, rows: int) -> int:
        """Device bytes that one forward needs beside weights and cells."""
