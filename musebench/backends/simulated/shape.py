"""What the simulated backend asks of a cost model: a step's shape in, seconds out.

One step: `StepBatch` -> `StepShape` (counts and contexts, no token's content) -> `Costs.step` -> the virtual
clock moves on. A stretch of decodes in which nothing arrives, ends or runs out asks once, with
`Costs.decode_stretch`.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from musebench.backends.simulated.attended import Attended, attended
from musebench.core.table import Contexts


@dataclass(frozen=True)
class StepShape:
    """One forward: for each slice its `queries` (tokens computed now) and `context` (cells that its last
    query attends, itself included), both int64 [slices]; `padded_tokens` more tokens that only pad, and
    logit `rows`, padding included."""

    queries: np.ndarray
    contexts: np.ndarray
    rows: int
    padded_tokens: int = 0

    @property
    def tokens(self) -> int:
        """All of them, padding included."""
        return int(self.queries.sum()) + self.padded_tokens

    def attended(self, window: int | None) -> Attended:
        """What one layer with this window attends to."""
        return attended(self.queries, self.contexts, window)


class OutlinedShape(StepShape):
    """The same of decodes and prefill slices that are known by their sums: (tokens, context) each."""

    decodes: Contexts
    prefills: Ordered[tuple[int, int]]
    computed: int

    def __init__(
        self,
        decodes: Contexts,
        prefills: Ordered[tuple[int, int]],
        tokens: int,
        rows: int,
        padded_tokens: int,
    ) -> None:
        self.__dict__.update(
            decodes=decodes, prefills=prefills, computed=tokens, rows=rows, padded_tokens=padded_tokens
        )

    @cached_property
    def queries(self) -> np.ndarray:
        return np.array([1] * self.decodes.decodes + [tokens for tokens, _ in self.prefills], np.int64)

    @cached_property
    def contexts(self) -> np.ndarray:
        return np.append(self.decodes.each(), np.array([end for _, end in self.prefills], np.int64))

    @property
    def tokens(self) -> int:
        return self.computed + self.padded_tokens

    def attended(self, window: int | None) -> Attended:
        if window is not None:
            return super().attended(window)
        decode_cells, prefill_cells, pairs, prefills = self.decodes.total, 0, 0, 0
        for tokens, end in self.prefills:
            if tokens == 1:  # costs what a decode does
                decode_cells += end
                continue
            prefills += 1
            prefill_cells += end
            before = end - tokens
            pairs += end * (end + 1) // 2 - before * (before + 1) // 2
        return Attended(decode_cells, prefills, prefill_cells, pairs)


@dataclass(frozen=True, slots=True)
class MoveSeconds:
    """Of a copy inside the storage: on the host until all is launched, and on the device."""

    launching: float
    copying: float


class Costs(Protocol):
    """Seconds of one model on one device, pure functions of shapes. Every step has a host term."""

    def step(self, shape: StepShape, program: str) -> float:
        """Device seconds of one forward; `program` is "eager" (a launch a kernel), "graph" (one replay) or
        "compiled" (fewer kernels, a launch each)."""

    def decode_stretch(self, contexts: np.ndarray, steps: int, program: str, padded: int = 0) -> np.ndarray:
        """Device seconds of each of `steps` forwards that decode one token a sequence, float64 [steps];
        `contexts` int64 [sequences] are those of the first. Equal to `step` of each, to the last bit."""

    def decodes(self, contexts: Contexts, steps: int, program: str, padded: int = 0) -> Iterable[float]:
        """The same, one after the other: the caller may want fewer than `steps`."""

    def host_seconds(self, slices: int, tokens: int) -> float:
        """Host work of one step (plan, reserve, pack, commit), which overlap may hide."""

    def launch_seconds(self, program: str) -> float:
        """Host seconds until the device has all of one forward's work."""

    def capture_seconds(self, sequences: int) -> float:
        """Seconds to capture one graph for that many sequences."""

    def copy_seconds(self, copied_bytes: int) -> float:
        """Seconds that a growth's copy of live rows takes, its allocation included."""

    def move_seconds(self, copied_bytes: int, runs: int) -> MoveSeconds:
        """Copying rows inside the storage, in `runs` runs of neighbours."""

    def graph_bytes(self, sequences: int) -> int:
        """Device bytes of the graphs' pool for a ladder up to that many sequences."""

    def activation_bytes(self, tokens: int, rows: int) -> int:
        """Device bytes that one forward needs beside weights and cells."""
