"""Executors that cheat, each found out: its report is INVALID with the reason, its speed struck out."""

from __future__ import annotations

import numpy as np
import pytest

import musebench
from musebench.core.forwards import cut_to_limits
from musebench.core.options import NoOptions
from musebench.core.plan import StepPlan
from musebench.core.protocols import Forward
from musebench.executors.eager import EagerExecutor
from musebench.plugin import hookimpl
from musebench.plugin.registry import Registry
from musebench.report.compare import compare
from musebench.report.tables import show
from musebench.report.verdict import judge
from musebench.run import RunOptions, run


class Doctored:
    """An output that gives what it likes."""

    def __init__(self, output=None, tokens=None, seconds=None, change=None):
        self._output, self._tokens, self._seconds, self._change = output, tokens, seconds, change
        self.margins = None

    @property
    def device_seconds(self):
        return self._output.device_seconds if self._seconds is None else self._seconds

    def wait(self):
        if self._tokens is not None:
            return self._tokens
        tokens = self._output.wait()
        return tokens if self._change is None else self._change(tokens)


class CachedOutput(EagerExecutor):
    """Answers what it has seen in the warm-up from memory, right tokens and all."""

    def __init__(self, options, backend, limits):
        super().__init__(options, backend, limits)
        self.known = {}

    def execute(self, batch):
        # Cells and slots may differ from run to run; tokens and positions say it all.
        key = batch.fields.token_ids.tobytes() + batch.fields.positions.tobytes()
        if key not in self.known:
            output = super().execute(batch)
            self.known[key] = (output.wait(), output.device_seconds)
            return output
        tokens, seconds = self.known[key]
        return Doctored(tokens=tokens, seconds=seconds)


class SkippedWait(EagerExecutor):
    """Does not wait for the device: says what it guesses."""

    def execute(self, batch):
        output = super().execute(batch)
        return Doctored(tokens=np.zeros(batch.rows, np.int32), seconds=1e-6, output=output)


class ExtraTokens(EagerExecutor):
    """Hands back more tokens than were asked for."""

    def execute(self, batch):
        return Doctored(super().execute(batch), change=lambda tokens: np.append(tokens, 1).astype(np.int32))


class ReorderedPlan(EagerExecutor):
    """Cuts a plan into its slices in another order: cells go to others than they were claimed for."""

    def cut(self, plan):
        return cut_to_limits(StepPlan(plan.decodes, tuple(reversed(plan.prefills))), self.limits, "eager")


class MutatedPlan(EagerExecutor):
    """Changes the plan itself, which is frozen, behind the engine's back."""

    def cut(self, plan):
        if len(plan.prefills) > 1:
            first, second, *rest = plan.prefills
            object.__setattr__(plan, "prefills", (second, first, *rest))
        return [Forward(plan, "eager")]


class MutatedBatch(EagerExecutor):
    """Runs other tokens than the engine packed."""

    def execute(self, batch):
        batch.fields.token_ids[:] = 5
        return super().execute(batch)


class ShortenedBatch(EagerExecutor):
    """Computes a step of one token in place of the step that was asked for."""

    def execute(self, batch):
        fields = batch.fields
        fields.positions[1:] = fields.cells[1:] = fields.slots[1:] = fields.token_ids[1:] = 0
        return super().execute(batch)


class FasterThanItIs(EagerExecutor):
    """Says a thousandth of the time on the device."""

    def execute(self, batch):
        output = super().execute(batch)
        output.wait()
        return Doctored(output, seconds=output.device_seconds / 1000)


class NoDeviceTime(EagerExecutor):
    """Says that the device took no time at all."""

    def execute(self, batch):
        return Doctored(super().execute(batch), seconds=0.0)


class DroppedSlices(EagerExecutor):
    """Leaves the last slice of every plan out."""

    def cut(self, plan):
        if len(plan.prefills) > 1:
            plan = StepPlan(plan.decodes, plan.prefills[:-1])
        return super().cut(plan)


class SwappedRows(EagerExecutor):
    """Gives each sequence its neighbour's token."""

    def execute(self, batch):
        return Doctored(super().execute(batch), change=lambda tokens: np.roll(tokens, 1))


class LaunchedTwice(EagerExecutor):
    """Runs each step twice, so that the second finds its keys and values there."""

    def execute(self, batch):
        super().execute(batch)
        return super().execute(batch)


class LyingClock(EagerExecutor):
    """Slows the run's clock to a tenth."""

    def __init__(self, options, backend, limits):
        super().__init__(options, backend, limits)
        real = backend.clock.now
        start = real()
        backend.clock.now = lambda: start + (real() - start) / 10

    def execute(self, batch):
        output = super().execute(batch)
        output.wait()
        return Doctored(output, seconds=output.device_seconds)


CHEATS = {
    CachedOutput: "repeated from a cache",
    SkippedWait: "not synchronised",
    ExtraTokens: "tokens came back for",
    ReorderedPlan: "do not hold their slices in order",
    MutatedPlan: "do not hold their slices in order",
    MutatedBatch: "another batch than the engine packed",
    ShortenedBatch: "another batch than the engine packed",
    FasterThanItIs: "a device time that the backend did not measure",
    NoDeviceTime: "in 0 s on the device",
    DroppedSlices: "do not hold their slices in order",
    SwappedRows: "did not make in those rows",
    LaunchedTwice: "launched more than once",
    LyingClock: "clock",
}


class Plugin:
    @hookimpl
    def register_executors(self, register):
        for cheat in CHEATS:
            register(cheat.__name__.lower(), cheat, options=NoOptions)


@pytest.fixture(scope="module")
def registry():
    made = Registry(strict=True)
    from musebench.plugin import builtin

    made.add(builtin, "musebench", musebench.__version__)
    made.add(Plugin(), "cheats", "1")
    return made


@pytest.fixture(scope="module")
def checks(registry):
    # A short run cannot miss 50 ms; nothing else is changed.
    values = {"honest": {"clock_slack": 0.001}}
    return [component.make(values.get(component.name, {})) for component in registry.components("check")]


def reported(registry, executor):
    return run(RunOptions("capitals", executor=executor, warmup=1), registry)


def test_an_honest_executor_is_believed(registry, checks):
    report = reported(registry, "eager")
    (judgement,) = judge([report], checks)
    assert judgement.valid, judgement.line()
    audit = dict(report.runs[0].audit)
    assert audit.pop("forwards") == sum(report.runs[0].steps.forwards) > 0
    assert set(audit.values()) == {0}


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.__name__)
def test_a_cheat_is_found_out_and_its_speed_struck_out(cheat, registry, checks):
    report = reported(registry, cheat.__name__.lower())
    (judgement,) = judge([report], checks)
    assert not judgement.valid
    assert CHEATS[cheat] in judgement.line()
    text = show(report, "github", checks)
    assert "INVALID" in text
    for line in text.splitlines():
        if line.startswith(("| output tokens/s ", "| TTFT ", "| device time ")):
            values = [cell.strip() for cell in line.split("|")[2:] if cell.strip()]
            assert all(value == "-" or value.startswith("~~") for value in values[:1]), line


def test_a_cheats_tokens_may_be_right_and_it_is_invalid_all_the_same(registry, checks):
    report = reported(registry, "cachedoutput")
    assert report.runs[0].requests.correct == [True] * 5
    assert not judge([report], checks)[0].valid


def test_nothing_is_compared_with_a_cheats_speed(registry, checks):
    honest, cheat = reported(registry, "eager"), reported(registry, "fasterthanitis")
    made = compare([honest, cheat], ("honest", "cheat"), checks=checks)
    results = made.tables[1]
    speed = [row for row in results.rows if row.speed]
    assert speed
    assert all(results.is_struck(row, "cheat") for row in speed)
    assert all(row.changes[1] is None for row in speed if row.changes)
    assert "cheat: INVALID" in made.show()
