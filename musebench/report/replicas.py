"""One run of several replicas: their data in one, and each one's own again.

The requests of all stand in the workload's order and the steps in the order of their ends, so that every
number of a run can be had of the whole; `RunData.replicas` keeps what cannot be told apart there.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence as Ordered
from typing import Any, TypeVar

import numpy as np

from musebench.report.column import Column
from musebench.report.columns import (
    Columns,
    GrowthColumns,
    PoolData,
    ReplicaData,
    RequestColumns,
    RunData,
    StepColumns,
)

C = TypeVar("C", bound=Columns)


def _column(values: np.ndarray) -> Any:
    return Column(values)


def merged(runs: Ordered[RunData], places: Ordered[int]) -> RunData:
    """The run of which `runs` are the replicas' parts; `places` int [requests] are their requests' places in
    the workload's order, replica after replica."""
    count = [len(run.steps) for run in runs]
    replica = np.repeat(np.arange(len(runs)), count)
    ends = np.concatenate([np.asarray(run.steps.end, np.float64) for run in runs])
    order = np.lexsort((replica, ends))  # stable: a replica's own steps stay in order
    row_of = np.empty(len(order), np.int64)
    row_of[order] = np.arange(len(order))
    first = np.cumsum([0, *count])
    rows = [row_of[start : start + size] for start, size in zip(first, count, strict=False)]
    steps = _taken(_joined([_all_programs(run.steps, runs) for run in runs]), order)
    requests = _joined([
        dataclasses.replace(
            _whole(run.requests),
            token_steps=None
            if run.requests.token_steps is None
            else _column(own[np.asarray(run.requests.token_steps, np.int64)]),
            replica=_column(np.full(len(run.requests), place)),
        )
        for place, (run, own) in enumerate(zip(runs, rows, strict=True))
    ])  # fmt: skip
    pools = [
        dataclasses.replace(run.pool, growths=_steps_moved(run.pool.growths, own))
        for run, own in zip(runs, rows, strict=True)
        if run.pool is not None
    ]
    return RunData(
        requests=_requests(requests, np.argsort(np.asarray(places, np.int64), kind="stable")),
        steps=dataclasses.replace(steps, replica=_column(replica[order])),
        pool=_sum_of(pools),
        energy_reason=runs[0].energy_reason,
        counters=_added([run.counters for run in runs]),
        shrinks=sum(run.shrinks for run in runs),
        last_limits=next((run.last_limits for run in runs if run.last_limits is not None), None),
        left_in_use=sum(run.left_in_use or 0 for run in runs),
        replicas=[
            ReplicaData(pool, run.counters, run.left_in_use) for pool, run in zip(pools, runs, strict=True)
        ],
    )


def parts(run: RunData) -> list[RunData]:
    """The runs of its replicas, each with its own requests, steps and pool; itself where it has none."""
    if not run.replicas:
        return [run]
    placed, of_step = np.asarray(run.requests.replica), np.asarray(run.steps.replica)
    made = []
    for place, replica in enumerate(run.replicas):
        steps = np.flatnonzero(of_step == place)
        row_of = np.zeros(len(of_step), np.int64)
        row_of[steps] = np.arange(len(steps))
        requests = _requests(run.requests, np.flatnonzero(placed == place))
        if requests.token_steps is not None:
            own = row_of[np.asarray(requests.token_steps, np.int64)]
            requests = dataclasses.replace(requests, token_steps=_column(own))
        made.append(
            RunData(
                requests=requests,
                steps=_taken(run.steps, steps),
                pool=dataclasses.replace(replica.pool, growths=_steps_moved(replica.pool.growths, row_of)),
                energy_reason=run.energy_reason,
                counters=replica.counters,
                left_in_use=replica.left_in_use,
            )
        )
    return made


def _steps_moved(growths: GrowthColumns, rows: np.ndarray) -> GrowthColumns:
    """A growth in no step (-1), or in one that never ended, stays where it is."""
    moved = [int(rows[step]) if 0 <= step < len(rows) else step for step in growths.step]
    return dataclasses.replace(growths, step=moved)


def _all_programs(steps: StepColumns, runs: Ordered[RunData]) -> StepColumns:
    names = {name: None for run in runs for name in run.steps.programs}
    none = _column(np.zeros(len(steps), np.int64))
    return dataclasses.replace(steps, programs={name: steps.programs.get(name, none) for name in names})


def _whole(requests: RequestColumns) -> RequestColumns:
    """With the columns that a replica leaves out where all of its values are empty."""
    return dataclasses.replace(
        requests,
        pauses=[[] for _ in requests.id] if requests.pauses is None else requests.pauses,
        reused_tokens=_column(np.zeros(len(requests), np.int64))
        if requests.reused_tokens is None
        else requests.reused_tokens,
    )


def _joined(every: list[C]) -> C:
    def join(values: list[Any]) -> Any:
        if any(value is None for value in values):
            return None
        if isinstance(values[0], dict):
            return {name: join([value[name] for value in values]) for name in values[0]}
        if all(isinstance(value, Column) for value in values):
            return _column(np.concatenate([value.array for value in values]))
        return [one for value in values for one in value]

    names = [entry.name for entry in dataclasses.fields(every[0])]
    return type(every[0])(**{name: join([getattr(one, name) for one in every]) for name in names})


def _taken(columns: C, rows: np.ndarray, flat: np.ndarray | None = None) -> C:
    """These rows, in this order; of the columns of tokens those at `flat`."""

    def take(value: Any, at: np.ndarray) -> Any:
        if value is None:
            return None
        if isinstance(value, dict):
            return {name: take(one, at) for name, one in value.items()}
        return _column(value.at(at)) if isinstance(value, Column) else [value[row] for row in at.tolist()]

    made = {}
    for entry in dataclasses.fields(columns):
        by_token = flat is not None and entry.name in columns.FLAT
        made[entry.name] = take(getattr(columns, entry.name), flat if by_token else rows)  # type: ignore[arg-type]
    return type(columns)(**made)


def _requests(requests: RequestColumns, rows: np.ndarray) -> RequestColumns:
    counts = np.asarray(requests.generated_tokens, np.int64)
    taken = counts[rows]
    starts, ends = np.cumsum(counts) - counts, np.cumsum(taken)
    flat = np.arange(int(taken.sum())) + np.repeat(starts[rows] - (ends - taken), taken)
    made = _taken(requests, rows, flat)
    pauses = made.pauses if made.pauses is not None and any(made.pauses) else None
    reused = made.reused_tokens if made.reused_tokens is not None and any(made.reused_tokens) else None
    return dataclasses.replace(made, pauses=pauses, reused_tokens=reused)


def _added(counters: Ordered[dict[str, Any]]) -> dict[str, Any]:
    total: Counter[str] = Counter()
    for one in counters:
        for name, value in one.items():
            if isinstance(value, int | float):
                total[name] += value  # type: ignore[assignment]
    return {**counters[0], **total}


def _sum_of(pools: Ordered[PoolData]) -> PoolData:
    growths = _joined([pool.growths for pool in pools])
    capacities = [pool.capacity for pool in pools if pool.capacity is not None]
    return dataclasses.replace(
        pools[0],
        capacity=sum(capacities) if len(capacities) == len(pools) else None,
        start_rows=sum(pool.start_rows for pool in pools),
        bytes=sum(pool.bytes for pool in pools),
        most_in_use=sum(pool.most_in_use for pool in pools),
        refusals=sum(pool.refusals for pool in pools),
        preemptions=sum(pool.preemptions for pool in pools),
        growths=_taken(growths, np.argsort(np.asarray(growths.step, np.int64), kind="stable")),
        counters=_added([pool.counters for pool in pools]),
    )
