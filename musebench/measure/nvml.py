"""One NVIDIA device as NVML sees it: every question that fails is answered by None, and its reason kept once.

NVML is absent on machines without the driver, forbids some questions without permission, knows fewer of them
on a MIG slice, and in a container may not tell whose memory is whose. None of this may stop a run.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

PYNVML = "pynvml"
"""The module that the package nvidia-ml-py installs."""


class Nvml:
    """Questions to NVML about one device; bytes, joules and watts.

    `device` is the device's UUID, with or without its prefix (torch's `get_device_properties(i).uuid`), or
    NVML's own index, which is not CUDA's where CUDA_VISIBLE_DEVICES is set. `reasons` say by question why its
    answer is missing. Nothing is loaded before the first question; `module` replaces pynvml in tests.
    """

    def __init__(self, device: str | int = 0, module: Any = None) -> None:
        self.device = device
        self.reasons: dict[str, str] = {}
        self._module = module
        self._handle: Any = None
        self._failed: str | None = None
        self._answered: set[str] = set()

    def used_bytes(self) -> int | None:
        """Memory in use on the device, by anybody; the driver's own reserve is part of it."""
        return self._ask("device memory", lambda nvml, handle: int(nvml.nvmlDeviceGetMemoryInfo(handle).used))

    def total_bytes(self) -> int | None:
        return self._ask(
            "device memory", lambda nvml, handle: int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
        )

    def process_bytes(self, process: int | None = None) -> int | None:
        """Memory of one process (None: this one) on the device, its CUDA context included."""
        wanted = os.getpid() if process is None else process

        def find(nvml: Any, handle: Any) -> int:
            entries = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            mine = [entry for entry in entries if entry.pid == wanted]
            if not mine:
                raise LookupError(
                    f"process {wanted} is not among the {len(entries)} that NVML names: it has no CUDA "
                    "context, or a container gives it another id"
                )
            if mine[0].usedGpuMemory is None:
                raise LookupError("NVML names the process but not its memory, as in some containers")
            return int(mine[0].usedGpuMemory)

        return self._ask("process memory", find)

    def energy_joules(self) -> float | None:
        """Energy that the device has taken since its driver was loaded."""
        return self._ask(
            "energy", lambda nvml, handle: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000.0
        )

    def power_limit_watts(self) -> float | None:
        return self._ask(
            "power limit", lambda nvml, handle: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000.0
        )

    def name(self) -> str | None:
        return self._ask("device name", lambda nvml, handle: _text(nvml.nvmlDeviceGetName(handle)))

    def driver(self) -> str | None:
        """Version of the driver."""
        return self._ask("driver", lambda nvml, _: _text(nvml.nvmlSystemGetDriverVersion()))

    def close(self) -> None:
        """Let NVML go; safe to call twice. Later questions are answered by None."""
        handle, self._handle = self._handle, None
        self._failed = self._failed or "NVML was closed"
        if handle is not None:
            try:
                self._module.nvmlShutdown()
            except self._module.NVMLError:
                return  # nothing is held any more

    def _ask(self, question: str, answer: Callable[[Any, Any], T]) -> T | None:
        if self._handle is None and self._failed is None:
            self._failed = self._open()
        if self._failed is not None:
            self.reasons.setdefault("NVML", self._failed)
            return None
        try:
            value = answer(self._module, self._handle)
        except (self._module.NVMLError, AttributeError, LookupError) as error:
            if question not in self._answered:
                self.reasons.setdefault(question, _reason(error))
            return None
        self._answered.add(question)
        self.reasons.pop(question, None)
        return value

    def _open(self) -> str | None:
        """Load NVML and find the device; why not, or None."""
        try:
            self._module = self._module or importlib.import_module(PYNVML)
        except ImportError as error:
            return f"the package nvidia-ml-py is not there ({error})"
        module = self._module
        try:
            module.nvmlInit()
        except module.NVMLError as error:
            return _reason(error)
        try:
            self._handle = self._find()
        except module.NVMLError as error:
            module.nvmlShutdown()
            return f"device {self.device}: {_reason(error)}"
        return None

    def _find(self) -> Any:
        if isinstance(self.device, int):
            return self._module.nvmlDeviceGetHandleByIndex(self.device)
        known = self.device.startswith(("GPU-", "MIG-"))
        return self._module.nvmlDeviceGetHandleByUUID(self.device if known else f"GPU-{self.device}")


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
