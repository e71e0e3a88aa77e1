"""Steps on a virtual clock: `--device sim:PROFILE`. Nothing is computed but time and bytes."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from musebench.backends.simulated import device as devices
from musebench.backends.simulated.options import SimulatedOptions
from musebench.backends.simulated.output import SimulatedOutput
from musebench.backends.simulated.shape import Costs, OutlinedShape, StepShape
from musebench.backends.simulated.stops import SeededStops
from musebench.backends.simulated.storage import SimulatedStorage
from musebench.backends.simulated.timeline import Timeline
from musebench.core.batch import BatchLayout, StepBatch
from musebench.core.counted import CountedTable
from musebench.core.errors import UnsupportedError, UsageError
from musebench.core.outline import OutlinedBatch, outline
from musebench.core.plan import Limits
from musebench.core.protocols import MemorySnapshot, PoolBounds
from musebench.core.stretch import Stretch, StretchOutput
from musebench.models.source import Model

GRAPH = "graph"


class SimulatedBackend:
    """See `musebench.core.protocols.Backend`; `device` is "sim:" and the name or the file of a profile.

    A forward charges its host work and its launch to the clock, and its device work to the device, which runs
    one forward after the other. Its tokens are all the same one, which no request stops at: requests end
    where `table` says. `packer` makes the batches that it reads, which have sizes and no contents.

    Raises:
        UsageError: no such profile, or weights that do not fit into the device's memory.
    """

    Options = SimulatedOptions
    SIMULATED = True
    name = "sim"
    packer = staticmethod(outline)

    def __init__(self, options: SimulatedOptions, device: str, model: Model) -> None:
        self.options = options
        self.facts = model.facts
        self.device = devices.open_device(device.partition(":")[2], model.facts, options)
        self.costs: Costs = self.device.costs
        self.timeline = Timeline()
        self.clock = self.timeline.clock
        self.memory_reasons: Mapping[str, str] = {}
        self._limits = Limits()
        self._opened = False
        self._captures = False
        self._compiled = False
        self._launching = functools.cache(self.costs.launch_seconds)  # of a program: always the same
        self._token = model.facts.vocab  # one past the last id: no request can stop at it
        self._storage = SimulatedStorage(
            self.device.cell_bytes, self._room, self.costs, self.timeline, 2 * model.facts.layers
        )

    def table(self, slots: int, seed: int) -> CountedTable:
        """What a run keeps of its sequences: counts, and stops where the option `stop_after` draws them."""
        mean = self.options.stop_after
        return CountedTable(slots, None if mean is None else SeededStops(seed, mean))

    # -- memory ---------------------------------------------------------------------------------------

    def expect(self, limits: Limits) -> None:
        """The largest forward there will be, for what it needs beside weights and rows."""
        self._limits = limits

    def open(self, bounds: PoolBounds, record_margins: bool = False) -> None:
        """See `musebench.core.protocols.Backend`.

        Raises:
            UnsupportedError: margins are wanted; there are no logits.
            UsageError: weights, activations and graphs leave no byte for rows.
        """
        if record_margins:
            raise UnsupportedError("a simulated run has no logits to take margins of; leave --margins out")
        if self._room() <= 0:
            held = self.device.weight_bytes + self.workspace_bytes
            raise UsageError(
                f"model {self.facts.name!r} in {self.facts.dtype} needs {held / 2**30:.1f} GiB beside its "
                f"cells; {self.device.name!r} gives {self._budget() / 2**30:.1f} GiB; choose another "
                "device, or raise backend.memory"
            )
        self._opened = True

    @property
    def workspace_bytes(self) -> int:
        limits = self._limits
        return self.costs.activation_bytes(limits.most_tokens, limits.most_sequences)

    @property
    def graph_pool_bytes(self) -> int:
        return self.costs.graph_bytes(self._limits.most_sequences) if self._captures else 0

    def _budget(self) -> int:
        return int(self.device.memory_bytes * self.options.memory)

    def _room(self) -> int:
        """Bytes for rows: the device's share less weights, activations and the graphs' pool."""
        return self._budget() - self.device.weight_bytes - self.workspace_bytes - self.graph_pool_bytes

    def storage(self) -> SimulatedStorage:
        return self._storage

    def memory(self) -> MemorySnapshot:
        """Computed, not measured: what a device's allocator would hold now, and at its passing peak."""
        rest = self.device.weight_bytes
        if self._opened:
            rest += self.workspace_bytes + self.graph_pool_bytes
        held = rest + self._storage.bytes
        return MemorySnapshot(allocated=held, peak=rest + max(self._storage.peak_bytes, self._storage.bytes))

    def reset_peak(self) -> None:
        self._storage.peak_bytes = self._storage.bytes

    # -- steps ----------------------------------------------------------------------------------------

    def forward(self, batch: StepBatch) -> SimulatedOutput:
        return self._run(batch, self._program(batch.program))

    def replay(self, graph: Any, batch: StepBatch) -> SimulatedOutput:
        return self._run(batch, self._program(GRAPH))

    def _program(self, launched: str) -> str:
        """What the cost model calls a forward that is launched, or replayed as a graph."""
        if launched == GRAPH:
            return "compiled graph" if self._compiled else GRAPH
        return "compiled" if self._compiled else "eager"

    def _run(self, batch: StepBatch, program: str) -> SimulatedOutput:
        shape, costs = shape_of(batch), self.costs
        launched = self.timeline.launch(
            costs.host_seconds(batch.sequences, batch.tokens),
            self._launching(program),
            costs.step(shape, program),
        )
        return SimulatedOutput(self.clock, launched.done, launched.device_seconds, batch.rows, self._token)

    def stretch(self, stretch: Stretch) -> StretchOutput | None:
        """See `musebench.core.stretch.Stretching`."""
        costs, count = self.costs, stretch.contexts.decodes
        program = self._program(stretch.forward.program)
        padded, host = stretch.forward.padded_tokens, costs.host_seconds(count, count)
        launching = self._launching(program)
        device_seconds = costs.decodes(stretch.contexts, stretch.steps, program, padded)
        times = self.timeline.stretch(
            host, launching, device_seconds, stretch.arrival, stretch.origin, stretch.in_flight,
            stretch.overlap,
        )  # fmt: skip
        last = SimulatedOutput(self.clock, times.done, times.device_seconds[-1], count, self._token)
        return StretchOutput(
            times.starts, times.launched, times.returned, times.device_seconds, last, self._token
        )

    # -- programs -------------------------------------------------------------------------------------

    def warm(self, limits: Limits) -> Mapping[str, float]:
        return {}

    def compile(self) -> None:
        self._compiled = True

    def compilations(self) -> Mapping[str, int | float]:
        return {}

    def require_capture(self) -> None:
        self._captures = True

    def capture(self, layout: BatchLayout) -> BatchLayout:
        self.timeline.occupy(self.costs.capture_seconds(layout.sequences))
        return layout

    def drop(self, graph: Any) -> None:
        """The graphs' pool stays as large as the ladder needs."""

    def synchronize(self) -> None:
        self.timeline.settle()

    def conditions(self) -> Mapping[str, Any]:
        return {"device": self.device.name, **self.device.conditions}

    def close(self) -> None:
        """Activations and graphs go with the rows: the weights are left."""
        self._storage.close()
        self._opened = False


def shape_of(batch: StepBatch) -> StepShape:
    """The sizes that a step costs, of an outlined batch or of a packed one."""
    if isinstance(batch, OutlinedBatch):
        return OutlinedShape(
            batch.decodes, batch.prefills, batch.tokens, batch.padded_rows, batch.padded_tokens
        )
    fields, count = batch.fields, batch.sequences
    starts = np.asarray(fields.starts[: count + 1], np.int64)
    contexts = np.asarray(fields.positions, np.int64)[starts[1:] - 1] + 1
    return StepShape(np.diff(starts), contexts, batch.layout.rows, batch.padded_tokens)
