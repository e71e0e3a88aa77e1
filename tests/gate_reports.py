"""Reports of the fakes on a virtual clock, with faults planted: what a gate must see."""

from __future__ import annotations

import dataclasses
import types

from fakes import FACTS, LIMITS, FakeStorage, FaultyExecutor, engine_of
from report_examples import report

from musebench.core.options import NoOptions
from musebench.core.plan import Limits
from musebench.core.request import Request
from musebench.report.recorded import run_data

MODEL = types.SimpleNamespace(tokenizer=None, stop_tokens=(), facts=FACTS)
MIB = 1 << 20


class SlowScheduler:
    """Takes `share` of a step's second longer to plan it."""

    def __init__(self, inner, clock, share):
        self.inner, self.clock, self.share, self.name = inner, clock, share, inner.name

    def plan(self, *arguments):
        self.clock.advance(self.share)
        return self.inner.plan(*arguments)


class TwoLaunches(FaultyExecutor):
    """Launches every forward twice; the tokens are the same."""

    launches = 0

    def execute(self, batch):
        super().execute(batch)
        self.launches += 1
        return super().execute(batch)

    def counters(self):
        return {"forwards": self.calls}


class FatStorage(FakeStorage):
    """Says what it holds, and `more` bytes."""

    more = MIB
    bytes = property(lambda self: FakeStorage.bytes.fget(self) + self.more)


def virtual_report(slower=0.0, executor=None, limits=LIMITS, storage=None, pool_options=None):
    """A report of twelve requests through the fakes, with the named fault in it."""
    storage = storage or FakeStorage()
    engine = engine_of(limits=limits, executor=executor, storage=storage, pool_options=pool_options)
    if slower:
        engine.scheduler = SlowScheduler(engine.scheduler, engine.clock, slower)
    engine.run(Request(f"r{index}", range(5 + 3 * index), 4 + index) for index in range(12))
    run = run_data(engine, storage, MODEL, 0, dict(engine.executor.counters()))
    conditions = dataclasses.replace(report().conditions, clock="virtual", repeats=1)
    return report(run, conditions=conditions)


def with_more_weights(made, more=MIB):
    computed = dataclasses.replace(made.memory.computed, weights=made.memory.computed.weights + more)
    return dataclasses.replace(made, memory=dataclasses.replace(made.memory, computed=computed))


def two_launches(backend, limits):
    return TwoLaunches(NoOptions(), backend, limits)


def narrow_forwards(backend, limits):
    """Takes one token less in a forward than the step plans: one more forward where a step is full."""
    made = FaultyExecutor(NoOptions(), backend, limits)
    made.limits = Limits(
        limits.fewest_prefill, limits.most_prefill, limits.most_sequences - 1, limits.most_tokens
    )
    return made
