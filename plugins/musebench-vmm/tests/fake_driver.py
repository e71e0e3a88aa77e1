"""CUDA's driver as a machine of rules: what the real one refuses, or would crash on, raises here."""

from __future__ import annotations

from musebench.core.errors import OutOfMemory

GRANULE = 2 << 20


class FakeDriver:
    """`memory` bytes; the calls whose numbers are in `failing` raise RuntimeError before they do anything."""

    def __init__(self, memory: int = 1 << 40, failing: frozenset[int] = frozenset()) -> None:
        self.memory = memory
        self.failing = failing
        self.calls = 0
        self.ranges: dict[int, int] = {}
        self.handles: dict[int, int] = {}
        self.mappings: dict[int, tuple[int, int]] = {}  # address -> size, handle
        self.allowed: set[int] = set()
        self._next_address = 0x7F0000000000
        self._next_handle = 1
        self._released: dict[int, int] = {}

    def _call(self) -> None:
        self.calls += 1
        if self.calls in self.failing:
            raise RuntimeError(f"call {self.calls} fails")

    @property
    def used(self) -> int:
        """Memory of handles that are held or mapped, each once."""
        mapped = {handle: size for size, handle in self.mappings.values()}
        return sum({**mapped, **self.handles}.values())

    def granularity(self) -> int:
        return GRANULE

    def free_bytes(self) -> int:
        return self.memory - self.used

    def reserve(self, size: int) -> int:
        self._call()
        assert size > 0
        assert size % GRANULE == 0
        address, self._next_address = self._next_address, self._next_address + size + GRANULE
        self.ranges[address] = size
        return address

    def free(self, address: int, size: int) -> None:
        self._call()
        assert self.ranges[address] == size
        assert not any(address <= at < address + size for at in self.mappings), "something is mapped there"
        del self.ranges[address]

    def create(self, size: int) -> int:
        self._call()
        assert size > 0
        assert size % GRANULE == 0
        if size > self.free_bytes():
            raise OutOfMemory(None, None, "cuMemCreate")
        handle, self._next_handle = self._next_handle, self._next_handle + 1
        self.handles[handle] = size
        return handle

    def map(self, address: int, size: int, handle: int) -> None:
        self._call()
        assert self.handles[handle] == size, "a handle is mapped whole"
        assert any(start <= address and address + size <= start + held for start, held in self.ranges.items())
        for at, (held, _) in self.mappings.items():
            assert address + size <= at or at + held <= address, "mapped twice"
        self.mappings[address] = (size, handle)

    def allow(self, address: int, size: int) -> None:
        self._call()
        assert self.mappings[address][0] == size
        self.allowed.add(address)

    def release(self, handle: int) -> None:
        self._call()
        del self.handles[handle]

    def unmap(self, address: int, size: int) -> None:
        self._call()
        assert self.mappings[address][0] == size, "a mapping is taken back whole"
        del self.mappings[address]
        self.allowed.discard(address)

    def assert_usable(self, address: int, size: int) -> None:
        """Every byte of a range is mapped and may be read and written."""
        at = address
        while at < address + size:
            assert at in self.mappings
            assert at in self.allowed
            at += self.mappings[at][0]
        assert at == address + size

    def assert_nothing_left(self) -> None:
        assert (self.ranges, self.handles, self.mappings, self.used) == ({}, {}, {}, 0)
