"""The seams: what an executor, a backend, a storage, a pool, a scheduler and a clock promise.

One step: `Scheduler.plan` -> `Pool.reserve` -> `Executor.cut` -> `StepBatch` (packed by the engine) ->
`Executor.execute` -> `StepOutput` -> the engine commits, or rolls back. A scheduler and a pool never see a
tensor; an executor never sees a request. The engine alone moves state forward.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np

from musebench.core.batch import BatchLayout, StepBatch
from musebench.core.facts import ModelFacts
from musebench.core.plan import Limits, StepPlan
from musebench.core.request import Request
from musebench.core.sequence import Sequence


class Clock(Protocol):
    """Seconds since the start of a run, from one monotonic source."""

    def now(self) -> float: ...

    def sleep_until(self, seconds: float) -> None:
        """Return when `now() >= seconds`; a virtual clock jumps."""


class StepOutput(Protocol):
    """What one forward made. `wait` returns when the device has finished it.

    `wait()` gives the sampled token ids, int32 [R], real rows only, in the order of the batch's rows, and
    may be called again. Afterwards `device_seconds` is the time on the device (None where it cannot be
    measured) and `margins` the difference of the two largest logits a row, float32 [R], where it was asked
    for.
    """

    device_seconds: float | None
    margins: np.ndarray | None

    def wait(self) -> np.ndarray: ...


@dataclass(frozen=True, slots=True)
class Resize:
    """What a storage did to change its rows: whether addresses `moved`, and what that cost."""

    moved: bool
    copied_bytes: int = 0
    peak_bytes: int = 0
    seconds: float = 0.0


class Storage(Protocol):
    """The rows themselves, on a backend: `rows` counts all of them, the scratch row 0 included.

    `resize` keeps rows 0..`live` - 1 and raises `OutOfMemory` with everything as it was. `bytes` is read
    off the buffers' own sizes, not computed from `rows`.
    """

    @property
    def rows(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def cell_bytes(self) -> int: ...

    def resize(self, rows: int, live: int) -> Resize: ...

    def free_bytes(self) -> int | None:
        """Bytes that could still be allocated; None where nobody can say."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """Bytes on the device, three numbers kept apart; None where a source has nothing to say.

    `allocated`, `reserved` and `peak` are torch's allocator's (on the CPU: None), `device_used` and
    `process_used` NVML's, `host_resident` and `host_peak` the process's resident set. `mapped` are rows that
    a storage has mapped beside the allocator (musebench.core.spans), counted in its three; None: none ever.
    """

    allocated: int | None = None
    reserved: int | None = None
    peak: int | None = None
    device_used: int | None = None
    process_used: int | None = None
    host_resident: int | None = None
    host_peak: int | None = None
    mapped: int | None = None


class Backend(Protocol):
    """Where steps run: it owns the model, the device cell table, the last sampled token of each slot.

    `open` is called once, after the bounds are known and before the first step; what it allocates counts
    as workspace. A `capture` gives a handle that `replay` takes with any batch of the same layout, for as
    long as the generation is the one it was captured at; backends that cannot capture raise
    `UnsupportedError` from `require_capture`.
    """

    name: str
    facts: ModelFacts
    clock: Clock

    def open(self, bounds: PoolBounds, record_margins: bool = False) -> None: ...

    def storage(self) -> Storage:
        """The one storage of this backend's model; its rows are 0 until the first resize."""

    def forward(self, batch: StepBatch) -> StepOutput: ...

    def warm(self, limits: Limits) -> Mapping[str, float]:
        """Bring into being what steps within `limits` need, such as kernels compiled at first use; returns
        seconds by name. Leaves the storage, the cell table and the last tokens as they were."""

    def compile(self) -> None:
        """From here on the model runs compiled; compilation itself happens at first use."""

    def compilations(self) -> Mapping[str, int | float]:
        """How many compilations there were, and their seconds; empty where none was asked for."""

    def require_capture(self) -> None: ...

    def capture(self, layout: BatchLayout) -> Any: ...

    def replay(self, graph: Any, batch: StepBatch) -> StepOutput: ...

    def drop(self, graph: Any) -> None: ...

    def synchronize(self) -> None: ...

    def memory(self) -> MemorySnapshot: ...

    def reset_peak(self) -> None: ...

    def conditions(self) -> Mapping[str, Any]:
        """What a number measured here depends on: device, driver, versions. JSON values."""

    def close(self) -> None:
        """Free everything; safe to call twice and in any order with storages and executors."""


class Forward(NamedTuple):
    """A part of a plan that one program runs, and the sizes it is padded to.

    Sizes of 0 leave it unpadded, with the layout that fits.
    """

    plan: StepPlan
    program: str = ""
    pad_tokens: int = 0
    pad_sequences: int = 0
    pad_rows: int = 0

    @property
    def padded_tokens(self) -> int:
        """Tokens that only pad."""
        return max(self.pad_tokens - self.plan.tokens, 0)


@runtime_checkable
class Executor(Protocol):
    """A launch policy over a backend. `Options` is its dataclass of options; `name` how it is chosen.

    `limits` is what its programs take in one forward. `cut` turns a plan into forwards, in order, that
    together hold exactly the plan's tokens. `execute` launches one and returns at once where it can.
    `prepare` is called before the first step with storage in place (compile, capture); its seconds are
    reported apart. `counters` are monotonic counts for the report: forwards by program, captures, replays,
    fallbacks.
    """

    name: ClassVar[str]

    @property
    def limits(self) -> Limits: ...

    def prepare(self) -> Mapping[str, float]:
        """One-off work; returns seconds by name, e.g. {"capture": 0.8}."""

    def cut(self, plan: StepPlan) -> Ordered[Forward]: ...

    def execute(self, batch: StepBatch) -> StepOutput: ...

    def counters(self) -> Mapping[str, int | float]: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RowRule:
    """What a pool policy promises about its rows: at most max(`start`, `factor` x the most cells that were
    needed at once) + `slack`, and never more than its capacity. A pool states it as its `row_rule`."""

    factor: float = 1.0
    start: int = 0
    slack: int = 0

    def most(self, needed: int) -> int:
        return max(self.start, math.ceil(self.factor * needed)) + self.slack


@dataclass(frozen=True, slots=True)
class PoolBounds:
    """What a pool is dimensioned from: sessions at a time, tokens a session, and the most rows there may be.

    `capacity` (cells, without scratch) None means: as many as memory holds.
    """

    max_sessions: int
    max_context: int
    capacity: int | None = None


class Pool(Protocol):
    """Who owns which cell, and how many rows there are. Pure bookkeeping plus `storage.resize`.

    Counts are in cells, scratch left out. `capacity` is the most there may ever be, `room` how many could
    still be tied up, `quote(sequence)` how many admitting it ties up at once: the scheduler's helper admits
    when the quote fits the room. `reserve` claims a cell for every token of a plan, in plan order, int32
    [plan.tokens], growing if it must; it raises `PoolFull` or `OutOfMemory` and leaves the pool as it was.
    `rewind` gives back the cells of a slot from position `to` on; `release` all of them. `decode_cells` is
    how many cells of the room one decode ties up: 1, or 0 where a session's cells were tied up when it was
    admitted. `resizes` holds every change of the rows: (rows with scratch, bytes, what the storage did).
    """

    decode_cells: int
    resizes: list[tuple[int, int, Resize]]

    name: ClassVar[str]

    @property
    def capacity(self) -> int: ...

    @property
    def rows(self) -> int: ...

    @property
    def in_use(self) -> int: ...

    @property
    def most_in_use(self) -> int: ...

    @property
    def room(self) -> int: ...

    @property
    def generation(self) -> int: ...

    def refusal(self, tokens: int) -> str | None:
        """Why a request of `tokens` cells could not even fit an empty pool, with the sum; None if it can."""

    def quote(self, sequence: Sequence) -> int:
        """Cells of the room that the tokens which this sequence has and has not computed tie up."""

    def reserve(self, plan: StepPlan) -> np.ndarray: ...

    def fork(self, source: int, target: int, upto: int) -> None:
        """Let slot `target` own the first `upto` cells of slot `source` too; nothing is copied."""

    def rewind(self, slot: int, to: int) -> None: ...

    def release(self, slot: int) -> None: ...

    def take_edits(self) -> tuple[tuple[int, int, np.ndarray], ...]:
        """Rows of the cell table changed other than by `reserve`, since last asked."""

    def counters(self) -> Mapping[str, int | float]: ...


class Running(Protocol):
    """The running sequences as a scheduler sees them, each list oldest admission first.

    `decoding` have exactly one token to compute; `prefilling` have more, or are being recomputed after a
    preemption. Both are tuples that keep their identity from step to step while nothing changed. The length
    counts all that hold a slot: sequences whose last token is on its way are in neither tuple.
    """

    @property
    def decoding(self) -> tuple[Sequence, ...]: ...

    @property
    def prefilling(self) -> tuple[Sequence, ...]: ...

    def __len__(self) -> int: ...


class Scheduler(Protocol):
    """Who runs in the next step.

    `waiting` are the sequences that have arrived, preempted ones first, then in order of arrival. The plan
    keeps `limits` (musebench.core.planning.PlanBuilder does that for it). An empty plan while something
    runs or waits is a fault.
    """

    name: ClassVar[str]

    def plan(self, waiting: Ordered[Sequence], running: Running, limits: Limits, pool: Pool) -> StepPlan: ...


class Replica(Protocol):
    """One of several equal engines, as a router sees it: what it knows at that moment, in tokens."""

    @property
    def queued_tokens(self) -> int:
        """Of the sequences that wait: prompts, and what they had made before a preemption."""

    @property
    def running_tokens(self) -> int:
        """Cells in use, and tokens of running sequences that are not computed yet."""

    @property
    def waiting(self) -> int:
        """Sequences that wait."""

    @property
    def running(self) -> int:
        """Sequences that hold a slot."""


class Router(Protocol):
    """Which replica serves a request; asked once a request, when it arrives, in order of arrival.

    One is made a run, so it may remember what it has said. The answer is a place in `replicas`. The same
    requests and replicas give the same answers.
    """

    name: ClassVar[str]

    def route(self, request: Request, replicas: Ordered[Replica]) -> int: ...
