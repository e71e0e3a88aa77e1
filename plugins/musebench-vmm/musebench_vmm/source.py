"""The memory that the pool brings: CUDA virtual memory, a process's own on a CPU, a price in simulation."""

from __future__ import annotations

from dataclasses import dataclass

from musebench.core.errors import UnsupportedError, UsageError
from musebench.core.spans import SpanCosts, SpanMemory

GRANULE_BYTES = 2 << 20
"""What CUDA maps at least, on every device so far."""

SECONDS_PER_BYTE = 1e-4 / (1 << 30)
"""Measured on an H200: 0.1 ms to map 1 GiB more, in one piece."""


@dataclass(frozen=True, slots=True)
class VirtualMemory:
    """See `musebench.core.spans.SpanSource`. With `pieces` each granule is an allocation of its own, so that
    any of them can be given back; else what a growth adds is one."""

    granule_bytes: int = GRANULE_BYTES
    pieces: bool = False

    def open(self, device: str) -> SpanMemory:
        kind, _, number = device.partition(":")
        memory: SpanMemory
        if kind == "cuda":
            from musebench_vmm.cuda import CudaMemory
            from musebench_vmm.driver import CudaDriver

            driver = CudaDriver(int(number or 0))
            least = driver.granularity()
            memory = CudaMemory(driver, self._checked(device, least), self.pieces)
        elif kind == "cpu":
            from musebench_vmm.host import HostMemory, page_bytes

            memory = HostMemory(self._checked(device, page_bytes()))
        else:
            raise UnsupportedError(f"pool 'vmm' has no memory for --device {device}; use --pool geometric")
        return memory

    def costs(self) -> SpanCosts:
        return SpanCosts(self.granule_bytes, SECONDS_PER_BYTE)

    def _checked(self, device: str, least: int) -> int:
        if self.granule_bytes % least:
            raise UsageError(
                f"--set pool.granule={self.granule_bytes}: {device} maps multiples of {least:,} bytes"
            )
        return self.granule_bytes
