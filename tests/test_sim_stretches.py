"""Stretches taken in bulk leave what steps taken one by one leave, to the last bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from affine_costs import AffineCosts, use
from hypothesis import given, settings
from hypothesis import strategies as st

from musebench.backends.simulated.backend import SimulatedBackend
from musebench.backends.simulated.options import SimulatedOptions
from musebench.backends.simulated.stops import SeededStops
from musebench.core.batch import StepBatch
from musebench.core.counted import CountedTable
from musebench.core.engine import Engine
from musebench.core.errors import StepFailed
from musebench.core.facts import ModelFacts
from musebench.core.flight import Flight
from musebench.core.plan import Limits
from musebench.core.protocols import PoolBounds
from musebench.core.request import Request
from musebench.core.sequence import Sequence
from musebench.core.table import SequenceTable
from musebench.models.source import Model
from musebench.plugin.registry import Registry
from musebench.report.codec import encode
from musebench.report.columns import RunData
from musebench.report.recorded import run_data

FACTS = ModelFacts("fake", "fake", 1, 1, 1, 1, 1, 1, 50, 10_000, "float32", 1, 1)
REGISTRY = Registry.installed()
CONTEXT = 128
STOP = 7


@dataclass
class Failing:
    """An executor whose launches of some numbers fail, or whose tokens do; a failed step is tried again, or
    its requests end."""

    launches: frozenset[int]
    tokens: frozenset[int]
    retried: bool
    executor: Any = None
    launched: int = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.executor, name)

    def again(self, engine: Engine, failure: StepFailed) -> bool:
        return self.retried

    def execute(self, batch: StepBatch) -> Any:
        self.launched += 1
        if self.launched in self.launches:
            raise RuntimeError("not launched")
        output = self.executor.execute(batch)
        if self.launched not in self.tokens:
            return output
        lost = Mock(margins=None, device_seconds=0.0)
        lost.wait.side_effect = RuntimeError("lost")
        return lost


class StoppingTable(SequenceTable):
    """Reads a stop token where `stop_after` has it, as of a real run: it knows of none that is not back."""

    def __init__(self, slots: int, stop_after: Callable[[Request], int]) -> None:
        super().__init__(slots)
        self.stop_after = stop_after

    def land(self, flight: Flight, tokens: np.ndarray, row: int) -> list[tuple[Sequence, bool]]:
        stops = {
            one.slot: one.prompt_tokens + self.stop_after(one.request) - 1
            for one in flight.sequences
            if one.slot
        }
        at = np.array([stops.get(slot, -1) for slot in flight.slots.tolist()])
        return super().land(flight, np.where(at == flight.positions, STOP, tokens).astype(np.int32), row)


def simulated(
    made: list[Request], bulk: bool, scheduler: str, pool: str, executor: str, limits: Limits, overlap: bool,
    capacity: int | None, costs: AffineCosts, runs: int = 1, executor_options: dict[str, str] | None = None,
    counted: bool = False, concurrency: int | None = None, failing: Failing | None = None,
    stops: SeededStops | None = None,
) -> list[object]:  # fmt: skip
    """Runs one after the other on one pool: everything that a report is made of."""
    model = Model(FACTS)
    with pytest.MonkeyPatch.context() as patch:
        use(patch, costs, 1 << 40)
        backend = SimulatedBackend(SimulatedOptions(), "sim:affine", model)
    bounds = PoolBounds(limits.most_sequences, CONTEXT, capacity)
    launcher = REGISTRY.get("executor", executor).make(executor_options or {}, backend, limits)
    if failing is not None:
        failing = replace(failing, executor=launcher)
    options = {"start": "4", "factor": "1.5"} if pool == "geometric" else {}
    kind = REGISTRY.get("pool", pool)
    policy = kind.load()
    policy = getattr(policy, "Counted", policy) if counted else policy
    owner = policy(kind.parse(options), bounds, backend.storage())
    if stops is not None:
        made = [replace(request, stop_tokens=(STOP,)) for request in made]
    kept = SequenceTable if stops is None else partial(StoppingTable, stop_after=stops)
    left: list[object] = []
    for _ in range(runs):
        engine = Engine(
            REGISTRY.get("scheduler", scheduler).make({}), owner, failing or launcher, backend.clock,
            limits, limits.most_sequences, CONTEXT, overlap, packer=backend.packer, bulk=bulk,
            table=CountedTable(limits.most_sequences, stops) if counted else kept(limits.most_sequences),
            on_failure=None if failing is None else failing.again,
        )  # fmt: skip
        engine.run(made, concurrency)
        assert engine.pool.in_use == 0
        data = run_data(engine, backend.storage(), model, 0, launcher.counters())
        if not counted:  # which are the ids and the cells of a run that keeps them
            assert set(data.requests.token_ids) <= {FACTS.vocab, *(() if stops is None else (STOP,))}
            assert len(data.requests.token_ids) == sum(data.requests.generated_tokens)
            assert not owner.cells.owners[1:].any()
        left += [plain(data), engine.now(), owner.cells.held.tolist(), owner.most_in_use]
        if bulk:
            assert engine.bulk
    return left


def plain(data: RunData) -> dict[str, Any]:
    """What a report keeps of a run, without the ids of tokens, which are all the same."""
    made = json.loads(json.dumps(encode(data), default=list))
    assert isinstance(made, dict)
    for name in ("token_ids", "prompt_sha256"):
        made["requests"].pop(name)
    return made


requests = st.lists(
    st.tuples(
        st.integers(1, 50), st.integers(0, 40), st.sampled_from([0.0, 0.0, 0.004, 0.03, 0.0301, 0.2, 1.0])
    ),
    min_size=1,
    max_size=10,
)


def made_of(drawn: list[tuple[int, int, float]]) -> list[Request]:
    """(prompt tokens, new tokens, arrival) each, in order of arrival."""
    made = [
        Request(f"r{index}", range(prompt), new, arrival_seconds=arrival)
        for index, (prompt, new, arrival) in enumerate(drawn)
    ]
    return sorted(made, key=lambda request: request.arrival_seconds)


parts = st.tuples(
    st.sampled_from(["solo", "static", "continuous", "chunked"]),
    st.sampled_from(["geometric", "fixed"]),
    st.sampled_from(["eager", "graph", "compiled"]),
)
stopping = st.builds(SeededStops, st.integers(0, 1 << 20), st.sampled_from([1.5, 4.0, 20.0]))
costs = st.builds(
    AffineCosts,
    fixed=st.sampled_from([0.0, 1e-3, 4e-3]),
    host=st.sampled_from([0.0, 3e-4]),
    launch=st.sampled_from([0.0, 2e-3]),
)


@settings(max_examples=150)
@given(
    drawn=requests, chosen=parts, overlap=st.booleans(), sequences=st.integers(1, 5),
    fewest=st.sampled_from([1, 3]), extra=st.integers(0, 40), tight=st.booleans(), priced=costs,
    runs=st.integers(1, 2), concurrency=st.sampled_from([None, None, 1, 3]),
)  # fmt: skip
def test_bulk_and_stepwise_leave_the_same_to_the_last_bit(
    drawn, chosen, overlap, sequences, fewest, extra, tight, priced, runs, concurrency
):
    scheduler, pool, executor = chosen
    limits = Limits(fewest, 2 * fewest - 1 + extra // 2, sequences, 2 * fewest - 1 + extra)
    made = made_of(drawn)
    capacity = max(one.cells_needed for one in made) + 5 if tight and pool == "geometric" else None
    options = {"ladder": "2,4"} if executor == "graph" else {}
    stepped, bulk, counted, counted_bulk = (
        simulated(
            made, bulk, scheduler, pool, executor, limits, overlap, capacity, priced, runs, options, counted,
            concurrency,
        )
        for counted in (False, True) for bulk in (False, True)
    )  # fmt: skip
    assert stepped == bulk
    assert stepped == counted
    assert stepped == counted_bulk


@settings(max_examples=150)
@given(
    drawn=requests, chosen=parts, overlap=st.booleans(), sequences=st.integers(1, 5),
    extra=st.integers(0, 40), tight=st.booleans(), priced=costs, runs=st.integers(1, 2),
    concurrency=st.sampled_from([None, None, 1, 3]), stops=stopping,
)  # fmt: skip
def test_a_drawn_stop_ends_a_request_as_a_stop_token_that_is_read(
    drawn, chosen, overlap, sequences, extra, tight, priced, runs, concurrency, stops
):
    scheduler, pool, executor = chosen
    limits = Limits(1, 1 + extra // 2, sequences, 1 + extra)
    made = made_of(drawn)
    capacity = max(one.cells_needed for one in made) + 5 if tight and pool == "geometric" else None
    options = {"ladder": "2,4"} if executor == "graph" else {}
    read, counted, counted_bulk = (
        simulated(
            made, bulk, scheduler, pool, executor, limits, overlap, capacity, priced, runs, options, counted,
            concurrency, stops=stops,
        )
        for counted, bulk in ((False, False), (True, False), (True, True))
    )  # fmt: skip
    assert read == counted
    assert read == counted_bulk
    requests = read[0]["requests"]
    for name, most, made_tokens, reason in zip(
        requests["id"], requests["max_new_tokens"], requests["generated_tokens"], requests["finish_reason"],
        strict=True,
    ):  # fmt: skip
        if reason in ("stop", "length"):
            stop = stops(Request(name, range(1), most))
            assert made_tokens == min(stop, most)
            assert reason == ("stop" if most and stop <= most else "length")


some_steps = st.frozensets(st.integers(1, 30), max_size=6)


@settings(max_examples=100)
@given(
    drawn=requests, chosen=parts, overlap=st.booleans(), sequences=st.integers(1, 5),
    extra=st.integers(0, 40), tight=st.booleans(), priced=costs, retried=st.booleans(),
    launches=some_steps, tokens=some_steps, stops=st.none() | stopping,
)  # fmt: skip
def test_after_a_step_that_failed_counts_are_those_of_a_table_with_tokens(
    drawn, chosen, overlap, sequences, extra, tight, priced, retried, launches, tokens, stops
):
    scheduler, pool, executor = chosen
    limits = Limits(1, 1 + extra // 2, sequences, 1 + extra)
    made = made_of(drawn)
    capacity = max(one.cells_needed for one in made) + 5 if tight and pool == "geometric" else None
    options = {"ladder": "2,4"} if executor == "graph" else {}
    failing = Failing(launches, tokens, retried)
    kept, counted = (
        simulated(
            made, False, scheduler, pool, executor, limits, overlap, capacity, priced, 1, options, counted,
            failing=failing, stops=stops,
        )
        for counted in (False, True)
    )  # fmt: skip
    assert kept == counted
