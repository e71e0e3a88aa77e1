"""`graph`: decode steps are captured as CUDA graphs and replayed; prefills are launched eagerly."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from typing import ClassVar

from musebench.core.batch import StepBatch
from musebench.core.options import option
from musebench.core.plan import Limits, StepPlan
from musebench.core.protocols import Backend, Forward, StepOutput
from musebench.core.stretch import Stretch, StretchOutput
from musebench.executors.ladder import GRAPH, GraphLadder, cut_for_ladder, default_ladder
from musebench.executors.stretching import launch


@dataclass(frozen=True)
class GraphOptions:
    ladder: tuple[int, ...] | None = option(
        None, "batch sizes that have a graph; none: 1, 2, 4, 8, then steps of 8 up to the most sequences"
    )


class GraphExecutor:
    """Programs in the report: `graph` (replayed), `eager` (a step with prefills), `eager fallback` (decodes
    wider than the ladder)."""

    name: ClassVar[str] = "graph"
    Options = GraphOptions

    def __init__(self, options: GraphOptions, backend: Backend, limits: Limits) -> None:
        backend.require_capture()
        self.options = options
        self.backend = backend
        self.limits = limits
        most = min(limits.most_sequences, limits.most_tokens)
        self.ladder = GraphLadder(backend, options.ladder or default_ladder(most), most)
        self._fallbacks = 0
        self._forwards = 0

    def prepare(self) -> Mapping[str, float]:
        return self.backend.warm(self.limits)

    def cut(self, plan: StepPlan) -> Ordered[Forward]:
        return cut_for_ladder(plan, self.limits, self.ladder, "eager", "eager fallback")

    def execute(self, batch: StepBatch) -> StepOutput:
        self._forwards += 1
        if batch.program == GRAPH:
            return self.ladder.replay(batch)
        self._fallbacks += batch.program == "eager fallback"
        return self.backend.forward(batch)

    def stretch(self, stretch: Stretch) -> StretchOutput | None:
        """See `musebench.core.stretch.Stretching`; a graph has to be there."""
        if stretch.forward.program == GRAPH:
            made = self.ladder.stretch(stretch)
        else:
            made = launch(self.backend, stretch)
            self._fallbacks += made.steps if made is not None else 0
        self._forwards += made.steps if made is not None else 0
        return made

    def counters(self) -> Mapping[str, int | float]:
        return {"forwards": self._forwards, "fallbacks": self._fallbacks, **self.ladder.counters()}

    def close(self) -> None:
        self.ladder.drop()
