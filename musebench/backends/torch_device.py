"""What differs between a CPU and a CUDA device, behind one protocol: copies, clocks, memory, conditions."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
import torch
import transformers
from torch import Tensor

from musebench.core.errors import UnsupportedError
from musebench.core.protocols import MemorySnapshot
from musebench.measure import memory
from musebench.measure.nvml import Nvml


class Stopwatch(Protocol):
    """Time on the device from its making to `stop`; `seconds` waits until the device is that far."""

    def stop(self) -> None: ...

    def seconds(self) -> float: ...


class Download(Protocol):
    """Numbers on their way to the host."""

    def wait(self) -> np.ndarray: ...


class TorchDevice(Protocol):
    """A device that a model runs on. `upload` and `download` return at once where the device can copy beside
    the host; `settle` waits for everything launched."""

    device: torch.device

    def active(self) -> AbstractContextManager[Any]:
        """A context in which kernels and allocations go to this device."""

    def upload(self, words: np.ndarray, into: Tensor | None = None) -> Tensor:
        """Copy int32 [n] to the device, in stream order; `words` may change after the return."""

    def download(self, values: Tensor) -> Download:
        """Copy to the host, in stream order."""

    def stopwatch(self) -> Stopwatch: ...

    def settle(self) -> None: ...

    def free_bytes(self) -> int | None:
        """Bytes that could still be allocated."""

    def memory(self) -> MemorySnapshot: ...

    def reset_peak(self) -> None: ...

    def memory_reasons(self) -> Mapping[str, str]:
        """Why a number of `memory` is missing, by its source."""

    def conditions(self) -> Mapping[str, Any]: ...

    def trim(self) -> None:
        """Hand memory that torch holds without use back to the device."""


class HostStopwatch:
    """On a CPU a step is over when its call returns."""

    def __init__(self) -> None:
        self._start = self._end = time.perf_counter()

    def stop(self) -> None:
        self._end = time.perf_counter()

    def seconds(self) -> float:
        return self._end - self._start


class HostDownload:
    def __init__(self, values: Tensor) -> None:
        self._values = values.numpy()

    def wait(self) -> np.ndarray:
        return self._values


class CpuDevice:
    """The CPU that the process runs on, with torch's own threads."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")

    def active(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def upload(self, words: np.ndarray, into: Tensor | None = None) -> Tensor:
        # torch would share the memory, which the caller may fill again; the copy is a few hundred bytes.
        tensor = torch.from_numpy(np.array(words, np.int32))
        return tensor if into is None else into.copy_(tensor)

    def download(self, values: Tensor) -> Download:
        return HostDownload(values)

    def stopwatch(self) -> Stopwatch:
        return HostStopwatch()

    def settle(self) -> None:
        """Nothing is ever in flight."""

    def free_bytes(self) -> int | None:
        return memory.host_available()

    def memory(self) -> MemorySnapshot:
        return memory.snapshot()

    def reset_peak(self) -> None:
        memory.reset_host_peak()

    def memory_reasons(self) -> Mapping[str, str]:
        return {"torch": "its CPU allocator keeps no count", "NVML": "a CPU is not its device"}

    def conditions(self) -> Mapping[str, Any]:
        return {
            "device": platform.processor() or platform.machine(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }

    def trim(self) -> None:
        memory.trim_host()


class CudaStopwatch:
    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        self._start = torch.cuda.Event(enable_timing=True)
        self._end = torch.cuda.Event(enable_timing=True)
        self._start.record(stream)

    def stop(self) -> None:
        self._end.record(self._stream)

    def seconds(self) -> float:
        self._end.synchronize()
        return float(self._start.elapsed_time(self._end)) / 1000.0


class CudaDownload:
    def __init__(self, values: Tensor, stream: torch.cuda.Stream) -> None:
        self._host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        self._host.copy_(values, non_blocking=True)
        self._done = torch.cuda.Event()
        self._done.record(stream)

    def wait(self) -> np.ndarray:
        self._done.synchronize()
        return np.asarray(self._host.numpy())


class CudaDevice:
    """One CUDA device; everything runs in its current stream.

    Raises:
        UnsupportedError: there is no such device; says why, and what to use.
    """

    def __init__(self, name: str) -> None:
        self.device = _cuda_device(name)
        properties = torch.cuda.get_device_properties(self.device)
        self._properties = properties
        self.nvml = Nvml(str(properties.uuid))

    def active(self) -> AbstractContextManager[Any]:
        return torch.cuda.device(self.device)

    def upload(self, words: np.ndarray, into: Tensor | None = None) -> Tensor:
        # The pinned block goes back to torch's cache, which hands it out again only after the copy is done.
        pinned = torch.empty(words.shape, dtype=torch.int32, pin_memory=True)
        pinned.numpy()[:] = words
        target = torch.empty(words.shape, dtype=torch.int32, device=self.device) if into is None else into
        return target.copy_(pinned, non_blocking=True)

    def download(self, values: Tensor) -> Download:
        return CudaDownload(values, torch.cuda.current_stream(self.device))

    def stopwatch(self) -> Stopwatch:
        return CudaStopwatch(torch.cuda.current_stream(self.device))

    def settle(self) -> None:
        torch.cuda.synchronize(self.device)

    def free_bytes(self) -> int | None:
        free, _ = torch.cuda.mem_get_info(self.device)
        cached = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return int(free + cached)

    def memory(self) -> MemorySnapshot:
        return memory.snapshot(
            self.nvml,
            allocated=torch.cuda.memory_allocated(self.device),
            reserved=torch.cuda.memory_reserved(self.device),
            peak=torch.cuda.max_memory_allocated(self.device),
        )

    def reset_peak(self) -> None:
        torch.cuda.reset_peak_memory_stats(self.device)

    def memory_reasons(self) -> Mapping[str, str]:
        return dict(self.nvml.reasons)

    def conditions(self) -> Mapping[str, Any]:
        properties = self._properties
        return {
            "device": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "device_bytes": properties.total_memory,
            "driver": self.nvml.driver(),
            "cuda": torch.version.cuda,
            "triton": _triton_version(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }

    def trim(self) -> None:
        torch.cuda.empty_cache()


def open_device(name: str) -> TorchDevice:
    """The device that `--device` names: "cpu", "cuda" or "cuda:1".

    Raises:
        UnsupportedError: this machine does not have it.
    """
    return CpuDevice() if name == "cpu" else CudaDevice(name)


def _cuda_device(name: str) -> torch.device:
    kind, _, number = name.partition(":")
    if kind != "cuda" or (number and not number.isdecimal()):
        raise UnsupportedError(f"--device {name}: no such device; use cpu, cuda or cuda:N")
    if not torch.cuda.is_available():
        raise UnsupportedError(f"--device {name}: no CUDA device ({_why_no_cuda()}); use --device cpu")
    count = torch.cuda.device_count()
    index = int(number) if number else torch.cuda.current_device()
    if index >= count:
        raise UnsupportedError(
            f"--device {name}: this machine shows {count} CUDA devices; use cuda:0 to cuda:{count - 1}"
        )
    return torch.device("cuda", index)


def _why_no_cuda() -> str:
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return "CUDA_VISIBLE_DEVICES hides all"
    return f"torch {torch.__version__} for CUDA {torch.version.cuda} finds none; see nvidia-smi"


def _triton_version() -> str | None:
    try:
        import triton
    except ImportError:
        return None
    return str(triton.__version__)
