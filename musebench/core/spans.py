"""Memory that grows in place: what a pool policy hands to a storage so that rows keep their addresses.

A pool policy of this kind calls `storage.reserve(rows, source)` once, before its first `resize`. The storage
then takes one `Span` for each of its buffers (a layer's keys, a layer's values): addresses for all rows that
there may ever be, of which the front is backed by memory. `resize` backs more of each span, or gives back its
end; nothing is copied, and what was captured over the addresses stays right.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


class Span(Protocol):
    """A reserved run of `reserved_bytes` addresses from `address` on; the first `backed_bytes` are memory.

    Both sizes are whole granules. Reading or writing what is not backed is a fault of the machine.
    """

    address: int
    reserved_bytes: int

    @property
    def backed_bytes(self) -> int: ...

    def back(self, needed_bytes: int) -> None:
        """Have `needed_bytes` backed, rounded up to a granule: more memory at the end, or less. Contents of
        what stays are kept. The caller has waited for whoever uses what is given back.

        Raises:
            OutOfMemory: there is not as much; the span is as it was.
            ValueError: more than is reserved.
        """

    def close(self) -> None:
        """Give memory and addresses back; safe to call twice."""


class SpanMemory(Protocol):
    """The memory of one device in granules of `granule_bytes`."""

    granule_bytes: int

    def reserve(self, most_bytes: int) -> Span:
        """Addresses for at least `most_bytes`; no memory yet.

        Raises:
            OutOfMemory: there is no such run of addresses.
        """


@dataclass(frozen=True, slots=True)
class SpanCosts:
    """What such memory costs on a virtual clock: its granule, and seconds for each byte that is mapped or
    given back."""

    granule_bytes: int
    seconds_per_byte: float


class SpanSource(Protocol):
    """What a pool policy brings; it is asked for what the storage's device needs."""

    def open(self, device: str) -> SpanMemory:
        """The memory of "cpu", "cuda:0", ...

        Raises:
            UnsupportedError: not on this device, or not with what is installed; says what to use.
            UsageError: a granule that the device cannot have.
        """

    def costs(self) -> SpanCosts:
        """For a device on a virtual clock."""


@runtime_checkable
class GrowsInPlace(Protocol):
    """What a `musebench.core.protocols.Storage` has beside its own verbs when it can do this."""

    def reserve(self, rows: int, source: SpanSource) -> None:
        """Keep the addresses of rows from now on, of at most `rows` (scratch included).

        Raises:
            RuntimeError: there are rows already, or it was called before.
        """

    def bytes_for(self, rows: int) -> int:
        """Bytes held with so many rows."""

    def rows_within(self, rows: int) -> int:
        """Most rows that need no more memory than `rows` do; never more than are reserved."""

    @property
    def slack_bytes(self) -> int:
        """What `bytes` may exceed rows x `cell_bytes` by, at most: a granule a buffer. 0 before `reserve`."""


@dataclass(frozen=True, slots=True)
class Granules:
    """The sums of buffers that grow in granules; `row_bytes` are a row's in each buffer."""

    granule_bytes: int
    row_bytes: tuple[int, ...]
    most_rows: int

    def of(self, buffer: int, rows: int) -> int:
        """Bytes that back `rows` rows of a buffer."""
        return -(-rows * self.row_bytes[buffer] // self.granule_bytes) * self.granule_bytes

    def bytes_for(self, rows: int) -> int:
        return sum(self.of(buffer, rows) for buffer in range(len(self.row_bytes)))

    def rows_within(self, rows: int) -> int:
        fits = (self.of(buffer, rows) // size for buffer, size in enumerate(self.row_bytes))
        return min(self.most_rows, *fits) if rows else 0

    @property
    def slack_bytes(self) -> int:
        return len(self.row_bytes) * self.granule_bytes


def check_reservation(rows: int, reserved: bool, sizes: Ordered[int]) -> None:
    """What every storage checks before it reserves.

    Raises:
        RuntimeError: there are rows already, or addresses were reserved before.
        ValueError: a buffer whose rows have no bytes, or no row.
    """
    if reserved:
        raise RuntimeError("addresses are reserved once, before the first row")
    if rows < 1 or not sizes or min(sizes) < 1:
        raise ValueError(f"{rows} rows of {list(sizes)} bytes cannot be reserved")
