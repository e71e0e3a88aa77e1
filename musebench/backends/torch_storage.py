"""The pool's rows as torch tensors: for each layer one buffer of keys and one of values, rows first."""

from __future__ import annotations

from collections.abc import Sequence as Ordered

import torch

from musebench.backends.probe import LayerShape
from musebench.backends.torch_device import TorchDevice
from musebench.backends.torch_rows import Buffers, MovingRows, RowBuffers, StandingRows, buffer_shapes
from musebench.core.errors import OutOfMemory
from musebench.core.protocols import Resize
from musebench.core.spans import SpanSource, check_reservation

__all__ = ["Buffers", "TorchStorage"]


class TorchStorage:
    """See `musebench.core.protocols.Storage`, and `musebench.core.spans.GrowsInPlace`.

    `generation` counts the times that addresses have changed: a graph captured at another one must not run.
    With `poison`, scratch and fresh rows hold NaN, which nobody may read.
    """

    def __init__(self, layers: tuple[LayerShape, ...], device: TorchDevice, poison: bool = False) -> None:
        self.layers = layers
        self.device = device
        self.generation = 0
        self._shapes = buffer_shapes(layers)
        self._where: RowBuffers = MovingRows(self._shapes, device)
        self._rows = 0
        self._poison = poison
        self._most_outside = 0

    @property
    def buffers(self) -> Buffers:
        return self._where.buffers

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def bytes(self) -> int:
        return self._where.bytes

    @property
    def cell_bytes(self) -> int:
        """Keys and values of one token over all layers."""
        return sum(shape.row_bytes for shape in self._shapes)

    def free_bytes(self) -> int | None:
        return self.device.free_bytes()

    # -- rows that stay where they are ----------------------------------------------------------------

    def reserve(self, rows: int, source: SpanSource) -> None:
        """See `musebench.core.spans.GrowsInPlace`."""
        standing = isinstance(self._where, StandingRows)
        check_reservation(rows, standing or self._rows > 0, [shape.row_bytes for shape in self._shapes])
        with self.device.active():
            memory = source.open(str(self.device.device))
            self._where = StandingRows(self._shapes, self.device, memory, rows)

    def bytes_for(self, rows: int) -> int:
        where = self._where
        return where.granules.bytes_for(rows) if isinstance(where, StandingRows) else rows * self.cell_bytes

    def rows_within(self, rows: int) -> int:
        where = self._where
        return where.granules.rows_within(rows) if isinstance(where, StandingRows) else rows

    @property
    def slack_bytes(self) -> int:
        where = self._where
        return where.granules.slack_bytes if isinstance(where, StandingRows) else 0

    @property
    def outside_bytes(self) -> int:
        """Bytes of rows that torch's allocator does not know of."""
        return self._where.outside_bytes

    @property
    def most_outside_bytes(self) -> int:
        """The most of `outside_bytes` since `reset_peak`."""
        return self._most_outside

    def reset_peak(self) -> None:
        self._most_outside = self.outside_bytes

    # -- rows -----------------------------------------------------------------------------------------

    def resize(self, rows: int, live: int) -> Resize:
        """Have `rows` rows, keeping rows 0..`live` - 1: in new buffers, or in place after `reserve`. The same
        `rows` changes nothing.

        Raises:
            OutOfMemory: the rows do not fit, new ones beside old ones where they move.
            ValueError: `live` exceeds the old or the new rows, or `rows` what is reserved.
        Either way rows, addresses and contents are as before.
        """
        if not 0 <= live <= min(rows, self._rows):
            raise ValueError(f"{live} live rows of {self._rows} cannot be kept in {rows}")
        if rows == self._rows:
            return Resize(moved=False)
        self._refuse_beyond_free(rows)
        with self.device.active():
            done = self._where.resize(rows, live)
            self._rows = rows
            self.generation += done.moved
            self._most_outside = max(self._most_outside, self.outside_bytes)
            if self._poison:
                for tensor in self.buffers.tensors:
                    tensor[live:].fill_(torch.nan)
                    tensor[:1].fill_(torch.nan)
        return done

    def move(self, runs: Ordered[tuple[int, int, int]]) -> int:
        """Copy rows inside the storage in stream order, one run (source, target, count) after the other; a
        run may overlap its own target. Returns the bytes copied.

        Raises:
            ValueError: a run that leaves the rows, or touches scratch; nothing was copied.
        """
        for source, target, count in runs:
            if min(source, target) < 1 or count < 0 or max(source, target) + count > self._rows:
                raise ValueError(f"{count} rows from {source} to {target} of {self._rows} cannot be copied")
        copied = 0
        with self.device.active():
            for tensor in self.buffers.tensors:
                for source, target, count in runs:
                    rows = tensor[source : source + count]
                    apart = abs(source - target) >= count
                    tensor[target : target + count].copy_(rows if apart else rows.clone())
                    copied += rows.nbytes
        return copied

    def close(self) -> None:
        """Let the buffers go, after their last use; safe to call twice. Addresses are given back too."""
        if self._rows:
            self.device.settle()
            self.generation += 1
        with self.device.active():
            self._where.close()
        self._where, self._rows = MovingRows(self._shapes, self.device), 0

    def _refuse_beyond_free(self, rows: int) -> None:
        """A CPU's allocator promises more than there is; the kernel ends the process at the first touch."""
        free = self.free_bytes()
        if self.device.device.type != "cpu" or free is None:
            return
        held = self.bytes if isinstance(self._where, StandingRows) else 0
        needed = self.bytes_for(rows) - held
        if needed > free:
            raise OutOfMemory(needed, free, f"{rows:,} rows")
