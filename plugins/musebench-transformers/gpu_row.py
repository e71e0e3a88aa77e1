"""Both engines beside the built-in executors on one GPU, into reports and a table, within 150 seconds.

    python plugins/musebench-transformers/gpu_row.py FOLDER [--device cuda] [--seconds 150] [--tiny]

64 requests of the prompts of `mixed` and a quarter of its outputs, random weights of llama-3.2-1b in
bfloat16, all at once; the built-in row is the `graph` executor. Each row serves all of it once before, so
that kernels, graphs and growth are not in its times. `transformers-batch` is asked for CUDA graphs, which it
leaves out by itself where attention wants a mask. A row that fails says why, and the next one goes on;
nothing new starts after the time is up, and a thread ends the process 15 seconds later whatever hangs.
`--tiny` tries it on a CPU.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import threading
import time
from pathlib import Path

import musebench_transformers

from musebench.peers import run_peer
from musebench.plugin.registry import Registry
from musebench.report import files, latencies, metrics
from musebench.report.schema import Report
from musebench.run import RunOptions, run

GRACE_SECONDS = 15.0
ROWS = ("transformers-static", "transformers-batch", "graph")


def options_of(row: str, device: str, tiny: bool) -> RunOptions:
    lengths = (
        {"requests": "4", "prompt_tokens": "9", "output_tokens": "5"}
        if tiny
        else {"requests": "64", "output_tokens": "{uniform: [32, 256]}"}
    )
    captured = row == "transformers-batch" and device.startswith("cuda")
    return RunOptions(
        "mixed",
        "random:smollm2-135m@layers=2" if tiny else "random:llama-3.2-1b",
        device=device,
        dtype="float32" if tiny else "bfloat16",
        executor=row if row in ("graph", "eager") else "eager",
        max_sessions=64,
        warmup=1,
        settings={"workload": lengths, **({"engine": {"graphs": "on"}} if captured else {})},
    )


def made_by(row: str, options: RunOptions, registry: Registry) -> Report:
    sys.argv = ["musebench", "run", "mixed", "--engine" if row in ROWS[:2] else "--executor", row]
    if row in ROWS[:2]:
        return run_peer(row, options, registry)
    return run(options, registry)


def line(row: str, report: Report, seconds: float) -> str:
    rates, latency = metrics.throughput(report), latencies.summaries(report)

    def shown(value: float | None, factor: float = 1.0) -> str:
        return "-" if value is None else f"{value * factor:,.1f}"

    return (
        f"{row:20} {report.status:10} {rates.requests:3d} requests "
        f"{shown(rates.output_tokens_per_second):>9} tokens/s  "
        f"TTFT {shown(latency['TTFT'].p50, 1e3)} ms  TPOT {shown(latency['TPOT'].p50, 1e3)} ms  "
        f"{seconds:.1f} s in all{'  ' + report.message if report.message else ''}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    ends = time.monotonic() + given.seconds
    # transformers' own thread may hang where no exception reaches it.
    alarm = threading.Timer(given.seconds + GRACE_SECONDS, os._exit, (3,))
    alarm.daemon = True
    alarm.start()
    given.folder.mkdir(parents=True, exist_ok=True)
    registry = Registry.installed()
    if "transformers-static" not in {one.name for one in registry.components("engine")}:
        registry.add(musebench_transformers, "musebench-transformers", "0.1.0")
    rows = [row if given.device.startswith("cuda") or row != "graph" else "eager" for row in ROWS]
    for row in rows:
        if time.monotonic() > ends:
            print(f"{row}: no time left", flush=True)
            continue
        began = time.monotonic()
        try:
            report = made_by(row, options_of(row, given.device, given.tiny), registry)
            files.write(report, given.folder / f"mixed64-{row}.json.gz")
            print(line(row, report, time.monotonic() - began), flush=True)
        except Exception as error:  # a row that fails must not cost the others
            print(f"{row}: {type(error).__name__}: {' '.join(str(error).split())[:400]}", flush=True)
        gc.collect()
        if given.device.startswith("cuda"):
            import torch

            torch.cuda.empty_cache()
    print("done", flush=True)
    alarm.cancel()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
