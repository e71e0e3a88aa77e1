"""Spans of a process's own virtual memory: what is reserved and not backed faults when it is touched."""

from __future__ import annotations

import ctypes
import ctypes.util
import mmap
import os

from musebench.core.errors import OutOfMemory, UnsupportedError

NO_ACCESS = 0
READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE if hasattr(mmap, "PROT_READ") else 0
FAILED = ctypes.c_void_p(-1).value


def page_bytes() -> int:
    return mmap.PAGESIZE


class HostMemory:
    """See `musebench.core.spans.SpanMemory`; Linux and other systems with mmap.

    Raises:
        UnsupportedError: a system without mmap.
    """

    def __init__(self, granule_bytes: int) -> None:
        if not READ_WRITE:
            raise UnsupportedError(
                "pool 'vmm' needs a system with mmap on --device cpu; use --pool geometric"
            )
        self.granule_bytes = granule_bytes
        library = ctypes.CDLL(None, use_errno=True)
        library.mmap.restype = ctypes.c_void_p
        library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        library.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self._library = library

    def reserve(self, most_bytes: int) -> HostSpan:
        size = -(-most_bytes // self.granule_bytes) * self.granule_bytes
        return HostSpan(self._library, size, self.granule_bytes)


class HostSpan:
    """See `musebench.core.spans.Span`."""

    def __init__(self, library: ctypes.CDLL, size: int, granule_bytes: int) -> None:
        self.reserved_bytes = size
        self.backed_bytes = 0
        self._library = library
        self._granule = granule_bytes
        self._open = False
        self.address = self._map(None, size, 0)
        self._open = True

    def back(self, needed_bytes: int) -> None:
        wanted = -(-needed_bytes // self._granule) * self._granule
        if wanted > self.reserved_bytes or not self._open:
            raise ValueError(f"{needed_bytes:,} bytes of {self.reserved_bytes:,} reserved ones")
        before = self.backed_bytes
        if wanted > before:
            added = wanted - before
            if self._library.mprotect(self.address + before, added, READ_WRITE):
                raise OutOfMemory(added, None, f"mapping rows ({os.strerror(ctypes.get_errno())})")
        elif wanted < before:
            # Mapped anew over itself: the pages go back to the system at once.
            self._map(self.address + wanted, before - wanted, _FIXED)
        self.backed_bytes = wanted

    def close(self) -> None:
        if self._open:
            self._open = False
            self.backed_bytes = 0
            self._library.munmap(self.address, self.reserved_bytes)

    def _map(self, address: int | None, size: int, flags: int) -> int:
        kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags
        found: int = self._library.mmap(address, size, NO_ACCESS, kind, -1, 0)
        if found == FAILED:
            raise OutOfMemory(size, None, f"reserving addresses ({os.strerror(ctypes.get_errno())})")
        return found


_FIXED = 0x10
"""MAP_FIXED, on Linux and on macOS."""
