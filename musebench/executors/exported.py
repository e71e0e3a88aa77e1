"""`exported`: a program that was compiled ahead of time, within its bounds."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from musebench.core.batch import StepBatch
from musebench.core.errors import UnsupportedError, UsageError
from musebench.core.options import option
from musebench.core.plan import Limits, StepPlan
from musebench.core.protocols import Backend, Forward, StepOutput
from musebench.executors.ladder import GRAPH, GraphLadder, default_ladder
from musebench.executors.planners import planner_for
from musebench.programs.backend import program_backend
from musebench.programs.facts import ProgramFacts
from musebench.programs.package import read_facts


@dataclass(frozen=True)
class ExportedOptions:
    program: str | None = option(
        None, "the package, a .pt2 file that `musebench export` made; none: what --model names is one"
    )
    capture: bool | None = option(
        None, "capture the program's decodes as graphs; none: where the device can; false: never"
    )
    ladder: tuple[int, ...] | None = option(
        None,
        "batch sizes that have a graph; none: 1, 2, 4, 8, then steps of 8 up to the most sequences, or the "
        "program's own widths",
    )


class ExportedExecutor:
    """Programs in the report: `graph` (captured decodes), and the methods by their names.

    `limits` are the program's and the run's. A compiled program does not check what it is given: every
    forward is held against its bounds here, before it is launched.
    """

    name: ClassVar[str] = "exported"
    Options = ExportedOptions

    def __init__(self, options: ExportedOptions, backend: Backend, limits: Limits) -> None:
        loader = program_backend(backend)
        if loader is None:
            raise UnsupportedError(
                f"executor 'exported' runs programs on cpu and cuda; backend {backend.name!r} loads none"
            )
        self.options = options
        self.backend = loader
        self.path = _package(options.program, loader.model_program)
        self.facts = read_facts(self.path)
        loader.require_program(self.path, self.facts)
        self.limits = self.facts.limits.within(limits)
        self.ladder = self._captures()
        self._planner = planner_for(self.facts, self.limits, self.ladder)
        self._forwards = 0
        self._read_bytes = 0

    def prepare(self) -> Mapping[str, float]:
        """Load the program and warm it; what its export took is told again, for the report."""
        loaded = self.backend.load_program(self.path, self.facts)
        self._read_bytes = int(loaded["bytes"])
        return {
            "program load": loaded["seconds"],
            "program export": sum(self.facts.costs.seconds.values()),
            **self.backend.warm(self.limits),
        }

    def cut(self, plan: StepPlan) -> Ordered[Forward]:
        return self._planner.cut(plan)

    def execute(self, batch: StepBatch) -> StepOutput:
        """Raises ValueError, with nothing launched, when no method takes the batch."""
        self.facts.method_for(batch.layout)
        self._forwards += 1
        if self.ladder is not None and batch.program == GRAPH:
            return self.ladder.replay(batch)
        return self.backend.forward(batch)

    def counters(self) -> Mapping[str, int | float]:
        return {"forwards": self._forwards, **({} if self.ladder is None else self.ladder.counters())}

    def sizes(self) -> Mapping[str, int]:
        """Bytes for the report: of the package, of what was read from it or beside it, and the peak of memory
        in its export."""
        peak = self.facts.costs.peak_bytes
        return {
            "program package bytes": self.path.stat().st_size,
            "program bytes read": self._read_bytes,
            **({} if peak is None else {"program export peak bytes": peak}),
        }

    def close(self) -> None:
        if self.ladder is not None:
            self.ladder.drop()

    def _captures(self) -> GraphLadder | None:
        if self.options.capture is not False:
            try:
                self.backend.require_capture()
            except UnsupportedError:
                if self.options.capture:
                    raise
            else:
                return GraphLadder(self.backend, *_ladder(self.facts, self.limits, self.options.ladder))
        if self.options.ladder:
            raise UnsupportedError(
                "executor 'exported' has no graphs without capture; leave executor.ladder out"
            )
        return None


def _package(option: str | None, model: Path | None) -> Path:
    if option is None and model is None:
        raise UsageError(
            "executor 'exported' needs a program: --set executor.program=FILE.pt2 beside --model, or --model "
            "FILE.pt2 alone; musebench export makes one"
        )
    if option is not None and model is not None and Path(option).resolve() != model.resolve():
        raise UsageError(
            f"--model {model} is a program, and --set executor.program={option} is another; give one of them"
        )
    return Path(option) if option is not None else Path(str(model))


def _ladder(
    facts: ProgramFacts, limits: Limits, asked: tuple[int, ...] | None
) -> tuple[tuple[int, ...], int]:
    """Sizes of the decodes to capture, each one that the program takes, and the largest."""
    widest = facts.decodes[-1].most_tokens
    if facts.static:
        if asked:
            raise UsageError(
                "executor.ladder: a program of static widths has its own ladder; leave executor.ladder out"
            )
        return tuple(method.most_tokens for method in facts.decodes), widest
    fewest = facts.decodes[0].fewest_tokens
    most = max(fewest, min(widest, limits.most_sequences))
    return tuple(max(fewest, size) for size in asked or default_ladder(most)), most
