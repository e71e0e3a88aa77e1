"""Storage of 16 GiB doubles, keeping its rows, against a copy of its bytes: python -m tests.gpu.bench_growth

Prints one line of JSON; nothing of it goes into a report.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch

from musebench.backends.probe import LayerShape
from musebench.backends.torch_device import open_device
from musebench.backends.torch_storage import TorchStorage

GROWN_BYTES = 16 << 30


def doubled(device: str, total: int) -> dict[str, Any]:
    """Seconds in which storage of `total` bytes doubles, keeping all rows, against a copy of its bytes."""
    layers = tuple(LayerShape(32, 8, 128, 128, torch.bfloat16, 0) for _ in range(32))
    opened = open_device(device)
    growths, copies = [], []
    for _ in range(3):
        storage = TorchStorage(layers, opened)
        rows = total // storage.cell_bytes
        storage.resize(rows, 0)
        for tensor in storage.buffers.tensors:
            tensor.fill_(1.0)
        opened.settle()
        start = time.perf_counter()
        resize = storage.resize(2 * rows, rows)
        growths.append((time.perf_counter() - start, resize.seconds, resize.peak_bytes))
        parts = [tensor[:rows] for tensor in storage.buffers.tensors]
        targets = [tensor[rows : 2 * rows] for tensor in storage.buffers.tensors]
        opened.settle()
        start = time.perf_counter()
        for target, part in zip(targets, parts, strict=True):
            target.copy_(part)
        opened.settle()
        copies.append(time.perf_counter() - start)
        del parts, targets
        storage.close()
        opened.trim()
    best = min(growths)
    return {
        "bytes": rows * storage.cell_bytes,
        "growth_seconds": [taken for taken, *_ in growths],
        "growth_device_seconds": [taken for _, taken, _ in growths],
        "copy_seconds": copies,
        "peak_bytes": best[2],
    }


if __name__ == "__main__":
    place = sys.argv[1] if len(sys.argv) > 1 else "cuda"
    print(json.dumps(doubled(place, GROWN_BYTES if place.startswith("cuda") else 16 << 20)))
