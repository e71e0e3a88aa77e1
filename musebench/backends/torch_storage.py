"""The pool's rows as torch tensors: for each layer one buffer of keys and one of values, rows first."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from musebench.backends.probe import LayerShape
from musebench.backends.torch_device import TorchDevice
from musebench.core.errors import OutOfMemory
from musebench.core.protocols import Resize


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


class TorchStorage:
    """See `musebench.core.protocols.Storage`.

    `generation` counts the times that addresses have changed: a graph captured at another one must not run.
    With `poison`, scratch and fresh rows hold NaN, which nobody may read.
    """

    def __init__(self, layers: tuple[LayerShape, ...], device: TorchDevice, poison: bool = False) -> None:
        self.layers = layers
        self.device = device
        self.buffers = Buffers()
        self.generation = 0
        self._rows = 0
        self._poison = poison

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def bytes(self) -> int:
        return self.buffers.bytes

    @property
    def cell_bytes(self) -> int:
        """Keys and values of one token over all layers."""
        return sum(
            layer.kv_heads * (layer.key_dim + layer.value_dim) * layer.dtype.itemsize for layer in self.layers
        )

    def free_bytes(self) -> int | None:
        return self.device.free_bytes()

    def resize(self, rows: int, live: int) -> Resize:
        """Move to buffers of `rows` rows, keeping rows 0..`live` - 1; the same `rows` moves nothing.

        Raises:
            OutOfMemory: the new buffers do not fit beside the old ones.
            ValueError: `live` exceeds the old or the new rows.
        Either way rows, addresses and contents are as before.
        """
        if not 0 <= live <= min(rows, self._rows):
            raise ValueError(f"{live} live rows of {self._rows} cannot be kept in {rows}")
        if rows == self._rows:
            return Resize(moved=False)
        self._refuse_beyond_free(rows)
        with self.device.active():
            stopwatch = self.device.stopwatch()
            fresh = self._moved(rows, live)
            stopwatch.stop()
            if self._poison:
                for new in fresh.tensors:
                    new[live:].fill_(torch.nan)
                    new[:1].fill_(torch.nan)
        # Steps and captured graphs that were launched may still read the old rows.
        self.device.settle()
        copied = sum(new[:live].nbytes for new in fresh.tensors)
        peak = fresh.bytes + self.buffers.bytes
        self.buffers, self._rows = fresh, rows
        self.generation += 1
        return Resize(True, copied, peak, stopwatch.seconds())

    def close(self) -> None:
        """Let the buffers go, after their last use; safe to call twice."""
        if self._rows:
            self.device.settle()
            self.buffers, self._rows = Buffers(), 0
            self.generation += 1

    def _refuse_beyond_free(self, rows: int) -> None:
        """A CPU's allocator promises more than there is; the kernel ends the process at the first touch."""
        needed, free = rows * self.cell_bytes, self.free_bytes()
        if self.device.device.type == "cpu" and free is not None and needed > free:
            raise OutOfMemory(needed, free, f"{rows:,} rows")

    def _moved(self, rows: int, live: int) -> Buffers:
        """New buffers with the old ones' first `live` rows. A buffer is copied as soon as it is there: on a
        GPU the next one is allocated while that copy runs. What was made is let go when one does not fit."""
        old = self.buffers
        return Buffers(
            tuple(
                self._copied(rows, live, layer.kv_heads, layer.key_dim, layer.dtype, old.keys, index)
                for index, layer in enumerate(self.layers)
            ),
            tuple(
                self._copied(rows, live, layer.kv_heads, layer.value_dim, layer.dtype, old.values, index)
                for index, layer in enumerate(self.layers)
            ),
        )

    def _copied(
        self,
        rows: int,
        live: int,
        heads: int,
        size: int,
        dtype: torch.dtype,
        old: tuple[Tensor, ...],
        index: int,
    ) -> Tensor:
        try:
            new = torch.empty(rows, heads, size, dtype=dtype, device=self.device.device)
        except RuntimeError as error:  # torch.OutOfMemoryError, and what the CPU's allocator raises
            raise OutOfMemory(rows * self.cell_bytes, self.free_bytes(), f"{rows:,} rows") from error
        if live:
            new[:live].copy_(old[index][:live])
        return new
