"""Steps on a real device through torch: a transformers model whose attention is the one op."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from musebench.backends.batch_check import check_batch
from musebench.backends.cuda_graphs import CapturedStep, CudaGraphs, idle_buffer, warm_layouts
from musebench.backends.exported_call import ExportedCall, NoModule
from musebench.backends.exported_check import check_build, check_context, check_model, layer_shapes
from musebench.backends.exported_weights import PackageWeights, load_weights, module_weights
from musebench.backends.packed import pack_projections
from musebench.backends.probe import probe
from musebench.backends.rotary import fix_rotary
from musebench.backends.torch_compiled import CompiledCall
from musebench.backends.torch_device import CudaDevice, Stopwatch, open_device
from musebench.backends.torch_memory import ForwardMemory
from musebench.backends.torch_options import TorchOptions
from musebench.backends.torch_output import TorchOutput
from musebench.backends.torch_profile import TorchProfiler
from musebench.backends.torch_program import ModelCall, StepProgram, TransformersCall
from musebench.backends.torch_storage import TorchStorage
from musebench.core.batch import BatchLayout, StepBatch
from musebench.core.clock import HostClock
from musebench.core.errors import UnsupportedError, UsageError
from musebench.core.plan import Limits
from musebench.core.protocols import MemorySnapshot, PoolBounds
from musebench.measure.nvml import Nvml
from musebench.models.source import Model
from musebench.programs.facts import ProgramFacts
from musebench.programs.package import read_facts

FEWEST_ROWS = 3
"""Of the rows that padding runs over: a compiled program treats sizes of 0 and 1 apart."""

TABLE_STEP = 64
"""The cell table's width is a multiple of this."""


class TorchBackend:
    """See `musebench.core.protocols.Backend`; `device` is "cpu", "cuda" or "cuda:N".

    Takes the model over: from here on its attention needs a step (see `musebench.backends.attention`).

    Raises:
        UnsupportedError: no such device here, or the model asks attention for what the op does not do.
        UsageError: a model without weights, or weights that are on another device.
    """

    Options = TorchOptions

    def __init__(self, options: TorchOptions, device: str, model: Model) -> None:
        self._device = open_device(device)
        self.name = self._device.device.type
        self.facts = model.facts
        self.clock = HostClock()
        self.options = options
        self.kernels = _kernels(options, self.name)
        if model.module is None and model.program is None:
            raise UsageError(
                f"model {model.facts.name!r} was opened without weights; --device {device} needs them"
            )
        self.module = None if model.module is None else model.module.eval()
        self.model_program = model.program
        self._weights_sha256 = model.weights_sha256
        if self.module is not None:
            _check_weights(self.module, self._device.device, device)
        if self.facts.dtype == "float32":
            # TF32 keeps 10 bits of a product; tokens then differ from generate's.
            torch.set_float32_matmul_precision("highest")
        self._package_weights: PackageWeights | None = None
        if self.module is not None:
            with self._device.active():
                layers = probe(self.module)
                pack_projections(self.module)
                self._device.trim()  # the blocks of the weights that were packed
            self._vocabulary = int(self.module.get_input_embeddings().weight.shape[0])
        else:
            package, program = Path(str(model.program)), read_facts(str(model.program))
            check_build(package, program.build, self._device.device, self.kernels)
            with self._device.active():
                self._package_weights = PackageWeights.read(package, program, self._device.device)
            layers, self._vocabulary = layer_shapes(program), program.vocabulary
        self._storage = TorchStorage(layers, self._device, options.poison)
        self._graphs = CudaGraphs(self._device) if isinstance(self._device, CudaDevice) else None
        self._bounds: PoolBounds | None = None
        self._program: StepProgram | None = None

    @staticmethod
    def require(device: str) -> None:
        """Say that this machine lacks a device before anything is loaded for it.

        Raises:
            UnsupportedError: it does.
        """
        open_device(device)

    @staticmethod
    def memory_before(device: str) -> MemorySnapshot:
        """Memory with nothing loaded, its peak counted from here on."""
        opened = open_device(device)
        opened.reset_peak()
        return opened.memory()

    # -- before the first step ------------------------------------------------------------------------

    def open(self, bounds: PoolBounds, record_margins: bool = False) -> None:
        """Allocate the cell table and the last tokens, int32 [max_sessions + 1, ...]; their addresses stay.

        Raises:
            UnsupportedError: contexts of this length make the model's positions depend on neighbours.
        """
        if self._program is not None:
            raise RuntimeError("the backend is open already")
        if self.module is not None:
            fix_rotary(self.module, bounds.max_context)
        width = -(-bounds.max_context // TABLE_STEP) * TABLE_STEP
        rows = bounds.max_sessions + 1
        device = self._device.device
        self._bounds = bounds
        call: ModelCall = (
            NoModule(self.model_program) if self.module is None else TransformersCall(self.module)
        )
        self._program = StepProgram(
            call,
            self._storage,
            torch.zeros(rows, width, dtype=torch.int32, device=device),
            torch.zeros(rows, dtype=torch.int32, device=device),
            self.kernels,
            record_margins,
        )

    def storage(self) -> TorchStorage:
        return self._storage

    @property
    def program(self) -> StepProgram:
        """What the device does in a step; its `model` may be replaced, by a compiled one for instance.

        Raises:
            RuntimeError: the backend is not open.
        """
        if self._program is None:
            raise RuntimeError("the backend is not open")
        return self._program

    # -- steps ----------------------------------------------------------------------------------------

    def forward(self, batch: StepBatch) -> TorchOutput:
        """Launch one step; on CUDA it returns before the device is done, but for the reference kernels.

        Raises:
            ValueError: an index of the batch is out of its range; nothing was launched.
            OutOfMemory: the device has no room for the activations.
        """
        program = self._checked(batch)
        with self._device.active(), ForwardMemory(self._device, batch.layout), torch.inference_mode():
            stopwatch = self._device.stopwatch()
            self._apply_edits(program, batch)
            results = program(self._device.upload(batch.buffer), batch.layout)
            return self._output(results, stopwatch, batch)

    def warm(self, limits: Limits) -> Mapping[str, float]:
        """Run steps of padding alone, over rows of their own: kernels are compiled, and so is a compiled
        model. On a CPU nothing but a model has to be. A program's layouts are its own.
        """
        program = self.program
        compiled = isinstance(program.model, CompiledCall)
        if self.name == "cpu" and not compiled:
            return {}
        start = time.perf_counter()
        rows = TorchStorage(self._storage.layers, self._device)
        rows.resize(FEWEST_ROWS, 0)
        kept, program.storage = program.storage, rows
        try:
            with self._device.active(), torch.inference_mode():
                model = program.model
                layouts = model.layouts() if isinstance(model, ExportedCall) else warm_layouts(limits)
                for layout in layouts:
                    program(self._device.upload(idle_buffer(layout)), layout)
        finally:
            program.storage = kept
            rows.close()
        self._device.settle()
        return {"compile" if compiled else "kernels": time.perf_counter() - start}

    @property
    def nvml(self) -> Nvml | None:
        """The device's own counters; None for a CPU."""
        return self._device.nvml if isinstance(self._device, CudaDevice) else None

    def compile(self) -> None:
        """From here on the model runs through torch.compile, which compiles a kind of step at first use."""
        model = self.program.model
        if isinstance(model, TransformersCall):
            self.program.model = CompiledCall(model)

    def compilations(self) -> Mapping[str, int | float]:
        model = None if self._program is None else self._program.model
        return model.compilations() if isinstance(model, CompiledCall) else {}

    def require_program(self, path: Path, facts: ProgramFacts) -> None:
        """See `musebench.programs.backend.ProgramBackend`."""
        check_build(path, facts.build, self._device.device, self.kernels)
        check_model(path, facts, self.facts, self._storage.layers)
        if self._bounds is not None:
            check_context(path, facts, self._bounds.max_context)

    def load_program(self, path: Path, facts: ProgramFacts) -> Mapping[str, float]:
        """See `musebench.programs.backend.ProgramBackend`; a module that is loaded lends its weights.

        Raises:
            InputError: the package, or the file of its weights, is damaged or missing.
            UsageError: it was exported with other weights than the model has.
        """
        started = time.perf_counter()
        program, own = self.program, self._package_weights
        with self._device.active():
            call = ExportedCall(path, facts, self._device.device)
            if own is not None:
                weights = own.tensors
            else:
                weights = module_weights(self.module, path, facts, self._weights_sha256, self.facts.name)
            read = load_weights(call, path, weights, self._device.device)
        program.model = call
        before, weights_read = (0.0, 0) if own is None else (own.seconds, own.bytes)
        return {"seconds": before + time.perf_counter() - started, "bytes": weights_read + read}

    def require_model(self) -> None:
        """Say, once the executor is ready, that it runs a module and there is none.

        Raises:
            UsageError: the model is a program that was not loaded.
        """
        model = self.program.model
        if isinstance(model, NoModule):
            raise model.refusal()

    def require_capture(self) -> None:
        self._capturing()

    def capture(self, layout: BatchLayout) -> CapturedStep:
        """A CUDA graph of one step of `layout`, valid while the storage's rows stay where they are."""
        graphs, program = self._capturing(), self.program
        with self._device.active(), ForwardMemory(self._device, layout), torch.inference_mode():
            return graphs.capture(program, layout)

    def replay(self, graph: CapturedStep, batch: StepBatch) -> TorchOutput:
        """Launch a captured step with another batch of its layout.

        Raises:
            ValueError: an index of the batch is out of its range; nothing was launched.
            RuntimeError: the graph was dropped, has another layout, or the rows have moved since its capture.
        """
        graphs, program = self._capturing(), self._checked(batch)
        with self._device.active(), ForwardMemory(self._device, batch.layout), torch.inference_mode():
            stopwatch = self._device.stopwatch()
            self._apply_edits(program, batch)
            results = graphs.replay(graph, batch.buffer, batch.layout, self._storage.generation)
            return self._output(results, stopwatch, batch)

    def drop(self, graph: CapturedStep) -> None:
        if self._graphs is not None:
            self._graphs.drop(graph)

    @property
    def graph_pool_bytes(self) -> int:
        """Device memory of the pool that all captured graphs share."""
        return 0 if self._graphs is None else self._graphs.pool_bytes

    def synchronize(self) -> None:
        self._device.settle()

    def profiler(self) -> TorchProfiler:
        """Records the kernels of this device; see `musebench.core.profiling.Profiler`."""
        return TorchProfiler(self._device.device)

    # -- facts ----------------------------------------------------------------------------------------

    @property
    def workspace_bytes(self) -> int:
        """The cell table and the last tokens, from their own sizes."""
        program = self._program
        return 0 if program is None else program.table.nbytes + program.last_token.nbytes

    def memory(self) -> MemorySnapshot:
        """The device's; rows that are mapped beside torch's allocator are added to what it says."""
        made, storage = self._device.memory(), self._storage
        now, most = storage.outside_bytes, storage.most_outside_bytes
        if not most or made.allocated is None or made.reserved is None or made.peak is None:
            return made
        return replace(
            made,
            allocated=made.allocated + now,
            reserved=made.reserved + now,
            peak=made.peak + most,
            mapped=now,
        )

    @property
    def memory_reasons(self) -> Mapping[str, str]:
        return self._device.memory_reasons()

    def reset_peak(self) -> None:
        self._device.reset_peak()
        self._storage.reset_peak()

    def conditions(self) -> Mapping[str, Any]:
        return {
            **self._device.conditions(),
            "dtype": self.facts.dtype,
            "kernels": self.kernels,
            "poison": self.options.poison,
        }

    def close(self) -> None:
        if self._graphs is not None:
            self._graphs.close()
        self._storage.close()
        self._program = None
        self._device.trim()

    # -- inside ---------------------------------------------------------------------------------------

    def _checked(self, batch: StepBatch) -> StepProgram:
        program = self.program
        slots, width = program.table.shape[0] - 1, program.table.shape[1]
        check_batch(batch, slots, width, self._storage.rows, self._vocabulary)
        return program

    def _apply_edits(self, program: StepProgram, batch: StepBatch) -> None:
        for slot, first, cells in batch.edits:
            words = np.ascontiguousarray(cells, np.int32)
            self._device.upload(words, into=program.table[slot, first : first + len(words)])

    def _output(self, results: torch.Tensor, stopwatch: Stopwatch, batch: StepBatch) -> TorchOutput:
        stopwatch.stop()
        return TorchOutput(self._device.download(results), stopwatch, batch.rows)

    def _capturing(self) -> CudaGraphs:
        if self._graphs is None:
            raise UnsupportedError("executor 'graph' needs a CUDA device; use --executor eager")
        if self.kernels == "reference":
            raise UnsupportedError(
                "executor 'graph' cannot capture the reference kernels, which wait for the device; use "
                "--set backend.kernels=triton or --executor eager"
            )
        return self._graphs


def _kernels(options: TorchOptions, device: str) -> str:
    """The operator that attention ends in."""
    if device == "cpu":
        if options.kernels == "triton":
            raise UnsupportedError("kernels 'triton' need a CUDA device; use --set backend.kernels=reference")
        return "reference"
    if options.kernels == "reference":
        return "reference"
    if importlib.util.find_spec("triton") is None:
        raise UnsupportedError(
            "kernels 'triton' need the package triton; install it or use --set backend.kernels=reference"
        )
    return "triton"


def _check_weights(module: torch.nn.Module, device: torch.device, wanted: str) -> None:
    found = next(module.parameters()).device
    if found.type != device.type or (found.index is not None and found.index != device.index):
        raise UsageError(f"--device {wanted} was asked for and the model's weights are on {found}")
