"""Pools side by side on one GPU, in one process and within a budget: reports into a folder, and a table.

    python gpu_check.py FOLDER [--device cpu --tiny] [--seconds 60]

First virtual memory alone: rows that are mapped after a graph was captured are read by it. Then one run a
pool of the same requests: 64 of the workload `mixed` (100 to 1,024 prompt tokens, 100 to 1,024 made), 32 at a
time, in bfloat16, decodes captured. No warm-up of a pool: its growths are what is looked at; a run of all the
requests before them takes what only the first run of a process pays, as each new size of a step may compile
kernels. Each report is written as it is made.
"""

from __future__ import annotations

import argparse
import faulthandler
import time
import traceback
from pathlib import Path
from typing import Any

from musebench.core.errors import MusebenchError
from musebench.plugin.registry import Registry
from musebench.report import files, metrics
from musebench.report.schema import Report
from musebench.run import RunOptions, run

RUNS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("geometric", "geometric", {}),
    ("vmm", "vmm", {}),
    ("paged", "paged", {}),
    ("fixed", "fixed", {}),
    ("vmm-32m", "vmm", {"granule": 32 << 20}),
    ("vmm-back", "vmm", {"give_back": True}),
)
"""Name, pool and its options, what matters most first."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a small shape and few requests")
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    # Whatever hangs, in a driver too, ends here, with what was written before it.
    faulthandler.dump_traceback_later(given.seconds + 30, exit=True)
    given.folder.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + given.seconds
    registry = Registry.installed()
    known = {component.name for component in registry.components("pool")}
    if given.device.startswith("cuda"):
        attempt("virtual memory", probe)
    options = run_options(given.device, given.tiny)
    made: dict[str, Report] = {}
    requests = 6 if given.tiny else 64
    attempt("first run", lambda: run(with_pool(options, "geometric", {}, requests), registry))
    for name, pool, settings in RUNS:
        if pool not in known:
            print(f"{name}: pool {pool!r} is not installed")
            continue
        if time.monotonic() > ends:
            print(f"{name}: left out, {given.seconds:g} s are over")
            continue
        settings = {"granule": 4096, **settings} if given.tiny and pool == "vmm" else settings
        began = time.monotonic()
        report = attempt(name, lambda p=pool, s=settings: run(with_pool(options, p, s, requests), registry))
        if report is not None:
            files.write(report, given.folder / f"{name}.json.gz")
            made[name] = report
            if len(made) == 1:
                print(HEAD)
            print(line(name, report, made.get("geometric"), time.monotonic() - began), flush=True)
    faulthandler.cancel_dump_traceback_later()


def attempt(what: str, act: Any) -> Any:
    """What `act` gives; None after an error, which is shown and stops nothing else."""
    try:
        return act()
    except MusebenchError as error:
        print(f"{what}: {error}", flush=True)
    except Exception:
        print(f"{what}:\n{traceback.format_exc()}", flush=True)
    return None


def run_options(device: str, tiny: bool) -> RunOptions:
    return RunOptions(
        workload="mixed",
        model="bundled" if tiny else "random:llama-3.2-1b",
        device=device,
        executor="graph" if device.startswith("cuda") else "eager",
        max_sessions=4 if tiny else 32,
        max_context=128 if tiny else 2048,
    )


def with_pool(options: RunOptions, pool: str, settings: dict[str, Any], requests: int) -> RunOptions:
    from dataclasses import replace

    work: dict[str, Any] = {"requests": requests}
    if options.model == "bundled":
        work |= {"prompt_tokens": 20, "output_tokens": 12}
    return replace(options, pool=pool, settings={"pool": settings, "workload": work})


HEAD = (
    "pool         peak MiB  rows MiB  growths  growth ms  copied MiB  recaptures  recapture ms  out tok/s  "
    "tokens  run s"
)


def line(name: str, report: Report, base: Report | None, seconds: float) -> str:
    data = report.runs[0]
    pool, counters = data.pool, report.costs.counters
    peak = report.memory.snapshots["peak"].peak
    rate = metrics.throughput(report).output_tokens_per_second
    cells = (
        name.ljust(11),
        "-" if peak is None else f"{peak / 2**20:,.0f}",
        f"{pool.bytes / 2**20:,.1f}",
        f"{len(pool.growths):,}",
        f"{1e3 * sum(pool.growths.seconds):,.2f}",
        f"{sum(pool.growths.copied_bytes) / 2**20:,.0f}",
        f"{counters.get('recaptures', 0):,}",
        f"{1e3 * counters.get('recapture seconds', 0.0):,.0f}",
        "-" if rate is None else f"{rate:,.0f}",
        same(report, base),
        f"{seconds:.1f}",
    )
    widths = (11, 10, 10, 9, 11, 12, 12, 14, 11, 8, 7)
    text = "".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return text if report.status == "complete" else f"{text}  {report.status}: {report.message}"


def same(report: Report, base: Report | None) -> str:
    """How many requests made the tokens that they make over `geometric`; bfloat16 rounds by a step's shape,
    which is the same where the steps are."""
    if base is None:
        return "-"
    ours, theirs = (list(tokens_of(one)) for one in (report, base))
    equal = sum(one == other for one, other in zip(ours, theirs, strict=True))
    return f"{equal}/{len(ours)}"


def tokens_of(report: Report) -> Any:
    requests, at = report.runs[0].requests, 0
    tokens = list(requests.token_ids)
    for count in requests.generated_tokens:
        yield tokens[at : at + count]
        at += count


def probe() -> None:
    """A graph captured over one granule reads rows that were mapped after it; rows can be given back."""
    import torch
    from musebench_vmm.source import GRANULE_BYTES, VirtualMemory

    from musebench.backends.probe import LayerShape
    from musebench.backends.torch_device import CudaDevice
    from musebench.backends.torch_storage import TorchStorage

    layers = (LayerShape(32, 8, 64, 64, torch.bfloat16, 0),) * 2
    device = CudaDevice("cuda")
    storage = TorchStorage(layers, device)
    free = device.free_bytes() or 0
    storage.reserve(16 << 20, VirtualMemory(GRANULE_BYTES, pieces=True))
    storage.resize(2048, 0)
    keys = storage.buffers.keys[1]
    address = keys.data_ptr()
    keys.fill_(1.0)
    index = torch.tensor([5], device=device.device)
    # Over the rows to come: nothing reads one before it is mapped.
    later = storage.buffers.keys[1].as_strided((8192, 8, 64), (512, 64, 1))
    out = later.index_select(0, index)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = later.index_select(0, index)
    done = storage.resize(8192, 2048)
    storage.buffers.keys[1][7000].fill_(3.0)
    index.fill_(7000)
    graph.replay()
    torch.cuda.synchronize()
    assert float(out.float().mean()) == 3.0, out
    assert float(storage.buffers.keys[1][2047].float().mean()) == 1.0
    assert storage.buffers.keys[1].data_ptr() == address
    assert not done.moved
    assert storage.bytes == 4 * 4 * GRANULE_BYTES, storage.bytes
    storage.resize(2048, 2048)
    assert storage.bytes == 4 * GRANULE_BYTES
    graph.reset()
    del keys, later, out
    storage.close()
    storage.close()
    left = free - (device.free_bytes() or 0)
    print(f"virtual memory: a graph read rows mapped after it; {done.seconds * 1e3:.2f} ms for 12 granules")
    big = TorchStorage(layers, device)
    big.reserve(8 << 20, VirtualMemory())
    big.resize(2048, 0)
    one = big.resize(2048 + (1 << 18), 2048)
    print(f"virtual memory: {one.seconds * 1e3:.2f} ms to map 1 GiB in 4 pieces; {left:,} bytes left over")
    big.close()


if __name__ == "__main__":
    main()
