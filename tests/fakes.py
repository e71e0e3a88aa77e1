"""A storage and a backend without torch, and engines over them: a wrong cell, table or position makes the
tokens wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from musebench.backends.batch_check import check_batch
from musebench.core.batch import BatchLayout, StepBatch
from musebench.core.clock import VirtualClock
from musebench.core.engine import Engine
from musebench.core.errors import OutOfMemory
from musebench.core.facts import ModelFacts
from musebench.core.options import NoOptions
from musebench.core.plan import Limits, Slice, StepPlan
from musebench.core.protocols import MemorySnapshot, PoolBounds, Resize
from musebench.core.request import FinishReason, Request
from musebench.core.sequence import Phase, Sequence, SequenceTable
from musebench.executors.eager import EagerExecutor
from musebench.plugin.registry import Registry

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


REGISTRY = Registry.installed()
SCHEDULERS = ("solo", "static", "continuous", "chunked")
POOLS = ("geometric", "fixed")
LIMITS = Limits(most_prefill=16, most_sequences=4, most_tokens=24)


def engine_of(
    scheduler="chunked", pool="geometric", limits=LIMITS, capacity=None, context=128, overlap=False,
    executor=None, storage=None, on_step=None, pool_options=None, slots=None,
) -> Engine:  # fmt: skip
    bounds = PoolBounds(slots or limits.most_sequences, context, capacity)
    backend = FakeBackend(bounds, storage)
    made = (executor or (lambda b, li: FaultyExecutor(NoOptions(), b, li)))(backend, limits)
    return Engine(
        REGISTRY.get("scheduler", scheduler).make({}),
        REGISTRY.get("pool", pool).make(pool_options or {}, bounds, backend.storage()),
        made, backend.clock, limits, bounds.max_sessions, context, overlap, on_step,
    )  # fmt: skip


class NarrowExecutor(FaultyExecutor):
    """Its program takes less in one forward than the scheduler may put into a step."""

    def __init__(self, options, backend, limits, failing=(), late=False) -> None:
        super().__init__(options, backend, limits, failing, late)
        fewest = limits.fewest_prefill
        self.limits = Limits(fewest, 2 * fewest + 3, 2, 2 * fewest + 4)


def assert_consistent(engine: Engine) -> None:
    """Between steps: phases agree with the lists, and every computed token has its cell."""
    running = engine.running
    for line, phase in ((running.decoding, Phase.DECODE), (running.prefilling, Phase.PREFILL)):
        assert all(one.phase is phase for one in line)
        assert [one.admitted for one in line] == sorted(one.admitted for one in line)
    assert all(one.remaining == 1 for one in running.decoding)
    assert all(one.phase is Phase.WAITING and one.slot == 0 for one in engine.waiting)
    slots = [one.slot for one in running.all()]
    assert sorted([*slots, *engine._free_slots]) == list(range(1, engine.table.slots + 1))
    assert engine.pool.cells.held[slots].tolist() == engine.table.computed[slots].tolist()
    before = [one.admitted for one in engine.waiting if one.admitted >= 0]
    fresh = [one.admitted for one in engine.waiting[len(before) :]]
    assert before == sorted(before)
    assert not any(rank >= 0 for rank in fresh)


def assert_empty(engine: Engine) -> None:
    """No cell, slot or sequence is left behind."""
    assert engine.idle
    assert engine.pool.in_use == 0
    assert not engine.pool.cells.held.any()
    assert sorted(engine._free_slots) == list(range(1, engine.table.slots + 1))


def assert_right(engine: Engine) -> None:
    """Tokens are the reference's, or its start where a request did not succeed; steps and growths are
    recorded as they happened."""
    for growth in engine.recorder.growths:
        if growth.step < len(engine.recorder.steps):
            assert growth.rows <= engine.recorder.steps[growth.step].rows
            assert growth.step == 0 or engine.recorder.steps[growth.step - 1].rows < growth.rows
    for sequence in engine.recorder.sequences:
        made, expected = sequence.generated_tokens(), reference(sequence.request)
        if sequence.finish_reason in (FinishReason.STOP, FinishReason.LENGTH):
            assert made == expected
            stopped = bool(made) and made[-1] in sequence.request.stop_tokens
            assert sequence.finish_reason is (FinishReason.STOP if stopped else FinishReason.LENGTH)
        else:
            assert made == expected[: len(made)]
        if made:
            steps = engine.recorder.steps
            ends = [steps[step].end for step in sequence.rest_steps[: len(made)]]
            assert ends == sorted(ends)
            assert sequence.first_token_seconds == ends[0]
            assert sequence.last_token_seconds == ends[-1]
            times = (sequence.arrival_seconds, sequence.scheduled_seconds, ends[0], ends[-1])
            assert list(times) == sorted(times)
            assert sequence.finish_seconds >= ends[-1]


def running(table: SequenceTable, slot: int, prompt: int = 4, new: int = 100) -> Sequence:
    sequence = Sequence(slot, Request(str(slot), range(prompt), new), table)
    sequence.enter(slot)
    return sequence


def plan_of(*counts: tuple[Sequence, int]) -> StepPlan:
    return StepPlan(prefills=tuple(Slice(sequence, count) for sequence, count in counts))
