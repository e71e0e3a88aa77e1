"""A storage and a backend without torch; a wrong cell, table or position makes their tokens wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from musebench.backends.batch_check import check_batch
from musebench.core.batch import BatchLayout, StepBatch
from musebench.core.clock import VirtualClock
from musebench.core.errors import OutOfMemory
from musebench.core.facts import ModelFacts
from musebench.core.protocols import MemorySnapshot, PoolBounds, Resize
from musebench.core.request import Request
from musebench.executors.eager import EagerExecutor

CELL_BYTES = 8
VOCABULARY = 50

FACTS = ModelFacts("fake", "fake", 1, 1, 1, 1, 1, 1, VOCABULARY, 10_000, "float32", 1, 1)


def next_token(tokens: list[int]) -> int:
    """A stand-in for a model: the next token depends on every token before it and on their order."""
    state = 7
    for token in tokens:
        state = (state * 31 + token + 1) % 1_000_003
    return state % VOCABULARY


def reference(request: Request) -> list[int]:
    """What one prompt alone makes."""
    tokens = list(request.prompt)
    made: list[int] = []
    while len(made) < request.max_new_tokens:
        made.append(next_token(tokens + made))
        if made[-1] in request.stop_tokens:
            break
    return made


class FakeStorage:
    """Rows of (token, position); `most` rows fit into memory, and the resizes named in `failing` raise."""

    def __init__(self, most: int | None = None, failing: tuple[int, ...] = ()) -> None:
        self.content: list[tuple[int, int] | None] = []
        self.most = most
        self.failing = failing
        self.calls = 0

    rows = property(lambda self: len(self.content))
    bytes = property(lambda self: len(self.content) * CELL_BYTES)
    cell_bytes = CELL_BYTES

    def resize(self, rows: int, live: int) -> Resize:
        self.calls += 1
        if self.calls in self.failing or (self.most is not None and rows > self.most):
            raise OutOfMemory(rows * CELL_BYTES, 0, "rows")
        kept = self.content[:live]
        self.content = kept + [None] * (rows - len(kept))
        return Resize(True, live * CELL_BYTES, (rows + live) * CELL_BYTES)

    def free_bytes(self) -> int | None:
        return None

    def close(self) -> None:
        self.content = []


class FakeOutput:
    device_seconds: float | None = 0.0
    margins = None

    def __init__(self, backend: FakeBackend, tokens: np.ndarray, ready: float) -> None:
        self._backend, self._tokens, self._ready = backend, tokens, ready
        self.error: Exception | None = None

    def wait(self) -> np.ndarray:
        self._backend.clock.sleep_until(self._ready)
        if self.error is not None:
            raise self.error
        return self._tokens


class FakeBackend:
    """Computes next tokens from what the cells hold; a step takes `step_seconds` of virtual time."""

    name = "fake"
    facts = FACTS

    def __init__(self, bounds: PoolBounds, storage: FakeStorage | None = None, step_seconds: float = 1.0):
        self.clock = VirtualClock()
        self.bounds = bounds
        self.batches: list[StepBatch] = []
        self._storage = storage or FakeStorage()
        self._table = np.full((bounds.max_sessions + 1, bounds.max_context), -1, np.int64)
        self._last = np.zeros(bounds.max_sessions + 1, np.int64)
        self._seconds = step_seconds

    def storage(self) -> FakeStorage:
        return self._storage

    def forward(self, batch: StepBatch) -> FakeOutput:
        check_batch(batch, self.bounds.max_sessions, self.bounds.max_context, self._storage.rows, VOCABULARY)
        self.batches.append(batch)
        fields, content = batch.fields, self._storage.content
        for slot, first, cells in batch.edits:
            self._table[slot, first : first + len(cells)] = cells
        for token, position, cell, slot in zip(
            *(column.tolist() for column in (fields.token_ids, fields.positions, fields.cells, fields.slots)),
            strict=True,
        ):
            content[cell] = (int(self._last[slot]) if token < 0 else token, position)
            self._table[slot, position] = cell
        made = []
        for row, slot in zip(fields.rows.tolist(), fields.row_slots.tolist(), strict=True):
            if slot == 0:
                made.append(0)
                continue
            history = []
            for position in range(int(fields.positions[row]) + 1):
                held = content[self._table[slot, position]]
                assert held is not None, "a cell that nobody wrote is attended"
                assert held[1] == position, "a cell holds another position"
                history.append(held[0])
            made.append(next_token(history))
        self._last[fields.row_slots] = made
        tokens = np.array(made[: batch.rows], np.int32)
        return FakeOutput(self, tokens, self.clock.now() + self._seconds)

    def require_capture(self) -> None: ...

    def capture(self, layout: BatchLayout) -> Any:
        return layout

    def replay(self, graph: Any, batch: StepBatch) -> FakeOutput:
        assert graph == batch.layout
        return self.forward(batch)

    def drop(self, graph: Any) -> None: ...

    def compile(self) -> None: ...

    def compilations(self) -> Mapping[str, int | float]:
        return {}

    def synchronize(self) -> None: ...

    def memory(self) -> MemorySnapshot:
        return MemorySnapshot()

    def reset_peak(self) -> None: ...

    def conditions(self) -> Mapping[str, Any]:
        return {}

    def close(self) -> None: ...


class Fault(Exception):
    """Planted."""


class FaultyExecutor(EagerExecutor):
    """Raises at the executions named in `failing`, at launch, or when its tokens are waited for."""

    def __init__(self, options, backend, limits, failing=(), late=False) -> None:
        super().__init__(options, backend, limits)
        self.failing, self.late, self.calls = set(failing), late, 0

    def execute(self, batch: StepBatch):
        self.calls += 1
        if self.calls in self.failing and not self.late:
            raise Fault(f"planted at execution {self.calls}")
        output = super().execute(batch)
        if self.calls in self.failing:
            output.error = Fault(f"planted at execution {self.calls}")
        return output
