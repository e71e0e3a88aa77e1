"""A small report made by hand, with numbers that can be checked in the head."""

from __future__ import annotations

import dataclasses
from typing import Any

from musebench.core.facts import ModelFacts
from musebench.core.plan import Limits
from musebench.core.protocols import MemorySnapshot, PoolBounds
from musebench.core.request import FinishReason
from musebench.report.schema import (
    Choice,
    Choices,
    ComputedMemory,
    Conditions,
    Costs,
    GrowthColumns,
    Memory,
    ModelInfo,
    PoolData,
    Report,
    RequestColumns,
    RunData,
    StepColumns,
    WorkloadInfo,
)

STOP, LENGTH, FAILED, REFUSED, CANCELLED = (
    FinishReason.STOP,
    FinishReason.LENGTH,
    FinishReason.FAILED,
    FinishReason.REFUSED,
    FinishReason.CANCELLED,
)


def request(identity: str, **changed: Any) -> dict[str, Any]:
    """One row of the request columns: an answer of one token that came at 0.1 s, unless changed."""
    row: dict[str, Any] = {
        "id": identity,
        "session": 1,
        "arrival_seconds": 0.0,
        "scheduled_seconds": 0.0,
        "first_token_seconds": 0.1,
        "last_token_seconds": 0.1,
        "finish_seconds": 0.1,
        "prompt_tokens": 4,
        "generated_tokens": 1,
        "max_new_tokens": 8,
        "finish_reason": STOP,
        "message": None,
        "preemptions": 0,
        "expect": None,
        "correct": None,
        "text": None,
        "prompt_sha256": None,
        "tags": {},
    }
    return row | changed


def requests(*rows: dict[str, Any], **flat: Any) -> RequestColumns:
    names = [
        field.name
        for field in dataclasses.fields(RequestColumns)
        if field.name not in (*RequestColumns.FLAT, *RequestColumns.LATER)
    ]
    return RequestColumns.of(**{name: [row[name] for row in rows] for name in names}, **flat)


def steps(ends: list[float], **changed: Any) -> StepColumns:
    """Steps one after another, the first from 0 s; each with one decode token and a pool of 8 rows."""
    columns: dict[str, Any] = {
        "start": [0.0, *ends[:-1]] if ends else [],
        "end": ends,
        "device_seconds": [None] * len(ends),
        "host_seconds": [None] * len(ends),
        "decode_tokens": [1] * len(ends),
        "prefill_tokens": [0] * len(ends),
        "padded_tokens": [0] * len(ends),
        "sequences": [1] * len(ends),
        "forwards": [1] * len(ends),
        "rows": [8] * len(ends),
        "in_use": [4] * len(ends),
        "generation": [1] * len(ends),
        "waiting": [0] * len(ends),
        "running": [1] * len(ends),
    }
    return StepColumns.of(**(columns | changed))


def pool(**changed: Any) -> PoolData:
    values: dict[str, Any] = {
        "policy": "geometric",
        "capacity": 64,
        "cell_bytes": 1024,
        "start_rows": 0,
        "bytes": 16 * 1024,
        "most_in_use": 12,
    }
    return PoolData(**(values | changed))


def mixed_run() -> RunData:
    """Five requests in three steps: three tokens, one token, none, one that failed, one that was refused.

    Counted are the first two: 4 output tokens and 6 prompt tokens, over 0 s to 0.5 s.
    """
    return RunData(
        requests=requests(
            request(
                "three", generated_tokens=3, last_token_seconds=0.4, finish_seconds=0.4,
                expect="Paris", correct=True, text="Paris it is",
            ),
            request(
                "one", session=2, arrival_seconds=0.05, scheduled_seconds=0.1, first_token_seconds=0.2,
                last_token_seconds=0.2, finish_seconds=0.2, prompt_tokens=2, finish_reason=LENGTH,
                max_new_tokens=1,
            ),
            request(
                "none", session=3, arrival_seconds=0.1, scheduled_seconds=None, first_token_seconds=None,
                last_token_seconds=None, generated_tokens=0, max_new_tokens=0, finish_reason=LENGTH,
            ),
            request(
                "broken", session=4, prompt_tokens=3, generated_tokens=2, last_token_seconds=0.2,
                finish_seconds=0.5, finish_reason=FAILED, message="step 2 failed: no memory",
            ),
            request(
                "huge", session=None, scheduled_seconds=None, first_token_seconds=None,
                last_token_seconds=None,
                finish_seconds=0.0, prompt_tokens=100, generated_tokens=0, finish_reason=REFUSED,
                message="needs 107 cells; the pool has 64",
            ),
            token_ids=[5, 6, 7, 8, 9, 10],
            token_steps=[0, 1, 2, 1, 0, 1],
        ),
        steps=steps(
            [0.1, 0.2, 0.4],
            device_seconds=[0.08, 0.09, 0.15],
            decode_tokens=[0, 2, 1],
            prefill_tokens=[7, 2, 0],
            padded_tokens=[1, 0, 3],
            sequences=[2, 3, 1],
            forwards=[1, 2, 1],
            rows=[8, 16, 16],
            in_use=[7, 11, 12],
            generation=[1, 2, 2],
            programs={"prefill": [1, 1, 0], "decode": [0, 1, 1]},
        ),
        pool=pool(
            refusals=1,
            growths=GrowthColumns.of(
                step=[0, 1], rows=[8, 16], bytes=[8192, 16384], copied_bytes=[0, 7168],
                seconds=[0.001, 0.002], peak_bytes=[8192, 24576],
            ),
        ),
        energy_joules=2.0,
        counters={"captures": 2, "replays": 3},
    )  # fmt: skip


def report(*runs: RunData, **changed: Any) -> Report:
    """A complete report of these runs (none named: of `mixed_run`) on an invented device."""
    made = Report(
        id="20250102-030405-abcdef",
        created="2025-01-02T03:04:05+00:00",
        conditions=Conditions(
            device="Example GPU",
            driver="1.2",
            versions={"python": "3.11.7", "torch": "2.13.0", "gguf": None},
            commit="0123456789abcdef",
            dirty=False,
            command=["musebench", "run", "chat"],
            workload=WorkloadInfo("chat", "aa"),
            model=ModelInfo(
                "tiny", "random:tiny", "float32",
                ModelFacts(
                    name="tiny", family="llama", layers=2, hidden=8, heads=4, kv_heads=2, head_dim=2,
                    intermediate=16, vocab=32, max_context=64, dtype="float32", parameters=1000,
                    active_parameters=1000, windows=(None, 4),
                ),
                "bb",
            ),
            seed=0,
            warmup=1,
            repeats=len(runs) or 1,
            cpu="Example CPU",
            cores=2,
            platform="Linux",
            backend={"power limit watts": 300},
        ),
        choices=Choices(
            device="cuda",
            backend=Choice("cuda", "musebench", "0.1.0", {}),
            executor=Choice("graph", "musebench", "0.1.0", {"ladder": [1, 2, 4], "padding": True}),
            pool=Choice("geometric", "musebench", "0.1.0", {"factor": 2.0}),
            scheduler=Choice("continuous", "musebench", "0.1.0", {}),
            limits=Limits(),
            bounds=PoolBounds(max_sessions=4, max_context=16, capacity=64),
        ),
        runs=list(runs) or [mixed_run()],
        memory=Memory(
            computed=ComputedMemory(weights=4000, rows=65536, workspace=512, graphs=0),
            snapshots={
                "start": MemorySnapshot(allocated=0, host_resident=1_000_000),
                "loaded": MemorySnapshot(allocated=4096, host_resident=2_000_000),
                "peak": MemorySnapshot(allocated=20_000, peak=30_000, device_used=600_000_000),
            },
            reasons={"process memory": "NVML names the process but not its memory"},
        ),
        costs=Costs(seconds={"import": 2.5, "load": 0.75, "capture": 0.05}, counters={"captures": 2}),
    )  # fmt: skip
    return dataclasses.replace(made, **changed)
