"""`compiled`: the same model through `torch.compile`; its decodes are captured like `graph`'s, or not."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from typing import ClassVar

from musebench.core.batch import StepBatch
from musebench.core.errors import UnsupportedError
from musebench.core.forwards import cut_to_limits
from musebench.core.options import option
from musebench.core.plan import Limits, StepPlan
from musebench.core.protocols import Backend, Forward, StepOutput
from musebench.core.stretch import Stretch, StretchOutput
from musebench.executors.ladder import GRAPH, GraphLadder, cut_for_ladder, default_ladder
from musebench.executors.stretching import launch


@dataclass(frozen=True)
class CompiledOptions:
    capture: bool | None = option(
        None, "capture compiled decodes as graphs; none: where the device can; false: compiling alone"
    )
    ladder: tuple[int, ...] | None = option(
        None, "batch sizes that have a graph; none: 1, 2, 4, 8, then steps of 8 up to the most sequences"
    )


class CompiledExecutor:
    """Programs in the report: `graph` (captured decodes) and `compiled` (all else).

    Kinds of step are compiled before the first one; what is first met later is counted apart too, in
    `compile seconds`.
    """

    name: ClassVar[str] = "compiled"
    Options = CompiledOptions

    def __init__(self, options: CompiledOptions, backend: Backend, limits: Limits) -> None:
        self.options = options
        self.backend = backend
        self.limits = limits
        most = min(limits.most_sequences, limits.most_tokens)
        self.ladder: GraphLadder | None = None
        if options.capture is not False:
            try:
                backend.require_capture()
                self.ladder = GraphLadder(backend, options.ladder or default_ladder(most), most)
            except UnsupportedError:
                if options.capture:
                    raise
        if self.ladder is None and options.ladder:
            raise UnsupportedError(
                "executor 'compiled' has no graphs without capture; leave executor.ladder out"
            )
        self._forwards = 0

    def prepare(self) -> Mapping[str, float]:
        self.backend.compile()
        return self.backend.warm(self.limits)

    def cut(self, plan: StepPlan) -> Ordered[Forward]:
        if self.ladder is None:
            return cut_to_limits(plan, self.limits, "compiled")
        return cut_for_ladder(plan, self.limits, self.ladder, "compiled", "compiled")

    def execute(self, batch: StepBatch) -> StepOutput:
        self._forwards += 1
        if self.ladder is not None and batch.program == GRAPH:
            return self.ladder.replay(batch)
        return self.backend.forward(batch)

    def stretch(self, stretch: Stretch) -> StretchOutput | None:
        """See `musebench.core.stretch.Stretching`."""
        if self.ladder is not None and stretch.forward.program == GRAPH:
            made = self.ladder.stretch(stretch)
        else:
            made = launch(self.backend, stretch)
        self._forwards += made.steps if made is not None else 0
        return made

    def counters(self) -> Mapping[str, int | float]:
        ladder = {} if self.ladder is None else self.ladder.counters()
        return {"forwards": self._forwards, **ladder, **self.backend.compilations()}

    def close(self) -> None:
        if self.ladder is not None:
            self.ladder.drop()
