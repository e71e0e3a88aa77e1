"""What a device does at best, measured with torch once and kept for later runs on it."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from musebench.core.whole import write_whole
from musebench.measure.roofline import Ceilings

COPIED_BYTES = {"cuda": 4 << 30, "cpu": 256 << 20}
"""Of one copy: far beyond any cache."""
MATRIX_SIZE = {"cuda": 8192, "cpu": 2048}
ROUNDS = {"cuda": 20, "cpu": 5}
WARM_UPS = 3


def default_device() -> str:
    """ "cuda" where torch finds one, else "cpu"."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def measure_ceilings(device: str, dtype: str) -> Ceilings:
    """Medians of a device-to-device copy, bytes read plus written, and of a square product in `dtype`.

    On CUDA times are of events, elsewhere of the host's clock. Takes about a second, and on CUDA 8 GiB.
    """
    import torch

    kind = device.partition(":")[0]
    copied = copy_bandwidth(device, COPIED_BYTES[kind])
    size = MATRIX_SIZE[kind]
    left, right = (torch.randn(size, size, device=device, dtype=getattr(torch, dtype)) for _ in range(2))
    product = _median_seconds(partial(torch.mm, left, right), kind, torch)
    if kind == "cuda":
        torch.cuda.empty_cache()
    return Ceilings(copied, 2.0 * size**3 / product, dtype)


def copy_bandwidth(device: str, size: int) -> float:
    """Bytes per second that a copy of `size` bytes within the device reads and writes, the median of some.

    Launched and not captured: as a node of a CUDA graph an H200 copies at 2.8 TB/s, launched at 4.25.
    """
    import torch

    source = torch.randint(0, 127, (size,), dtype=torch.int8, device=device)
    target = torch.empty_like(source)
    return 2.0 * size / _median_seconds(partial(target.copy_, source), device.partition(":")[0], torch)


def _median_seconds(run: Callable[[], Any], kind: str, torch: Any) -> float:
    samples = []
    for round_ in range(WARM_UPS + ROUNDS[kind]):
        if kind == "cuda":
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            run()
            end.record()
            end.synchronize()
            taken = begin.elapsed_time(end) / 1e3
        else:
            start = time.perf_counter()
            run()
            taken = time.perf_counter() - start
        if round_ >= WARM_UPS:
            samples.append(taken)
    return statistics.median(samples)


def store_ceilings(device_name: str, ceilings: Ceilings) -> Path:
    """Keep them for runs on devices of that name; returns the file."""
    path = _path()
    kept = _read(path)
    kept[_key(device_name, ceilings.dtype)] = asdict(ceilings)
    return write_whole(path, json.dumps(kept, indent=1).encode(), "the ceilings")


def stored_ceilings(device_name: str, dtype: str) -> Ceilings | None:
    """Those kept for a device of that name; None when they were not measured, or the file is damaged."""
    try:
        return Ceilings(**_read(_path())[_key(device_name, dtype)])
    except (KeyError, TypeError):
        return None


def _key(device_name: str, dtype: str) -> str:
    return f"{device_name} {dtype}"


def _path() -> Path:
    """In the user's cache folder; MUSEBENCH_CACHE names another folder."""
    own = os.environ.get("MUSEBENCH_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (Path(own) if own else base / "musebench") / "ceilings.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        kept = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}
