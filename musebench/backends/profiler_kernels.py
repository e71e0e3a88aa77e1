"""Single kernels on a device, timed: copies, products, small kernels, and attention with the project's op."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from typing import Any, Protocol

import torch

from musebench.backends.simulated.kernels import ProductPoint
from musebench.kernels.op import OPERATORS

ROTATED_BYTES = 160 << 20
"""Operands go round copies that are larger together than a cache: a model's weights are not in it either."""

MOST_COPIES = 1024


class Timer(Protocol):
    """Seconds of one of `calls`, run one after the other: warmed up, and the median of several rounds."""

    def seconds(self, calls: Sequence[Callable[[], Any]]) -> float: ...


class HostTimer:
    """On a CPU a call is over when it returns."""

    def __init__(self, rounds: int = 5) -> None:
        self._rounds = rounds

    def seconds(self, calls: Sequence[Callable[[], Any]]) -> float:
        for call in calls[:2]:
            call()
        samples = []
        for _ in range(self._rounds):
            start = time.perf_counter()
            for call in calls:
                call()
            samples.append((time.perf_counter() - start) / len(calls))
        return statistics.median(samples)


class CudaTimer:
    """Replays of a graph that holds the calls, between two events: no launch is in the time."""

    def __init__(self, rounds: int = 7) -> None:
        self._rounds = rounds
        self._stream = torch.cuda.Stream()

    def seconds(self, calls: Sequence[Callable[[], Any]]) -> float:
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for call in calls[:2]:
                call()
            self._stream.synchronize()
            # As in `musebench.backends.cuda_graphs`: `torch.cuda.graph` would collect before each capture.
            collects = gc.isenabled()
            gc.disable()
            try:
                graph.capture_begin()
                for call in calls:
                    call()
                graph.capture_end()
            finally:
                if collects:
                    gc.enable()
        torch.cuda.current_stream().wait_stream(self._stream)
        graph.replay()
        samples = []
        for _ in range(self._rounds):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            samples.append(begin.elapsed_time(end) / 1e3 / len(calls))
        graph.reset()
        return statistics.median(samples)


@dataclass(frozen=True, slots=True)
class AttentionSample:
    """One launch of the op over one layer: the bytes of the cells it attends to, each once, its operations,
    and its seconds."""

    head_dim: int
    bytes: int
    flops: int
    seconds: float


@dataclass(frozen=True)
class KernelMeter:
    """Times kernels of `dtype` on `device`."""

    device: torch.device
    dtype: torch.dtype
    timer: Timer
    rotated_bytes: int = ROTATED_BYTES

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    def small_bandwidth(self, size: int) -> float:
        """Bytes per second that a product of two vectors, element by element, reads and writes."""
        first = self._random(size // self.dtype.itemsize)
        second, target = self._random(len(first)), torch.empty_like(first)
        seconds = self.timer.seconds([lambda: torch.mul(first, second, out=target)] * 3)
        return 3 * first.nbytes / seconds

    def matrix_rate(self, sizes: Sequence[int]) -> float:
        """Operations per second of the best of square products of random data."""
        rates = []
        for size in sizes:
            first, second = self._random(size, size), self._random(size, size)
            target = torch.empty_like(first)
            seconds = self.timer.seconds([partial(torch.mm, first, second, out=target)] * 4)
            rates.append(2.0 * size**3 / seconds)
        return max(rates)

    def products(self, shapes: Sequence[tuple[int, int]], tokens: Sequence[int]) -> list[ProductPoint]:
        """Every [tokens, inputs] x [inputs, outputs], weights laid out as a model's linear layers are."""
        points = []
        for inputs, outputs in shapes:
            size = inputs * outputs * self.dtype.itemsize
            count = max(1, min(MOST_COPIES, self.rotated_bytes // size))
            weights = self._random(count, outputs, inputs).unbind()
            for number in tokens:
                given = self._random(number, inputs)
                made = given.new_empty(number, outputs)
                calls = [
                    lambda w=weight, x=given, y=made: torch.mm(x, w.t(), out=y)
                    for weight in islice(cycle(weights), max(8, count if number < 256 else min(count, 32)))
                ]
                points.append(
                    ProductPoint(number, inputs, outputs, self.dtype_name, self.timer.seconds(calls))
                )
        return points

    def attention(self, heads: tuple[int, int, int], slices: Sequence[tuple[int, int]]) -> AttentionSample:
        """One step over slices of (tokens before, tokens of the step); `heads` are query heads, KV heads and
        the head size. Cells are shuffled, as a pool's are after a while."""
        count, kv_heads, head_dim = heads
        cells = sum(before + tokens for before, tokens in slices)
        size = 2 * cells * kv_heads * head_dim * self.dtype.itemsize
        pairs = sum(tokens * before + tokens * (tokens + 1) // 2 for before, tokens in slices)
        layers = max(2, min(200, 1 + self.rotated_bytes // size))
        attend = OPERATORS["triton" if self.device.type == "cuda" else "reference"]
        shared = self._step(heads, slices)
        query, key, value, *rest = shared
        decode = all(tokens == 1 for _, tokens in slices)
        rows = [self._random(2, 1 + cells, kv_heads, head_dim) for _ in range(layers)]
        calls = [
            lambda r=each: attend(query, key, value, r[0], r[1], *rest, head_dim**-0.5, 0, 0.0, None, decode)
            for each in islice(cycle(rows), max(layers, 8))
        ]
        seconds = self.timer.seconds(calls)
        return AttentionSample(head_dim, size, 4 * count * head_dim * pairs, seconds)

    def _step(
        self, heads: tuple[int, int, int], slices: Sequence[tuple[int, int]]
    ) -> tuple[torch.Tensor, ...]:
        """Query, key, value, then the op's int32 arguments: cells, positions, slots, starts, sequence_slots
        and table."""
        count, kv_heads, head_dim = heads
        lengths = [before + tokens for before, tokens in slices]
        free = torch.randperm(sum(lengths), dtype=torch.int32) + 1
        table = torch.zeros(1 + len(slices), max(lengths), dtype=torch.int32)
        cells, positions, slots, starts = [], [], [], [0]
        for slot, (owned, (before, tokens)) in enumerate(
            zip(free.split(lengths), slices, strict=True), start=1
        ):
            table[slot, : len(owned)] = owned
            cells.append(owned[before:])
            positions.append(torch.arange(before, before + tokens, dtype=torch.int32))
            slots += [slot] * tokens
            starts.append(starts[-1] + tokens)
        total = starts[-1]
        numbers = (
            torch.cat(cells), torch.cat(positions), torch.tensor(slots, dtype=torch.int32),
            torch.tensor(starts, dtype=torch.int32),
            torch.arange(1, 1 + len(slices), dtype=torch.int32), table,
        )  # fmt: skip
        return (
            self._random(total, count, head_dim),
            self._random(total, kv_heads, head_dim),
            self._random(total, kv_heads, head_dim),
            *(number.to(self.device) for number in numbers),
        )

    def _random(self, *sizes: int) -> torch.Tensor:
        return torch.randn(sizes, device=self.device, dtype=self.dtype)
