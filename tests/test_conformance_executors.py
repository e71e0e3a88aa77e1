"""Executors: built-in ones keep the laws, and planted faults are found by theirs, in words."""

from __future__ import annotations

import numpy as np
import pytest
from conformance_laws import assert_broken, assert_held

from musebench.core.options import NoOptions
from musebench.core.plan import Limits, StepPlan
from musebench.core.protocols import Forward
from musebench.executors.eager import EagerExecutor
from musebench.executors.graph import GraphExecutor, GraphOptions
from musebench.plugin.registry import Registry
from musebench.testing import ExecutorConformance
from musebench.testing.fake_backend import PlantedFailure
from musebench.testing.laws.executor import hold_executor

REGISTRY = Registry.installed()


class TestGraph(ExecutorConformance):
    examples = 60

    def make(self, backend, limits):
        return GraphExecutor(GraphOptions((1, 2, 4)), backend, limits)


@pytest.mark.parametrize("name", ["eager", "compiled"])
def test_built_in_executors_keep_every_law(name):
    component = REGISTRY.get("executor", name)
    assert_held(hold_executor(lambda backend, limits: component.make({}, backend, limits), examples=30))


def test_an_executor_that_cannot_be_made_on_the_fake_is_not_judged():
    component = REGISTRY.get("executor", "exported")
    found = hold_executor(lambda backend, limits: component.make({}, backend, limits), examples=5)
    assert {finding.outcome for finding in found} == {"not judged"}
    assert "backend 'fake' loads none" in found[0].reason


class Doctored:
    """An output with its tokens changed."""

    device_seconds = margins = None

    def __init__(self, output, change):
        self.output, self.change = output, change

    def wait(self):
        tokens = self.change(self.output.wait())
        self.device_seconds = self.output.device_seconds
        return tokens


class ReturnsAnotherOrder(EagerExecutor):
    def execute(self, batch):
        return Doctored(super().execute(batch), lambda tokens: tokens[::-1].copy())


class DropsASequence(EagerExecutor):
    def cut(self, plan):
        return super().cut(StepPlan(plan.decodes[1:], plan.prefills) if len(plan.decodes) > 1 else plan)


class MutatesItsPlan(EagerExecutor):
    def cut(self, plan):
        object.__setattr__(plan, "decodes", plan.decodes[::-1])
        return super().cut(plan)


class WritesPaddingIntoARealCell(GraphExecutor):
    def execute(self, batch):
        fields = batch.fields
        fields.cells[batch.tokens :] = fields.cells[:1]
        return super().execute(batch)


class ForgetsThatRowsMoved(GraphExecutor):
    def execute(self, batch):
        self.ladder._generation = batch.generation if self.ladder._known else -1
        return super().execute(batch)


class AnswersFromMemory(EagerExecutor):
    known: dict = {}  # noqa: RUF012 - the fault itself

    def execute(self, batch):
        key = batch.buffer.tobytes()
        if key not in self.known:
            self.known[key] = super().execute(batch)
        return self.known[key]


class LaunchesTwice(EagerExecutor):
    def execute(self, batch):
        super().execute(batch)
        return super().execute(batch)


class ExceedsItsLimits(EagerExecutor):
    def cut(self, plan):
        self.limits = Limits(1, max(self.limits.most_prefill - 1, 1), self.limits.most_sequences, 10**6)
        return [Forward(plan, "eager")]


class SwallowsFailures(EagerExecutor):
    def execute(self, batch):
        try:
            return super().execute(batch)
        except PlantedFailure:
            return super().execute(batch)


class CountsBelowZero(EagerExecutor):
    def counters(self):
        return {"forwards": -self._forwards}


class KeepsItsGraphs(GraphExecutor):
    def close(self):
        """Nothing is dropped."""


class GivesWideTokens(EagerExecutor):
    def execute(self, batch):
        return Doctored(super().execute(batch), lambda tokens: tokens.astype(np.int64))


BROKEN_EXECUTORS = {
    ReturnsAnotherOrder: ("waited", "gave tokens that the backend did not make in those rows"),
    DropsASequence: ("slices", "the forwards hold 1 of r1; the plan is 1 of r0 and 1 of r1"),
    MutatesItsPlan: ("plan", "the plan was changed while it was cut"),
    WritesPaddingIntoARealCell: ("padding", "padding has neither"),
    ForgetsThatRowsMoved: ("graphs", "replayed after the rows had moved"),
    AnswersFromMemory: ("batches", "repeated from a cache"),
    LaunchesTwice: ("batches", "launched more than once"),
    ExceedsItsLimits: ("limits", "; it takes"),
    SwallowsFailures: ("failures", "forward failed, and no step was seen to fail"),
    CountsBelowZero: ("counters", "counter 'forwards' is -1, below 0"),
    KeepsItsGraphs: ("close", "is still kept"),
    GivesWideTokens: ("output", "wait gave array"),
}


@pytest.mark.parametrize("kind", BROKEN_EXECUTORS, ids=lambda kind: kind.__name__)
def test_a_broken_executor_is_found_by_its_law_in_words(kind):
    law, words = BROKEN_EXECUTORS[kind]
    options = GraphOptions((1, 4)) if issubclass(kind, GraphExecutor) else NoOptions()
    found = hold_executor(lambda backend, limits: kind(options, backend, limits), examples=40)
    assert_broken(found, {law}, words)
