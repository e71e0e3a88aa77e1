"""Engines over the fakes of the conformance kit."""

from __future__ import annotations

from musebench.core.batch import StepBatch
from musebench.core.engine import Engine
from musebench.core.options import NoOptions
from musebench.core.plan import Limits, Slice, StepPlan
from musebench.core.protocols import PoolBounds
from musebench.core.request import FinishReason, Request
from musebench.core.sequence import Phase, Sequence, SequenceTable
from musebench.executors.eager import EagerExecutor
from musebench.plugin.registry import Registry
from musebench.testing.fake_backend import FACTS, VOCABULARY, FakeBackend, FakeOutput, reference
from musebench.testing.fake_storage import CELL_BYTES, FakeStorage

__all__ = ["CELL_BYTES", "FACTS", "VOCABULARY", "FakeBackend", "FakeOutput", "FakeStorage", "reference"]


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


class Careless:
    """A scheduler that admits whatever waits as whole prompts, and knows nothing of what a pool has."""

    name = "careless"

    def plan(self, waiting, running, limits, pool):
        free = limits.most_sequences - len(running)
        prompts = (*running.prefilling, *waiting[:free])
        return StepPlan(running.decoding, tuple(Slice(one, one.remaining) for one in prompts))
