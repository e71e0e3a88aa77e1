"""Where a captured decode step's time goes, kernel by kernel: run it as a script on a GPU.

    PYTHONPATH=. python3 tests/gpu/profile_steps.py SHAPE[,SHAPE] SEQUENCES[,SEQUENCES] [compiled] \\
        [separate] [rotary_apart] [SINGLE_TOKEN={...}] [SEVERAL={...}]

Contexts are 1,024 tokens in shuffled cells that hold random numbers. `compiled` compiles the model before
capture, with other options of inductor where they are given; `separate` leaves the projections as
transformers has them, `rotary_apart` the rotary embedding out of the attention kernel. The step's time is the
median of events around single replays; kernels' times are the profiler's, a step's average.
"""

from __future__ import annotations

import collections
import json
import statistics
import sys
import time
from functools import partial
from typing import Any

import numpy as np
import torch

from musebench.backends import torch_backend, torch_compiled
from musebench.backends.torch_options import TorchOptions
from musebench.core.batch import BatchLayout, StepBatch
from musebench.core.protocols import PoolBounds
from musebench.models.random_source import RandomOptions, RandomSource

CONTEXT = 1024
REPLAYS = 30
PROFILED = 4


def decode_batch(layout: BatchLayout, cells: np.ndarray) -> StepBatch:
    """One decode a sequence at position `CONTEXT` - 1 into the last of its `cells` [S, CONTEXT]."""
    buffer = np.zeros(layout.words, np.int32)
    fields = layout.fields(buffer)
    count = layout.sequences
    fields.token_ids[:] = np.arange(1, count + 1)
    fields.positions[:] = CONTEXT - 1
    fields.cells[:] = cells[:, -1]
    fields.slots[:] = fields.sequence_slots[:] = fields.row_slots[:] = np.arange(1, count + 1)
    fields.rows[:] = np.arange(count)
    fields.starts[:] = np.arange(count + 1)
    return StepBatch(layout, buffer, count, count, count)


def event_seconds(run: Any) -> float:
    samples = []
    for _ in range(REPLAYS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        samples.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(samples)


def kernels(run: Any) -> list[tuple[str, float, float]]:
    """(name, calls a step, microseconds a step), longest first."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(PROFILED):
            run()
        torch.cuda.synchronize()
    calls: collections.Counter[str] = collections.Counter()
    taken: collections.Counter[str] = collections.Counter()
    for event in profiler.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            calls[event.name] += 1
            taken[event.name] += event.device_time
    return [(name, calls[name] / PROFILED, us / PROFILED) for name, us in taken.most_common()]


def main(shapes: str, counts: str, flags: list[str]) -> None:
    sizes = [int(part) for part in counts.split(",")]
    for flag in flags:
        which, _, value = flag.partition("=")
        if value:  # inductor's options, as JSON
            setattr(torch_compiled, which, json.loads(value))
    if "rotary_apart" in flags:
        torch_compiled.leave_rotary_to_op = lambda _: False  # type: ignore[attr-defined]
    for shape in shapes.split(","):
        if "separate" in flags:
            torch_backend.pack_projections = lambda _: 0  # type: ignore[attr-defined]
        model = RandomSource(RandomOptions()).open(f"random:{shape}", "bfloat16", "cuda", 0)
        backend = torch_backend.TorchBackend(TorchOptions(), "cuda", model)
        most = max(sizes)
        backend.open(PoolBounds(most, CONTEXT + 64))
        storage = backend.storage()
        storage.resize(most * CONTEXT + 1, 0)
        for rows in storage.buffers.tensors:
            rows.normal_()
        if "compiled" in flags:
            backend.compile()
        order = np.random.default_rng(0).permutation(most * CONTEXT).astype(np.int32) + 1
        cells = order.reshape(most, CONTEXT)
        backend.program.table[1:, :CONTEXT] = torch.from_numpy(cells).cuda()
        for size in sorted(sizes, reverse=True):
            layout = BatchLayout(size, size, size, decode=True)
            start = time.perf_counter()
            graph = backend.capture(layout)
            ready = time.perf_counter() - start
            batch = decode_batch(layout, cells[:size])
            replay, alone = partial(backend.replay, graph, batch), graph.graph.replay
            for _ in range(3):
                replay().wait()
            median, device = event_seconds(replay), event_seconds(alone)
            print(
                f"{shape} {size} {' '.join(flags) or 'graph'}: {median * 1e3:.3f} ms a step, graph alone "
                f"{device * 1e3:.3f} ms; ready in {ready:.1f} s"
            )
            rows = kernels(alone)
            print(f"  {sum(calls for _, calls, _ in rows):.0f} kernels, {sum(us for *_, us in rows):.0f} us")
            for name, calls, us in rows[:22]:
                print(f"  {us:8.1f} us {calls:5.0f} x {us / calls:6.2f}  {name[:110]}", flush=True)
            backend.drop(graph)
        backend.close()
        del model, backend, storage
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
