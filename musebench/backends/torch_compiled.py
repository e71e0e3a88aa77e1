"""The model's layers through torch.compile, the op opaque in them.

Layers of one model are one program: they differ in their weights and rows, which are its inputs. So a model
of thirty layers compiles as fast as one of two. What stands outside the layers once a step, the rotary tables
and the last norm, is compiled by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch._dynamo.config
import torch.fx.experimental._config
from torch import Tensor
from torch._dynamo.utils import counters
from torch.nn import Module, ModuleList

from musebench.backends.attention import STEP, StepContext
from musebench.backends.fused_rotary import leave_rotary_to_op
from musebench.backends.torch_program import TransformersCall
from musebench.core.errors import UnsupportedError

FEWEST = 2
"""torch.compile makes a program of its own for every size that is 0 or 1. Padding sequences to two leaves
few: one token, several decodes, and everything else."""

MOST_PROGRAMS = 64
"""Programs that a layer may have: kinds of step x kinds of layer. Beyond, torch would run it eagerly."""

SINGLE_TOKEN: dict[str, Any] = {"coordinate_descent_tuning": True, "realize_acc_reads_threshold": 1}
"""Inductor's options for steps of one token. With the first, a product with one row becomes a reduction of
its own, which reads the weights faster than the library's product of matrices does and takes the residual's
sum along. The second keeps what a product reads, norms and activations, from being computed again in each of
its programs."""

SEVERAL: dict[str, Any] = {}
"""For all other steps."""


class CompiledCall:
    """A model call whose layers are compiled when they first meet a kind of step; sizes are left open.

    Takes the module over: its layers need a step from here on. `backend` is torch.compile's.

    Raises:
        UnsupportedError: the model keeps its layers where transformers' models do not.
    """

    def __init__(self, call: TransformersCall, backend: str = "inductor") -> None:
        # Else two sizes that happen to be equal at first, of rows and tokens or of a field's place in the
        # buffer, are taken to be one, and the step in which they differ compiles again.
        torch.fx.experimental._config.use_duck_shape = False
        torch._dynamo.config.recompile_limit = max(MOST_PROGRAMS, torch._dynamo.config.recompile_limit)
        self._call = call
        decoder = call.module.get_decoder()
        layers = getattr(decoder, "layers", None)
        if not isinstance(layers, ModuleList):
            raise UnsupportedError(
                f"executor 'compiled' finds no layers in {type(decoder).__name__}; use --executor eager or "
                "graph"
            )
        for index, layer in enumerate(layers):
            for part in layer.children():
                leave_rotary_to_op(part)
            layer.forward = _LayerCall(layer, index, backend)
        for part in decoder.children():
            if part is not layers and type(part) is not torch.nn.Embedding:
                part.forward = _compiled(part.forward, backend, SEVERAL)
        self.count = 0
        self.seconds = 0.0

    def __call__(
        self, token_ids: Tensor, positions: Tensor, rows: Tensor | None, step: StepContext
    ) -> Tensor:
        if token_ids.shape[0] == 1:
            step = step._replace(decode=True)  # what it is, whoever planned it
        elif not step.decode:
            step = _with_sequences(step)
        before, started = counters["stats"]["unique_graphs"], time.perf_counter()
        logits: Tensor = self._call(token_ids, positions, rows, step)
        made = counters["stats"]["unique_graphs"] - before
        if made:
            self.count += made
            self.seconds += time.perf_counter() - started
        return logits

    def compilations(self) -> Mapping[str, int | float]:
        """Programs made so far, and the host's seconds of the calls that made them."""
        return {"compilations": self.count, "compile seconds": self.seconds}


class _LayerCall:
    """One layer's forward; hands it the rows of this layer alone, so that its number is not part of it."""

    def __init__(self, layer: Module, index: int, backend: str) -> None:
        forward = layer.forward
        options = SINGLE_TOKEN if backend == "inductor" else None
        self._several: Callable[..., Any] = torch.compile(
            forward, fullgraph=True, dynamic=True, backend=backend
        )
        self._single: Callable[..., Any] = torch.compile(
            forward, fullgraph=True, dynamic=True, backend=backend, options=options
        )
        self._index = index

    def __call__(self, hidden_states: Tensor, *given: Any, **named: Any) -> Any:
        step: StepContext = named[STEP]
        named[STEP] = step._replace(
            key_rows=(step.key_rows[self._index],), value_rows=(step.value_rows[self._index],)
        )
        forward = self._single if hidden_states.shape[1] == 1 else self._several
        return forward(hidden_states, *given, **named)


def _compiled(forward: Callable[..., Any], backend: str, options: dict[str, Any]) -> Callable[..., Any]:
    """torch.compile; its other backends know none of inductor's options."""
    made: Callable[..., Any] = torch.compile(
        forward,
        fullgraph=True,
        dynamic=True,
        backend=backend,
        options=options if options and backend == "inductor" else None,
    )
    return made


def _with_sequences(step: StepContext) -> StepContext:
    """The step with at least `FEWEST` sequences; those added are empty and belong to slot 0."""
    missing = FEWEST - step.sequence_slots.shape[0]
    if missing <= 0:
        return step
    return step._replace(
        starts=torch.cat([step.starts, step.starts[-1:].expand(missing)]),
        sequence_slots=torch.nn.functional.pad(step.sequence_slots, (0, missing)),
    )
