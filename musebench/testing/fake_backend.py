"""A backend without a device or a model: a token depends on every cell that its sequence attends, in order.

A wrong cell, position, table row or slot, a graph replayed over rows that have moved, or padding written
where somebody's token lies makes tokens wrong. What no device would notice at once is in `complaints`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from musebench.backends.batch_check import check_batch
from musebench.core.batch import BatchLayout, StepBatch
from musebench.core.clock import VirtualClock
from musebench.core.facts import ModelFacts
from musebench.core.plan import Limits
from musebench.core.protocols import MemorySnapshot, PoolBounds
from musebench.core.request import Request, Sampling
from musebench.testing.fake_storage import FakeStorage

VOCABULARY = 50

FACTS = ModelFacts("fake", "fake", 1, 1, 1, 1, 1, 1, VOCABULARY, 10_000, "float32", 1, 1)


def next_token(tokens: Iterable[int], drawn: int = 0) -> int:
    """A stand-in for a model: the next token depends on every token before it and on their order, and on what
    was `drawn` where it is sampled."""
    state = 7 + drawn
    for token in tokens:
        state = (state * 31 + token + 1) % 1_000_003
    return state % VOCABULARY


def reference(request: Request) -> list[int]:
    """What one prompt alone makes."""
    tokens, made = list(request.prompt), list[int]()
    while len(made) < request.max_new_tokens:
        made.append(next_token(tokens + made, _drawn(request.sampling, len(tokens) + len(made))))
        if made[-1] in request.stop_tokens:
            break
    return made


def _drawn(sampling: Sampling, position: int) -> int:
    if sampling.greedy:
        return 0
    bits = int(np.float32(sampling.temperature).view(np.int32)) + int(
        np.float32(sampling.top_p).view(np.int32)
    )
    return (bits + 7 * sampling.top_k + 13 * sampling.seed + 101 * position) % 1_000_003


class Misuse(Exception):
    """The backend was asked for what it must not be asked for."""


class PlantedFailure(Exception):
    """A forward that was told to fail."""


@dataclass(eq=False)
class FakeGraph:
    """A captured forward: its layout, and the rows as they were when it was captured."""

    layout: BatchLayout
    rows: list[Any]
    dropped: bool = False


class FakeOutput:
    margins = None

    def __init__(self, backend: FakeBackend, tokens: np.ndarray, ready: float) -> None:
        self._backend, self._tokens, self._ready = backend, tokens, ready
        self.device_seconds: float | None = None
        self.error: Exception | None = None

    def wait(self) -> np.ndarray:
        self._backend.clock.sleep_until(self._ready)
        self.device_seconds = self._backend.step_seconds
        if self.error is not None:
            raise self.error
        return self._tokens


class FakeBackend:
    """Computes next tokens from what the cells hold; a step takes `step_seconds` of virtual time.

    The launches named in `failing` (from 1) raise, when they are launched or, with `late`, when they are
    waited for.
    """

    name = "fake"
    facts = FACTS

    def __init__(
        self,
        bounds: PoolBounds,
        storage: FakeStorage | None = None,
        step_seconds: float = 1.0,
        failing: tuple[int, ...] = (),
        late: bool = False,
    ) -> None:
        self.clock = VirtualClock()
        self.bounds = bounds
        self.batches: list[StepBatch] = []
        self.graphs: list[FakeGraph] = []
        self.complaints: list[str] = []
        self.step_seconds = step_seconds
        self.failing = failing
        self.late = late
        self.failures = 0
        self.closed = False
        self._storage = storage or FakeStorage()
        self._table = np.full((bounds.max_sessions + 1, bounds.max_context), -1, np.int64)
        self._last = np.zeros(bounds.max_sessions + 1, np.int64)

    def open(self, bounds: PoolBounds, record_margins: bool = False) -> None: ...

    def storage(self) -> FakeStorage:
        return self._storage

    def forward(self, batch: StepBatch) -> FakeOutput:
        return self._run(batch, self._storage.content)

    def _run(self, batch: StepBatch, content: list[Any]) -> FakeOutput:
        if self.closed:
            self._complain("a forward was launched on a backend that is closed")
        try:
            check_batch(
                batch, self.bounds.max_sessions, self.bounds.max_context, self._storage.rows, VOCABULARY
            )
        except ValueError as error:
            self._complain(str(error))
        self.batches.append(batch)
        fails = len(self.batches) in self.failing
        self.failures += fails
        if fails and not self.late:
            raise PlantedFailure(f"planted in launch {len(self.batches)}")
        fields = batch.fields
        for slot, first, cells in batch.edits:
            self._table[slot, first : first + len(cells)] = cells
        for token, position, cell, slot in zip(
            *(column.tolist() for column in (fields.token_ids, fields.positions, fields.cells, fields.slots)),
            strict=True,
        ):
            content[cell] = (int(self._last[slot]) if token < 0 else token, position)
            self._table[slot, position] = cell
        made = [self._made(batch, row, content) for row in range(batch.layout.rows)]
        self._last[fields.row_slots] = made
        tokens = np.array(made[: batch.rows], np.int32)
        output = FakeOutput(self, tokens, self.clock.now() + self.step_seconds)
        if fails:
            output.error = PlantedFailure(f"planted in launch {len(self.batches)}")
        return output

    def _made(self, batch: StepBatch, row: int, content: list[Any]) -> int:
        fields = batch.fields
        at, slot = int(fields.rows[row]), int(fields.row_slots[row])
        if slot == 0:
            return 0
        history = []
        for position in range(int(fields.positions[at]) + 1):
            held = content[self._table[slot, position]]
            if held is None:
                self._complain("a cell that nobody wrote is attended")
            if held[1] != position:
                self._complain("a cell holds another position")
            history.append(held[0])
        return next_token(history, self._sampled(batch, row))

    def _sampled(self, batch: StepBatch, row: int) -> int:
        if not batch.layout.sampled:
            return 0
        fields = batch.fields
        seed = int(fields.seed_low[row].view(np.uint32)) + (int(fields.seed_high[row]) << 32)
        temperature, top_p = (float(one[row].view(np.float32)) for one in (fields.temperature, fields.top_p))
        sampling = Sampling(temperature, int(fields.top_k[row]), top_p, seed)
        return _drawn(sampling, int(fields.sample_positions[row]))

    def _complain(self, text: str) -> None:
        self.complaints.append(text)
        raise Misuse(text)

    def require_capture(self) -> None: ...

    def capture(self, layout: BatchLayout) -> FakeGraph:
        self.graphs.append(FakeGraph(layout, self._storage.content))
        return self.graphs[-1]

    def replay(self, graph: FakeGraph, batch: StepBatch) -> FakeOutput:
        if graph.dropped:
            self._complain("a graph was replayed after it was dropped")
        if graph.layout != batch.layout:
            self._complain(f"a graph of {graph.layout} was replayed with {batch.layout}")
        if graph.rows is not self._storage.content:
            self._complain(
                f"a graph was replayed after the rows had moved (generation {batch.generation}): it reads "
                "and writes the old ones"
            )
        return self._run(batch, graph.rows)

    def drop(self, graph: FakeGraph) -> None:
        graph.dropped = True

    def warm(self, limits: Limits) -> Mapping[str, float]:
        return {}

    def compile(self) -> None: ...

    def compilations(self) -> Mapping[str, int | float]:
        return {}

    def synchronize(self) -> None: ...

    def memory(self) -> MemorySnapshot:
        return MemorySnapshot()

    def reset_peak(self) -> None: ...

    def conditions(self) -> Mapping[str, Any]:
        return {}

    def close(self) -> None:
        self.closed = True
