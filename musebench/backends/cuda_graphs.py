"""CUDA graphs over one step program: capture, replay and drop, all in one memory pool."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from musebench.backends.torch_device import CudaDevice
from musebench.backends.torch_program import StepProgram
from musebench.core.batch import BatchLayout, decode_layout
from musebench.core.errors import UnsupportedError
from musebench.core.plan import Limits

WARM_UPS = 2
"""Runs before a capture: kernels are compiled and libraries take their workspaces outside of the graph."""


@dataclass(eq=False)
class CapturedStep:
    """A step of one layout; `buffer` int32 [layout.words] is filled before each replay, `results` read after.

    `generation` is the storage's at capture: at any other the rows are elsewhere.
    """

    layout: BatchLayout
    graph: torch.cuda.CUDAGraph
    buffer: Tensor
    results: Tensor
    generation: int


class CudaGraphs:
    """The captured steps of one backend."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._stream = _capture_stream(device.device)
        self._pool: tuple[int, int] | None = None
        self._captured: set[CapturedStep] = set()

    def capture(self, program: StepProgram, layout: BatchLayout) -> CapturedStep:
        """Capture one step of `layout`, its warm-up made of padding alone: it writes scratch and slot 0.

        Raises:
            UnsupportedError: the model does what cannot be captured, such as waiting for the device.
        """
        buffer = self._device.upload(idle_buffer(layout))
        if not self._captured:
            # torch gives a pool up with the last graph in it, does not take its handle again, and keeps its
            # memory until asked: a ladder captured again would hold twice as much.
            self._device.trim()
            self._pool = torch.cuda.graph_pool_handle()
        self._stream.wait_stream(torch.cuda.current_stream(self._device.device))
        graph = torch.cuda.CUDAGraph()
        collects = gc.isenabled()
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_UPS):
                program(buffer, layout)
            self._stream.synchronize()
            # A collection could free device memory, which ends a capture. `torch.cuda.graph` collects before
            # each capture, a good part of a second with a model loaded; a ladder has dozens.
            gc.disable()
            try:
                results = self._recorded(graph, program, buffer, layout)
            finally:
                if collects:
                    gc.enable()
        torch.cuda.current_stream(self._device.device).wait_stream(self._stream)
        captured = CapturedStep(layout, graph, buffer, results, program.storage.generation)
        self._captured.add(captured)
        return captured

    def _recorded(
        self, graph: torch.cuda.CUDAGraph, program: StepProgram, buffer: Tensor, layout: BatchLayout
    ) -> Tensor:
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        try:
            results = program(buffer, layout)
        except Exception as error:
            with suppress(RuntimeError):  # it says that the capture failed, which is known
                graph.capture_end()
            if isinstance(error, torch.OutOfMemoryError):
                raise
            reason = " ".join(str(error).split()).partition(". ")[0]
            raise UnsupportedError(
                f"this model's step of {layout.tokens} tokens cannot be captured ({reason}); "
                "use --executor eager"
            ) from error
        graph.capture_end()
        return results

    def replay(
        self, captured: CapturedStep, words: np.ndarray, layout: BatchLayout, generation: int
    ) -> Tensor:
        """Fill the step's buffer and replay it; returns its results, valid until its next replay.

        Raises:
            RuntimeError: the step was dropped, or has another layout, or its rows have moved.
        """
        if captured not in self._captured:
            raise RuntimeError(f"the graph of {captured.layout} was dropped")
        if captured.layout != layout:
            raise RuntimeError(f"the graph of {captured.layout} cannot run {layout}")
        if captured.generation != generation:
            raise RuntimeError(
                f"the graph of {layout} was captured at generation {captured.generation} of the rows, which "
                f"are at {generation}"
            )
        self._device.upload(words, into=captured.buffer)
        captured.graph.replay()
        return captured.results

    def drop(self, captured: CapturedStep) -> None:
        """Free a step once its last replay is over; safe to call twice."""
        if captured in self._captured:
            self._device.settle()
            self._captured.remove(captured)
            captured.graph.reset()

    def close(self) -> None:
        for captured in tuple(self._captured):
            self.drop(captured)

    @property
    def pool_bytes(self) -> int:
        """Device memory that torch holds for the graphs' shared pool."""
        if not self._captured:
            return 0
        return sum(
            segment["total_size"]
            for segment in torch.cuda.memory_snapshot()
            if tuple(segment["segment_pool_id"]) == self._pool
        )


@cache
def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all captures on a device: libraries keep a workspace a stream, of 32 MiB on some GPUs."""
    return torch.cuda.Stream(device)


def warm_layouts(limits: Limits) -> Iterator[BatchLayout]:
    """Layouts between which kernels change: decodes of every power of two, slices few and many."""
    most = min(limits.most_sequences, limits.most_tokens)
    sizes = {1 << power for power in range(most.bit_length())} | {most}
    for size in sorted(size for size in sizes if size <= most):
        yield decode_layout(size)
    tokens = limits.most_tokens
    for count, sequences in dict.fromkeys(((2, 1), (tokens, 1), (tokens, 2), (tokens, most))):
        if count <= tokens and sequences <= most:
            yield BatchLayout(count, sequences, sequences)


def idle_buffer(layout: BatchLayout) -> np.ndarray:
    """A packed batch of padding only: int32 [layout.words]."""
    buffer = np.zeros(layout.words, np.int32)
    if layout.decode:
        layout.fields(buffer).starts[:] = np.arange(layout.sequences + 1)
    return buffer
