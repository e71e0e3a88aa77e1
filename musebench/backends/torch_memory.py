"""Out of memory in a forward, said in one way whatever the device."""

from __future__ import annotations

import re
import traceback
from types import TracebackType

import torch

from musebench.backends.torch_device import TorchDevice
from musebench.core.batch import BatchLayout
from musebench.core.errors import OutOfMemory

_ASKED = re.compile(r"ried to allocate ([\d.]+) ?(bytes|KiB|MiB|GiB|TiB)")
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class ForwardMemory:
    """A context around one forward or capture: what its allocator refuses becomes `OutOfMemory`.

    The frames that raised hold activations; they are cleared, so that a smaller forward finds the room.
    """

    def __init__(self, device: TorchDevice, layout: BatchLayout) -> None:
        self._device = device
        self._layout = layout

    def __enter__(self) -> None:
        """Nothing to prepare: a step that goes well pays for two calls."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or not refused_memory(error):
            return
        traceback.clear_frames(trace)
        layout = self._layout
        what = f"a forward of {layout.tokens:,} tokens of {layout.sequences:,} sequences"
        raise OutOfMemory(_asked_bytes(str(error)), self._device.free_bytes(), what) from None


def refused_memory(error: BaseException) -> bool:
    """Whether one of torch's allocators raised it."""
    # The CPU's allocator raises a plain RuntimeError.
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    )


def _asked_bytes(text: str) -> int | None:
    found = _ASKED.search(text)
    return None if found is None else int(float(found[1]) * _UNITS[found[2]])
