"""Options of the torch backends, apart from them so that showing them does not import torch."""

from __future__ import annotations

from dataclasses import dataclass

from musebench.core.options import option


@dataclass(frozen=True)
class TorchOptions:
    """Options of the backends `cpu` and `cuda`."""

    kernels: str | None = option(
        None,
        "attention on a CUDA device: triton, or reference (slow, waits for the device, cannot be captured); "
        "none takes triton there, and a CPU has the reference only",
        choices=("triton", "reference"),
    )
    poison: bool = option(
        False, "fill scratch and fresh rows with NaN: tokens must stay the same, for nobody may read them"
    )
