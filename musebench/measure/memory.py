"""Memory of this process and of its device, each number from its own source, None where that has none."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

from musebench.core.protocols import MemorySnapshot
from musebench.measure.nvml import Nvml

PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")


def host_resident(proc: Path = PROC) -> int | None:
    """Bytes of this process in main memory now (the kernel's VmRSS)."""
    return _field(proc / "self" / "status", "VmRSS")


def host_peak(proc: Path = PROC) -> int | None:
    """Most bytes of this process in main memory so far: VmHWM, else `getrusage`'s figure."""
    peak = _field(proc / "self" / "status", "VmHWM")
    if peak is not None:
        return peak
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def reset_host_peak(proc: Path = PROC) -> bool:
    """Let the peak start again from what is resident now; False where the kernel does not let us.

    See proc(5) on clear_refs: writing 5 resets VmHWM.
    """
    try:
        (proc / "self" / "clear_refs").write_text("5")
    except OSError:
        return False
    return True


def trim_host() -> bool:
    """Hand memory that malloc holds without use back to the kernel; False where it is not glibc's.

    What a load has freed would otherwise count as resident, and be taken for a second copy of the weights.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is None:
        return False
    trim(0)
    return True


def host_total(proc: Path = PROC) -> int | None:
    """Bytes of main memory of the machine."""
    return _field(proc / "meminfo", "MemTotal")


def host_available(proc: Path = PROC, cgroup: Path = CGROUP) -> int | None:
    """Bytes that this process could still take: what the kernel says, and no more than its cgroup leaves."""
    left = [_field(proc / "meminfo", "MemAvailable")]
    most, current = _number(cgroup / "memory.max"), _number(cgroup / "memory.current")
    if most is not None and current is not None:
        left.append(max(most - current, 0))
    return min((bytes_left for bytes_left in left if bytes_left is not None), default=None)


def snapshot(
    nvml: Nvml | None = None,
    allocated: int | None = None,
    reserved: int | None = None,
    peak: int | None = None,
) -> MemorySnapshot:
    """Host and NVML now, beside what the caller's allocator says; `nvml` None: not an NVIDIA device."""
    return MemorySnapshot(
        allocated=allocated,
        reserved=reserved,
        peak=peak,
        device_used=None if nvml is None else nvml.used_bytes(),
        process_used=None if nvml is None else nvml.process_bytes(),
        host_resident=host_resident(),
        host_peak=host_peak(),
    )


def _field(path: Path, name: str) -> int | None:
    """Bytes of a "Name:  123 kB" line."""
    try:
        with path.open() as file:
            for line in file:
                if line.startswith(f"{name}:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # "max" where there is no limit
        return None
