"""Launches that fail and requests that are cancelled, over rows that move: fakes whose tokens follow from
what the cells hold."""

from __future__ import annotations

import pytest
from musebench_private.pool import PrivateOptions, PrivatePool

from musebench.core.engine import Engine
from musebench.core.options import NoOptions
from musebench.core.plan import Limits
from musebench.core.protocols import PoolBounds
from musebench.core.request import FinishReason, Request
from musebench.executors.eager import EagerExecutor
from musebench.schedulers.chunked import ChunkedOptions, ChunkedScheduler
from musebench.testing.fake_backend import FakeBackend, reference

LIMITS = Limits(most_prefill=4, most_sequences=3, most_tokens=8)
REQUESTS = [Request("a", range(6), 12), Request("b", range(3, 12), 10), Request("c", range(5, 9), 14)]


def engine_of(failing: tuple[int, ...] = (), on_step=None, overlap: bool = False) -> Engine:
    bounds = PoolBounds(LIMITS.most_sequences, 40)
    backend = FakeBackend(bounds, failing=failing)
    pool = PrivatePool(PrivateOptions(start=8, run=2), bounds, backend.storage())
    tries = iter([1])  # once: a launch that fails again ends its requests
    return Engine(
        ChunkedScheduler(ChunkedOptions()), pool, EagerExecutor(NoOptions(), backend, LIMITS), backend.clock,
        LIMITS, bounds.max_sessions, bounds.max_context, overlap, on_step,
        on_failure=lambda engine, failure: next(tries, 0) > 0,
    )  # fmt: skip


def launches() -> int:
    """Of a run in which nothing fails."""
    engine = engine_of()
    engine.run(REQUESTS)
    assert engine.pool.counters()["relocations"] > len(REQUESTS)
    return len(engine.executor.backend.batches)


@pytest.mark.parametrize("overlap", [False, True])
def test_moves_reach_the_device_with_the_next_launch_whichever_fails(overlap):
    """Cells move before a launch, and stay where they are when it fails; its batch held their new numbers."""
    moved = 0
    for failing in range(1, launches() + 1):
        engine = engine_of((failing,), overlap=overlap)
        engine.run(REQUESTS)
        backend = engine.executor.backend
        assert backend.failures == 1
        moved += bool(backend.batches[failing - 1].edits)
        for sequence in engine.recorder.sequences:
            assert sequence.finish_reason is FinishReason.LENGTH
            assert sequence.generated_tokens() == reference(sequence.request), f"launch {failing} failed"
        assert engine.pool.in_use == 0
    assert moved > 1


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("step", [1, 2, 4, 6, 8])
def test_who_is_cancelled_leaves_the_runs_of_others_alone(step, overlap):
    seen = []

    def on_step(engine: Engine) -> None:
        seen.append(engine)
        if len(seen) == step:
            engine.cancel("b")

    engine = engine_of(on_step=on_step, overlap=overlap)
    engine.run(REQUESTS)
    reasons = [sequence.finish_reason for sequence in engine.recorder.sequences]
    assert reasons == [FinishReason.LENGTH, FinishReason.CANCELLED, FinishReason.LENGTH]
    for sequence in engine.recorder.sequences:
        made, expected = sequence.generated_tokens(), reference(sequence.request)
        assert made == (expected if sequence.request.id != "b" else expected[: len(made)])
    assert engine.pool.in_use == 0
