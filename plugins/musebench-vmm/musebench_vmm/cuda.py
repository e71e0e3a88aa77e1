"""Spans of CUDA virtual memory: addresses reserved once, allocations mapped behind one another."""

from __future__ import annotations

from typing import Protocol

from musebench.core.errors import OutOfMemory


class Driver(Protocol):
    """The calls of CUDA's driver that a span makes, on one device; sizes in bytes.

    Each raises `OutOfMemory` where the driver says so, and RuntimeError, which names the call and the
    driver's error, where it says anything else.
    """

    def granularity(self) -> int: ...

    def free_bytes(self) -> int: ...

    def reserve(self, size: int) -> int:
        """An address range without memory (cuMemAddressReserve)."""

    def free(self, address: int, size: int) -> None:
        """Give a whole range back, nothing mapped in it (cuMemAddressFree)."""

    def create(self, size: int) -> int:
        """An allocation of memory without an address, by its handle (cuMemCreate)."""

    def map(self, address: int, size: int, handle: int) -> None: ...

    def allow(self, address: int, size: int) -> None:
        """Let this device read and write what is mapped there (cuMemSetAccess)."""

    def release(self, handle: int) -> None:
        """Let a handle go: its memory is freed when nothing is mapped from it any more (cuMemRelease)."""

    def unmap(self, address: int, size: int) -> None:
        """Take back one mapping, whole (cuMemUnmap)."""


class CudaMemory:
    """See `musebench.core.spans.SpanMemory`."""

    def __init__(self, driver: Driver, granule_bytes: int, pieces: bool) -> None:
        self.granule_bytes = granule_bytes
        self._driver = driver
        self._pieces = pieces

    def reserve(self, most_bytes: int) -> CudaSpan:
        size = -(-most_bytes // self.granule_bytes) * self.granule_bytes
        return CudaSpan(self._driver, size, self.granule_bytes, self._pieces)


class CudaSpan:
    """See `musebench.core.spans.Span`. A mapping can only be taken back whole: with `pieces` each is one
    granule, else giving back stops at the mapping that the wanted end lies in."""

    def __init__(self, driver: Driver, size: int, granule_bytes: int, pieces: bool) -> None:
        self.reserved_bytes = size
        self._driver = driver
        self._granule = granule_bytes
        self._pieces = pieces
        self._mapped: list[int] = []
        self.address = driver.reserve(size)
        self._open = True

    @property
    def backed_bytes(self) -> int:
        return sum(self._mapped)

    def back(self, needed_bytes: int) -> None:
        wanted = -(-needed_bytes // self._granule) * self._granule
        if wanted > self.reserved_bytes or not self._open:
            raise ValueError(f"{needed_bytes:,} bytes of {self.reserved_bytes:,} reserved ones")
        before = len(self._mapped)
        missing = wanted - self.backed_bytes
        while missing >= self._granule:
            size = self._granule if self._pieces else missing
            try:
                self._map(size)
            except BaseException:
                while len(self._mapped) > before:
                    self._unmap()
                raise
            missing -= size
        while self._mapped and self.backed_bytes - self._mapped[-1] >= wanted:
            self._unmap()

    def close(self) -> None:
        """In the order that the driver wants: mappings, then addresses."""
        if not self._open:
            return
        while self._mapped:
            self._unmap()
        self._open = False
        self._driver.free(self.address, self.reserved_bytes)

    def _map(self, size: int) -> None:
        """Map one allocation behind the others; after a failure it may be mapped, and must be unmapped."""
        driver, address = self._driver, self.address + self.backed_bytes
        try:
            handle = driver.create(size)
        except OutOfMemory as error:
            raise OutOfMemory(size, driver.free_bytes(), "mapping rows") from error
        try:
            driver.map(address, size, handle)
            self._mapped.append(size)
        finally:
            # The mapping keeps the memory: without the handle it is freed as soon as it is unmapped.
            driver.release(handle)
        driver.allow(address, size)

    def _unmap(self) -> None:
        size = self._mapped[-1]
        self._driver.unmap(self.address + self.backed_bytes - size, size)
        self._mapped.pop()
