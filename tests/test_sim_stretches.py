"""Stretches taken in bulk leave what steps taken one by one leave, to the last bit."""

from __future__ import annotations

import dataclasses

import pytest
from affine_costs import AffineCosts
from hypothesis import given, settings
from hypothesis import strategies as st

from musebench.backends.simulated import backend as backend_module
from musebench.backends.simulated.backend import SimulatedBackend
from musebench.backends.simulated.device import SimulatedDevice
from musebench.backends.simulated.options import SimulatedOptions
from musebench.core.engine import Engine
from musebench.core.facts import ModelFacts
from musebench.core.plan import Limits
from musebench.core.protocols import PoolBounds
from musebench.core.request import Request
from musebench.models.source import Model
from musebench.plugin.registry import Registry
from musebench.report.recorded import run_data

FACTS = ModelFacts("fake", "fake", 1, 1, 1, 1, 1, 1, 50, 10_000, "float32", 1, 1)
REGISTRY = Registry.installed()
CONTEXT = 128


def simulated(
    made: list[Request], bulk: bool, scheduler: str, pool: str, executor: str, limits: Limits, overlap: bool,
    capacity: int | None, costs: AffineCosts, runs: int = 1, executor_options: dict[str, str] | None = None,
) -> list[object]:  # fmt: skip
    """Runs one after the other on one pool: everything that a report is made of."""
    patch = pytest.MonkeyPatch()
    patch.setattr(backend_module, "open_device", lambda name, facts: SimulatedDevice(name, 1 << 40, costs))
    try:
        model = Model(FACTS)
        backend = SimulatedBackend(SimulatedOptions(), "sim:affine", model)
    finally:
        patch.undo()
    bounds = PoolBounds(limits.most_sequences, CONTEXT, capacity)
    launcher = REGISTRY.get("executor", executor).make(executor_options or {}, backend, limits)
    options = {"start": "4", "factor": "1.5"} if pool == "geometric" else {}
    owner = REGISTRY.get("pool", pool).make(options, bounds, backend.storage())
    left: list[object] = []
    for _ in range(runs):
        engine = Engine(
            REGISTRY.get("scheduler", scheduler).make({}), owner, launcher, backend.clock, limits,
            limits.most_sequences, CONTEXT, overlap, None, backend.packer, bulk,
        )  # fmt: skip
        engine.run(made)
        assert engine.pool.in_use == 0
        data = run_data(engine, backend.storage(), model, 0, launcher.counters())
        left += [dataclasses.asdict(data), engine.now(), owner.cells.owners.tolist()]
        if bulk:
            assert engine.bulk
    return left


requests = st.lists(
    st.tuples(
        st.integers(1, 50), st.integers(0, 40), st.sampled_from([0.0, 0.0, 0.004, 0.03, 0.0301, 0.2, 1.0])
    ),
    min_size=1,
    max_size=10,
)
parts = st.tuples(
    st.sampled_from(["solo", "static", "continuous", "chunked"]),
    st.sampled_from(["geometric", "fixed"]),
    st.sampled_from(["eager", "graph", "compiled"]),
)
costs = st.builds(
    AffineCosts,
    fixed=st.sampled_from([0.0, 1e-3, 4e-3]),
    host=st.sampled_from([0.0, 3e-4]),
    launch=st.sampled_from([0.0, 2e-3]),
)


@settings(max_examples=150, deadline=None)
@given(
    drawn=requests, chosen=parts, overlap=st.booleans(), sequences=st.integers(1, 5),
    fewest=st.sampled_from([1, 3]), extra=st.integers(0, 40), tight=st.booleans(), priced=costs,
    runs=st.integers(1, 2),
)  # fmt: skip
def test_bulk_and_stepwise_leave_the_same_to_the_last_bit(
    drawn, chosen, overlap, sequences, fewest, extra, tight, priced, runs
):
    scheduler, pool, executor = chosen
    limits = Limits(fewest, 2 * fewest - 1 + extra // 2, sequences, 2 * fewest - 1 + extra)
    made = [
        Request(f"r{index}", range(prompt), new, arrival_seconds=arrival)
        for index, (prompt, new, arrival) in enumerate(drawn)
    ]
    made.sort(key=lambda request: request.arrival_seconds)
    capacity = max(one.cells_needed for one in made) + 5 if tight and pool == "geometric" else None
    options = {"ladder": "2,4"} if executor == "graph" else {}
    both = [
        simulated(
            made, bulk, scheduler, pool, executor, limits, overlap, capacity, priced, runs, options
        )
        for bulk in (False, True)
    ]  # fmt: skip
    assert both[0] == both[1]
