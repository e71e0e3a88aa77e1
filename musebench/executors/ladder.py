"""Captured decodes: a ladder of batch sizes, each a graph, captured again when the pool has moved."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence as Ordered
from typing import Any

from musebench.core.batch import BatchLayout, StepBatch, decode_layout
from musebench.core.errors import UsageError
from musebench.core.forwards import cut_to_limits
from musebench.core.plan import Limits, StepPlan
from musebench.core.protocols import Backend, Forward, StepOutput
from musebench.core.stretch import Stretch, StretchOutput
from musebench.executors.stretching import launch

GRAPH = "graph"


def default_ladder(most: int) -> tuple[int, ...]:
    """1, 2, 4, 8, then steps of 8 up to `most` sequences, which ends it."""
    sizes = [size for size in (1, 2, 4) if size < most]
    return (*sizes, *range(8, most, 8), most)


class GraphLadder:
    """The graphs of one backend's decodes, by padded size.

    The first use captures the whole ladder, largest first, so that the smaller graphs fit into the memory of
    the largest. When the pool's generation has changed, all graphs are dropped and each is captured again
    before its next use. Sampled and greedy batches are different graphs; the sampled ones are captured one by
    one as they are met.
    """

    def __init__(self, backend: Backend, sizes: Ordered[int], most: int) -> None:
        if not sizes or any(size < 1 for size in sizes):
            raise UsageError(f"ladder {list(sizes)} is wrong; sizes of at least 1 are wanted")
        self._backend = backend
        self.sizes = tuple(sorted({min(size, most) for size in sizes}))
        self._graphs: dict[BatchLayout, Any] = {}
        self._generation = -1
        self._known: set[BatchLayout] = set()
        self.captures = 0
        self.recaptures = 0
        self.capture_seconds = 0.0
        self.recapture_seconds = 0.0
        self.replays = 0

    def size_for(self, sequences: int) -> int | None:
        """The next size of the ladder; None when it has none that large."""
        place = bisect_left(self.sizes, sequences)
        return self.sizes[place] if place < len(self.sizes) else None

    def replay(self, batch: StepBatch) -> StepOutput:
        """Run a decode batch that was padded to a size of the ladder."""
        if batch.generation != self._generation:
            self.drop()
            self._generation = batch.generation
            if not self._known and not batch.layout.sampled:
                for size in reversed(self.sizes):
                    self._capture(decode_layout(size))
        if batch.layout not in self._graphs:
            self._capture(batch.layout)
        self.replays += 1
        return self._backend.replay(self._graphs[batch.layout], batch)

    def stretch(self, stretch: Stretch) -> StretchOutput | None:
        """Replay one graph again and again; None when it has to be captured first."""
        size = stretch.forward.pad_sequences
        here = stretch.generation == self._generation
        if not here or decode_layout(size) not in self._graphs:
            return None
        made = launch(self._backend, stretch)
        self.replays += made.steps if made is not None else 0
        return made

    def _capture(self, layout: BatchLayout) -> None:
        again = layout in self._known
        # What is in flight is not part of a capture's cost.
        self._backend.synchronize()
        start = self._backend.clock.now()
        self._graphs[layout] = self._backend.capture(layout)
        seconds = self._backend.clock.now() - start
        self._known.add(layout)
        if again:
            self.recaptures += 1
            self.recapture_seconds += seconds
        else:
            self.captures += 1
            self.capture_seconds += seconds

    def drop(self) -> None:
        """Free all graphs; safe to call twice."""
        for graph in self._graphs.values():
            self._backend.drop(graph)
        self._graphs.clear()

    def counters(self) -> dict[str, int | float]:
        return {
            "replays": self.replays,
            "captures": self.captures,
            "recaptures": self.recaptures,
            "capture seconds": self.capture_seconds,
            "recapture seconds": self.recapture_seconds,
        }


def cut_for_ladder(
    plan: StepPlan, limits: Limits, ladder: GraphLadder, other: str, wide: str
) -> list[Forward]:
    """Forwards of a plan: decodes alone go to the ladder, padded; the rest is program `other`; a batch that
    is wider than the ladder is program `wide`."""
    forwards = []
    for forward in cut_to_limits(plan, limits, other):
        part = forward.plan
        if part.prefills:
            forwards.append(forward)
            continue
        size = ladder.size_for(len(part.decodes))
        forwards.append(Forward(part, wide) if size is None else Forward(part, GRAPH, size, size, size))
    return forwards
