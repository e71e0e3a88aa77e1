"""Where a torch storage's rows lie: buffers that move when they grow, and buffers that stay."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from musebench.backends.probe import LayerShape
from musebench.backends.torch_device import TorchDevice
from musebench.core.errors import OutOfMemory
from musebench.core.protocols import Resize
from musebench.core.spans import Granules, Span, SpanMemory


@dataclass(frozen=True, slots=True)
class Buffers:
    """Keys [rows, Hk, D] and values [rows, Hk, Dv] of every layer."""

    keys: tuple[Tensor, ...] = ()
    values: tuple[Tensor, ...] = ()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.keys + self.values

    @property
    def bytes(self) -> int:
        """From the tensors' own sizes, their whole allocation."""
        return sum(tensor.untyped_storage().nbytes() for tensor in self.tensors)


@dataclass(frozen=True, slots=True)
class BufferShape:
    """One buffer's rows: [rows, heads, size] of `dtype`."""

    heads: int
    size: int
    dtype: torch.dtype

    @property
    def row_bytes(self) -> int:
        return self.heads * self.size * self.dtype.itemsize


def buffer_shapes(layers: tuple[LayerShape, ...]) -> list[BufferShape]:
    """All keys, then all values."""
    return [BufferShape(layer.kv_heads, layer.key_dim, layer.dtype) for layer in layers] + [
        BufferShape(layer.kv_heads, layer.value_dim, layer.dtype) for layer in layers
    ]


class RowBuffers(Protocol):
    """Buffers of rows on one device. `resize` is all or nothing, as `musebench.core.protocols.Storage`'s;
    `outside_bytes` are what torch's allocator does not know of."""

    buffers: Buffers

    @property
    def bytes(self) -> int: ...

    @property
    def outside_bytes(self) -> int: ...

    def resize(self, rows: int, live: int) -> Resize: ...

    def close(self) -> None: ...


class MovingRows:
    """Ordinary tensors: growth allocates new ones and copies the live rows."""

    outside_bytes = 0

    def __init__(self, shapes: list[BufferShape], device: TorchDevice) -> None:
        self.buffers = Buffers()
        self._shapes = shapes
        self._device = device

    @property
    def bytes(self) -> int:
        return self.buffers.bytes

    def resize(self, rows: int, live: int) -> Resize:
        stopwatch = self._device.stopwatch()
        fresh = self._moved(rows, live)
        stopwatch.stop()
        # Steps and captured graphs that were launched may still read the old rows.
        self._device.settle()
        copied = sum(new[:live].nbytes for new in fresh.tensors)
        peak = fresh.bytes + self.buffers.bytes
        self.buffers = fresh
        return Resize(True, copied, peak, stopwatch.seconds())

    def close(self) -> None:
        self.buffers = Buffers()

    def _moved(self, rows: int, live: int) -> Buffers:
        """New buffers with the old ones' first `live` rows. A buffer is copied as soon as it is there: on a
        GPU the next one is allocated while that copy runs. What was made is let go when one does not fit."""
        old = self.buffers.tensors
        made = tuple(self._copied(shape, rows, live, old, index) for index, shape in enumerate(self._shapes))
        return split(made)

    def _copied(
        self, shape: BufferShape, rows: int, live: int, old: tuple[Tensor, ...], index: int
    ) -> Tensor:
        try:
            new = torch.empty(rows, shape.heads, shape.size, dtype=shape.dtype, device=self._device.device)
        except RuntimeError as error:  # torch.OutOfMemoryError, and what the CPU's allocator raises
            needed = rows * sum(shape.row_bytes for shape in self._shapes)
            raise OutOfMemory(needed, self._device.free_bytes(), f"{rows:,} rows") from error
        if live:
            new[:live].copy_(old[index][:live])
        return new


class StandingRows:
    """Tensors over spans: growth backs more of each span, and no address changes.

    A tensor names the rows that there are and no more, so that nothing can reach what is not backed.
    """

    def __init__(
        self, shapes: list[BufferShape], device: TorchDevice, memory: SpanMemory, most_rows: int
    ) -> None:
        self.buffers = Buffers()
        self.granules = Granules(memory.granule_bytes, tuple(shape.row_bytes for shape in shapes), most_rows)
        self._shapes = shapes
        self._device = device
        self._rows = 0
        self._whole: list[Tensor] = []
        self._spans: list[Span] = []
        try:
            for shape in shapes:
                self._spans.append(memory.reserve(most_rows * shape.row_bytes))
        except BaseException:
            self.close()
            raise

    @property
    def bytes(self) -> int:
        return sum(span.backed_bytes for span in self._spans)

    @property
    def outside_bytes(self) -> int:
        return self.bytes if self._device.device.type == "cuda" else 0

    def resize(self, rows: int, live: int) -> Resize:
        """`seconds` are the host's: the device has nothing to do."""
        if rows > self.granules.most_rows:
            raise ValueError(f"{rows:,} rows of {self.granules.most_rows:,} reserved ones")
        if rows < self._rows:
            self._device.settle()  # steps that were launched may still use what is given back
        began = time.perf_counter()
        try:
            self._back(rows)
        except OutOfMemory:
            self._device.trim()  # torch's allocator may hold what is missing, without use
            try:
                self._back(rows)
            except OutOfMemory as error:
                needed = self.granules.bytes_for(rows)
                raise OutOfMemory(needed - self.bytes, error.free_bytes, f"{rows:,} rows") from error
        if not self._whole and rows:
            self._whole = [
                _over(span, self._device.device).view(shape.dtype)
                for span, shape in zip(self._spans, self._shapes, strict=True)
            ]
        self.buffers = split(
            tuple(
                whole[: rows * shape.heads * shape.size].view(rows, shape.heads, shape.size)
                for whole, shape in zip(self._whole, self._shapes, strict=True)
            )
        )
        self._rows = rows
        return Resize(False, 0, self.bytes, time.perf_counter() - began)

    def _back(self, rows: int) -> None:
        done: list[int] = []
        try:
            for index, span in enumerate(self._spans):
                span.back(self.granules.of(index, rows))
                done.append(index)
        except BaseException:
            for index in done:
                with suppress(OutOfMemory):  # less than a moment ago, where rows grow
                    self._spans[index].back(self.granules.of(index, self._rows))
            raise

    def close(self) -> None:
        """Tensors first; the spans' addresses are nobody's afterwards."""
        self.buffers, self._whole = Buffers(), []
        for span in self._spans:
            span.close()
        self._spans = []


def split(tensors: tuple[Tensor, ...]) -> Buffers:
    """Keys and values of tensors in the order of `buffer_shapes`."""
    return Buffers(tensors[: len(tensors) // 2], tensors[len(tensors) // 2 :])


class _Bytes:
    """All addresses of a span as numpy and torch take them; keeps the span alive."""

    def __init__(self, span: Span) -> None:
        self.span = span

    def _interface(self) -> dict[str, Any]:
        return {
            "shape": (self.span.reserved_bytes,),
            "typestr": "|u1",
            "data": (self.span.address, False),
            "version": 3,
        }


class _HostBytes(_Bytes):
    __array_interface__ = property(_Bytes._interface)


class _CudaBytes(_Bytes):
    __cuda_array_interface__ = property(_Bytes._interface)


def _over(span: Span, device: torch.device) -> Tensor:
    """A span's addresses as uint8 [reserved bytes]; its front is backed, for torch asks the driver whose the
    first address is. It must not be read or written as a whole."""
    if device.type == "cuda":
        made: Tensor = torch.as_tensor(_CudaBytes(span), device=device)
    else:
        made = torch.from_numpy(np.asarray(_HostBytes(span)))
    if made.data_ptr() != span.address:
        raise RuntimeError("torch copied a span instead of taking it over")
    return made
