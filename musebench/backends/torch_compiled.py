"""The model call through torch.compile, the op opaque in it."""

from __future__ import annotations

import time
from collections.abc import Mapping

import torch
import torch.fx.experimental._config
from torch import Tensor
from torch._dynamo.utils import counters

from musebench.backends.attention import StepContext
from musebench.backends.torch_program import ModelCall

FEWEST = 2
"""torch.compile makes a program of its own for every size that is 0 or 1. Padding logit rows and sequences to
two leaves few: one decode, several decodes, and everything else."""


class CompiledCall:
    """A model call that is compiled when it first meets a kind of step; sizes are left open.

    `backend` is torch.compile's.
    """

    def __init__(self, call: ModelCall, backend: str = "inductor") -> None:
        # Else two sizes that happen to be equal at first, of rows and tokens or of a field's place in the
        # buffer, are taken to be one, and the step in which they differ compiles again.
        torch.fx.experimental._config.use_duck_shape = False
        self._compiled = torch.compile(call.__call__, fullgraph=True, dynamic=True, backend=backend)
        self.count = 0
        self.seconds = 0.0

    def __call__(self, token_ids: Tensor, positions: Tensor, rows: Tensor, step: StepContext) -> Tensor:
        wanted = rows.shape[0]
        if not step.decode:
            rows = _padded(rows, FEWEST)
            step = _with_sequences(step)
        before, started = counters["stats"]["unique_graphs"], time.perf_counter()
        logits: Tensor = self._compiled(token_ids, positions, rows, step)
        made = counters["stats"]["unique_graphs"] - before
        if made:
            self.count += made
            self.seconds += time.perf_counter() - started
        return logits[:wanted]

    def compilations(self) -> Mapping[str, int | float]:
        """Programs made so far, and the host's seconds of the calls that made them."""
        return {"compilations": self.count, "compile seconds": self.seconds}


def _padded(indices: Tensor, count: int) -> Tensor:
    missing = count - indices.shape[0]
    return indices if missing <= 0 else torch.nn.functional.pad(indices, (0, missing))


def _with_sequences(step: StepContext) -> StepContext:
    """The step with at least `FEWEST` sequences; those added are empty and belong to slot 0."""
    missing = FEWEST - step.sequence_slots.shape[0]
    if missing <= 0:
        return step
    return step._replace(
        starts=torch.cat([step.starts, step.starts[-1:].expand(missing)]),
        sequence_slots=_padded(step.sequence_slots, FEWEST),
    )
