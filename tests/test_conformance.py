"""The conformance kit passes built-in components and finds planted faults, by their laws and in words."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from musebench.cli import root
from musebench.core.errors import PoolFull, UsageError
from musebench.core.options import NoOptions
from musebench.core.plan import Limits, Slice, StepPlan
from musebench.core.protocols import Forward
from musebench.executors.eager import EagerExecutor
from musebench.executors.graph import GraphExecutor, GraphOptions
from musebench.plugin.registry import Registry
from musebench.pools.geometric import GeometricOptions, GeometricPool
from musebench.report.verdict import Verdict
from musebench.schedulers.chunked import ChunkedOptions, ChunkedScheduler
from musebench.schedulers.solo import SoloScheduler
from musebench.testing import CheckConformance, ExecutorConformance, PoolConformance, SchedulerConformance
from musebench.testing.fake_backend import PlantedFailure
from musebench.testing.laws import search as searching
from musebench.testing.laws.check import hold_check
from musebench.testing.laws.executor import hold_executor
from musebench.testing.laws.pool import hold_pool
from musebench.testing.laws.router import hold_router
from musebench.testing.laws.scheduler import hold_scheduler
from musebench.testing.laws.trace import hold_trace
from musebench.workload.traces.plain import PlainCsvReader

REGISTRY = Registry.installed()


class TestGeometric(PoolConformance):
    examples = 80

    def make(self, bounds, storage):
        return GeometricPool(GeometricOptions(start=4, factor=1.5), bounds, storage)


class TestFixed(PoolConformance):
    examples = 150

    def make(self, bounds, storage):
        return REGISTRY.get("pool", "fixed").make({}, bounds, storage)


class TestChunked(SchedulerConformance):
    examples = 15

    def make(self):
        return ChunkedScheduler(ChunkedOptions())


@pytest.mark.parametrize("name", ["solo", "static", "continuous"])
def test_built_in_schedulers_keep_every_law(name):
    component = REGISTRY.get("scheduler", name)
    for finding in hold_scheduler(lambda: component.make({}), examples=12):
        assert finding.outcome == "held", finding.text()


class LeaksACell(GeometricPool):
    def release(self, slot):
        self.rewind(slot, min(1, int(self.cells.held[slot])))


class OwnsACellTwice(GeometricPool):
    def reserve(self, plan):
        cells = super().reserve(plan)
        cells[cells == 3] = 1
        return cells


class GivesScratch(GeometricPool):
    def reserve(self, plan):
        return super().reserve(plan) - 1


class BumpsNeedlessly(GeometricPool):
    def reserve(self, plan):
        self.generation += 1
        return super().reserve(plan)


class ForgetsAGeneration(GeometricPool):
    def reserve(self, plan):
        cells = super().reserve(plan)
        self.generation = min(self.generation, 1)
        return cells


class ExceedsItsCapacity(GeometricPool):
    def reserve(self, plan):
        known, self._capacity = self._capacity, 10**6
        try:
            return super().reserve(plan)
        finally:
            self._capacity = known


class DropsRowsWhenItGrows(GeometricPool):
    def __init__(self, options, bounds, storage):
        super().__init__(options, bounds, storage)
        resize = storage.resize
        storage.resize = lambda rows, live: resize(rows, min(live, 1))


class ChangesInARefusal(GeometricPool):
    def reserve(self, plan):
        try:
            return super().reserve(plan)
        except PoolFull:
            self.generation += 1
            raise


class RefusesTheLastCell(GeometricPool):
    def reserve(self, plan):
        if self.in_use + plan.tokens == self.capacity:
            raise PoolFull(plan.tokens + 1, plan.tokens, self.capacity)
        return super().reserve(plan)


class CountsDown(GeometricPool):
    def counters(self):
        return {"refusals": -self.refusals}


class MutatesThePlan(GeometricPool):
    def reserve(self, plan):
        cells = super().reserve(plan)
        object.__setattr__(plan, "prefills", plan.prefills[:-1])
        return cells


class ForgetsTheFork(GeometricPool):
    def take_edits(self):
        super().take_edits()
        return ()


BROKEN_POOLS = {
    LeaksACell: ("release", "1 cell is owned by nobody but counted in use"),
    OwnsACellTwice: ("owners", "cell 1 was given to B and belongs to A"),
    GivesScratch: ("scratch", "cell 0, which is scratch, was given to A"),
    BumpsNeedlessly: ("generation", "no address moved"),
    ForgetsAGeneration: ("generation", "addresses moved, and the generation is still 1"),
    ExceedsItsCapacity: ("capacity", "the capacity is"),
    DropsRowsWhenItGrows: ("tokens", "holds nothing, where token 0 of A was written"),
    ChangesInARefusal: ("refusal", "the refused plan changed the pool: generation went from"),
    RefusesTheLastCell: ("quote", "fit, and it was refused with a room of 4"),
    CountsDown: ("counters", "counter 'refusals' is -1, below 0"),
    MutatesThePlan: ("plan", "the plan or its sequences changed"),
    ForgetsTheFork: ("fork", "take_edits told cells [] of B"),
}


@pytest.mark.parametrize("pool", BROKEN_POOLS, ids=lambda pool: pool.__name__)
def test_a_broken_pool_is_found_by_its_law_in_words(pool):
    law, words = BROKEN_POOLS[pool]
    found = hold_pool(lambda bounds, storage: pool(GeometricOptions(start=4), bounds, storage), examples=150)
    broken = {finding.law.name: finding for finding in found if finding.outcome == "broken"}
    assert law in broken, {name: finding.text() for name, finding in broken.items()}
    assert words in broken[law].sentence()
    assert 1 <= len(broken[law].history) <= 6, broken[law].text()


class LastComesFirst(ChunkedScheduler):
    def plan(self, waiting, running, limits, pool):
        made = super().plan(list(waiting)[::-1], running, limits, pool)
        return StepPlan(made.decodes, made.prefills)


class NeverDecodesTheFirst(ChunkedScheduler):
    def plan(self, waiting, running, limits, pool):
        made = super().plan(waiting, running, limits, pool)
        others = tuple(one for one in made.decodes if one.session)
        return StepPlan(others, made.prefills) if others or made.prefills else made


class ExceedsTheBudget(ChunkedScheduler):
    def plan(self, waiting, running, limits, pool):
        more = Limits(
            limits.fewest_prefill, limits.most_prefill, limits.most_sequences, limits.most_tokens + 3
        )
        return super().plan(waiting, running, more, pool)


class PlansNothing(SoloScheduler):
    def plan(self, waiting, running, limits, pool):
        made = super().plan(waiting, running, limits, pool)
        return StepPlan() if running.decoding else made


class PlansAFinishedSequence(SoloScheduler):
    last: tuple = ()

    def plan(self, waiting, running, limits, pool):
        made = super().plan(waiting, running, limits, pool)
        self.last, before = (*self.last, *made.decodes), self.last
        ended = [one for one in before if one.finish_reason is not None]
        return StepPlan((*made.decodes, ended[0]), made.prefills) if ended else made


class PreemptsInACircle(ChunkedScheduler):
    """Fills whatever room there is with the start of a prompt, which those who run need next."""

    def plan(self, waiting, running, limits, pool):
        made = super().plan((), running, limits, pool)
        free = len(running) < limits.most_sequences and limits.fewest_prefill == 1
        if waiting and free and not made.prefills:
            one = waiting[0]
            room = min(pool.room, limits.most_tokens) - made.tokens
            count = min(one.remaining, room, limits.most_prefill)
            if count > 0:
                return StepPlan(made.decodes, (Slice(one, count),))
        return made if not made.empty else super().plan(waiting, running, limits, pool)


class ForgetsWhatItPlanned(ChunkedScheduler):
    calls = 0

    def plan(self, waiting, running, limits, pool):
        ForgetsWhatItPlanned.calls += 1
        made = super().plan(waiting, running, limits, pool)
        few = (
            made.decodes[:-1]
            if ForgetsWhatItPlanned.calls % 7 == 0 and len(made.decodes) > 1
            else made.decodes
        )
        return StepPlan(few, made.prefills)


class Meddles(SoloScheduler):
    def plan(self, waiting, running, limits, pool):
        if running.decoding:
            pool.rewind(running.decoding[0].slot, 0)
        return super().plan(waiting, running, limits, pool)


BROKEN_SCHEDULERS = {
    LastComesFirst: ({"order", "waiting"}, "which came earlier and differs in nothing else"),
    NeverDecodesTheFirst: ({"running"}, "r0 runs and was not planned while others computed"),
    ExceedsTheBudget: ({"limits"}, "tokens in a plan; at most"),
    PlansNothing: ({"progress"}, "nothing is planned, and r0 could run"),
    PlansAFinishedSequence: ({"known"}, "is planned, and has ended"),
    PreemptsInACircle: ({"preemptions"}, "preemptions of"),
    ForgetsWhatItPlanned: ({"same"}, "is another the second time"),
    Meddles: ({"reads"}, "planning changed a sequence or the pool"),
}


@pytest.mark.parametrize("kind", BROKEN_SCHEDULERS, ids=lambda kind: kind.__name__)
def test_a_broken_scheduler_is_found_by_its_law_in_words(kind):
    laws, words = BROKEN_SCHEDULERS[kind]
    options = NoOptions() if issubclass(kind, SoloScheduler) else ChunkedOptions()
    found = hold_scheduler(lambda: kind(options), examples=40)
    broken = {finding.law.name: finding for finding in found if finding.outcome == "broken"}
    assert laws & set(broken), {finding.law.name: finding.text() for finding in found}
    assert any(words in broken[law].sentence() for law in laws & set(broken)), broken


class TestGraph(ExecutorConformance):
    examples = 60

    def make(self, backend, limits):
        return GraphExecutor(GraphOptions((1, 2, 4)), backend, limits)


@pytest.mark.parametrize("name", ["eager", "compiled"])
def test_built_in_executors_keep_every_law(name):
    component = REGISTRY.get("executor", name)
    for finding in hold_executor(lambda backend, limits: component.make({}, backend, limits), examples=30):
        assert finding.outcome == "held", finding.text()


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
    SwallowsFailures: ("failures", "forward failed, and 0 steps was seen to fail"),
    CountsBelowZero: ("counters", "counter 'forwards' is -1, below 0"),
    KeepsItsGraphs: ("close", "is still kept"),
    GivesWideTokens: ("output", "wait gave array"),
}


@pytest.mark.parametrize("kind", BROKEN_EXECUTORS, ids=lambda kind: kind.__name__)
def test_a_broken_executor_is_found_by_its_law_in_words(kind):
    law, words = BROKEN_EXECUTORS[kind]
    options = GraphOptions((1, 4)) if issubclass(kind, GraphExecutor) else NoOptions()
    found = hold_executor(lambda backend, limits: kind(options, backend, limits), examples=40)
    broken = {finding.law.name: finding for finding in found if finding.outcome == "broken"}
    assert law in broken, {finding.law.name: finding.text() for finding in found}
    assert words in broken[law].sentence()


def test_the_command_prints_a_line_a_law():
    result = CliRunner().invoke(root, ["conformance", "geometric", "--examples", "20", "--format", "json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.output)
    assert {"owners", "last cell", "generation", "errors"} <= {row["law"] for row in rows}
    assert {row["kind"] for row in rows} == {"pool"}


def test_the_command_refuses_what_has_no_laws_in_one_line():
    with pytest.raises(
        Exception, match="nothing that has laws is named 'geometrix'; did you mean 'geometric'"
    ):
        CliRunner().invoke(root, ["conformance", "geometrix"], standalone_mode=False, catch_exceptions=False)


@pytest.mark.parametrize(
    ("names", "way"),
    [
        (["pool", "geometric"], "say: musebench conformance geometric --kind pool"),
        (["geometric", "fixed"], "run it once for each"),
    ],
)
def test_the_command_refuses_several_names_and_knows_a_kind_among_them(names, way):
    with pytest.raises(UsageError) as refused:
        CliRunner().invoke(root, ["conformance", *names], standalone_mode=False, catch_exceptions=False)
    assert str(refused.value) == f"conformance takes one NAME, not 2 ({', '.join(names)}); {way}"


def test_without_hypothesis_the_kit_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "hypothesis", None)
    with pytest.raises(
        Exception, match=r"hypothesis, which is not installed; pip install 'musebench\[testing\]'"
    ):
        searching.strategies()


TRACES = {
    "azure": b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
    b"2023-11-16 18:15:50.9951690,396,109\n",
    "burstgpt": b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    b"5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,230,1317,API log\n",
    "llmservingsim": b'{"input_toks": 3, "output_toks": 4, "arrival_time_ns": 0, "input_tok_ids": [7, 8, 9]}'
    b"\n"
    b'{"input_toks": 2, "output_toks": 1, "arrival_time_ns": 1500000000, "input_tok_ids": [7, 5]}\n',
    "mooncake": b'{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n'
    b'{"timestamp": 30, "input_length": 700, "output_length": 2, "hash_ids": [0, 2]}\n',
    "plain-csv": b"arrival,prompt_tokens,output_tokens\n0,3,4\n1.5,2,0\n",
    "plain-jsonl": b'{"prompt_tokens": 3, "output_tokens": 4}\n{"prompt_tokens": 2, "output_tokens": 1}\n',
    "splitwise": b"request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,"
    b"token_size\n"
    b"0,2,0,0.0,1,374,44\n1,2,0,4.3,1,396,109\n",
    "vidur": b"arrived_at,num_prefill_tokens,num_decode_tokens\n0,374,44\n4.3,396,109\n",
}


def test_every_built_in_trace_format_has_a_file_here():
    built_in = {one.name for one in REGISTRY.components("trace") if one.package == "musebench"}
    assert built_in == set(TRACES)


@pytest.mark.parametrize("name", TRACES)
def test_built_in_trace_readers_keep_every_law(name):
    component = REGISTRY.get("trace", name)
    for finding in hold_trace(lambda: component.make({}), TRACES[name], "trace.txt", examples=40):
        assert finding.outcome == "held", finding.text()


class CountsTimesDown(PlainCsvReader):
    def read(self, path):
        return (replace(row, arrival_seconds=-(row.arrival_seconds or 0.0)) for row in super().read(path))


class CrashesOnAWord(PlainCsvReader):
    def read(self, path):
        for line in path.read_text(errors="replace").splitlines()[1:]:
            int(line.split(",")[1])
        return super().read(path)


class TakesEverything(PlainCsvReader):
    def recognises(self, head, filename):
        return True


BROKEN_READERS = {
    CountsTimesDown: ("rows", "row 2 has the time -1.5 s"),
    CrashesOnAWord: ("errors", "was raised in test_conformance.py"),
    TakesEverything: ("recognises", "it takes garbage for its own"),
}


@pytest.mark.parametrize("kind", BROKEN_READERS, ids=lambda kind: kind.__name__)
def test_a_broken_trace_reader_is_found_by_its_law_in_words(kind):
    law, words = BROKEN_READERS[kind]
    found = {
        finding.law.name: finding for finding in hold_trace(kind, TRACES["plain-csv"], "t.csv", examples=60)
    }
    assert found[law].outcome == "broken", found
    assert words in found[law].sentence()


@pytest.mark.parametrize("name", [component.name for component in REGISTRY.components("check")])
def test_built_in_checks_keep_every_law(name):
    component = REGISTRY.get("check", name)
    for finding in hold_check(lambda: component.make({}), examples=8):
        assert finding.outcome == ("not judged" if finding.law.name == "fails" else "held"), finding.text()


class TestPoolCheck(CheckConformance):
    examples = 8

    def make(self):
        return REGISTRY.get("check", "pool").make({})

    def broken(self, report):
        runs = [replace(run, left_in_use=3) for run in report.runs]
        return replace(report, runs=runs)


class NeverFails:
    def check(self, reports):
        return [Verdict(report.id, "never", True, what="nothing") for report in reports]


class FailsWithoutAReason:
    def check(self, reports):
        return [Verdict(report.id, "mute", False) for report in reports]


class WantsMemory:
    def check(self, reports):
        return [
            Verdict(report.id, "memory", report.memory.snapshots["peak"].host_peak != 0) for report in reports
        ]


BROKEN_CHECKS = {
    NeverFails: ("fails", "none of its 1 verdicts fails the report that must fail"),
    FailsWithoutAReason: ("verdicts", "without a reason"),
    WantsMemory: ("errors", "KeyError was raised"),
}


@pytest.mark.parametrize("kind", BROKEN_CHECKS, ids=lambda kind: kind.__name__)
def test_a_broken_check_is_found_by_its_law_in_words(kind):
    law, words = BROKEN_CHECKS[kind]
    broken = (lambda report: report) if law == "fails" else None
    found = {finding.law.name: finding for finding in hold_check(kind, broken, examples=20)}
    assert found[law].outcome == "broken", found
    assert words in found[law].sentence()


@pytest.mark.parametrize("name", [component.name for component in REGISTRY.components("router")])
def test_built_in_routers_keep_every_law(name):
    component = REGISTRY.get("router", name)
    for finding in hold_router(lambda: component.make({}), examples=60):
        assert finding.outcome == "held", finding.text()


class OneTooMany:
    name = "one-too-many"

    def route(self, request, replicas):
        return len(request.prompt) % (len(replicas) + 1)


class Remembers:
    name, asked = "remembers", 0

    def route(self, request, replicas):
        Remembers.asked += 1
        return Remembers.asked % len(replicas)


@pytest.mark.parametrize(
    ("kind", "law", "words"),
    [(OneTooMany, "place", "it answered 1 for 1 replicas"), (Remembers, "same", "the second time")],
)
def test_a_broken_router_is_found_by_its_law_in_words(kind, law, words):
    found = {finding.law.name: finding for finding in hold_router(kind, examples=60)}
    assert found[law].outcome == "broken", found
    assert words in found[law].sentence()


def test_the_command_holds_a_trace_reader_to_a_file(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_bytes(TRACES["plain-csv"])
    asked = ["conformance", "plain-csv", "--examples", "10", "--file", str(path)]
    result = CliRunner().invoke(root, asked)
    assert result.exit_code == 0, result.output
    assert "| trace  | plain-csv | endings" in result.output
