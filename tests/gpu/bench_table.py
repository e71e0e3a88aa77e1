"""Runs what the table of results/baselines/h200 is made of, and writes the reports: `make bench-gpu`.

    python -m tests.gpu.bench_table FOLDER [steps] [exported] [mixed] [peers] [growth] [--device cpu --tiny]

`steps` runs the workload `steady` for each shape, number of sequences and executor: its decodes are bare
steps. `mixed` runs the workload `mixed`, after one run of it to warm up. `peers` gives the same requests and
weights to transformers' continuous batching. `growth` doubles a pool of 16 GiB. What is there is not run
again. `--tiny` does all of it with small shapes, to try the script on a CPU.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from musebench.core.errors import MusebenchError
from musebench.export.bounds import Bounds
from musebench.export.exporter import ExportOptions, export
from musebench.measure.ceilings import measure_ceilings, store_ceilings
from musebench.plugin.registry import Registry
from musebench.report import files
from musebench.run import RunOptions, run

SHAPES = ("smollm2-135m", "llama-3.2-1b", "llama-3.1-8b")
TINY_SHAPES = ("smollm2-135m@layers=2",)
SEQUENCES = (1, 64, 256)
EXECUTORS = ("graph", "compiled")
PEER_SHAPES = ("llama-3.2-1b", "llama-3.1-8b")
GROWN_BYTES = 16 << 30
EXPORT_BOUNDS = Bounds(most=8192, most_sequences=256)
EXPORT_CONTEXT = 2048


class Bench:
    """Runs into one folder; a report that is there already is kept."""

    def __init__(self, folder: Path, device: str, tiny: bool, budget: float) -> None:
        self.folder, self.device, self.tiny = folder, device, tiny
        self.registry = Registry.installed()
        self.shapes = TINY_SHAPES if tiny else SHAPES
        self.peer_shapes = TINY_SHAPES if tiny else PEER_SHAPES
        self.ends = time.monotonic() + budget
        folder.mkdir(parents=True, exist_ok=True)

    def left(self) -> float:
        return self.ends - time.monotonic()

    def report(self, name: str, options: RunOptions) -> None:
        path = self.folder / f"{name}.json.gz"
        if path.exists():
            return
        if self.left() < 0:
            print(f"{name}: no time left", flush=True)
            return
        start = time.perf_counter()
        sys.argv = [
            "musebench",
            "run",
            options.workload,
            f"--model={options.model}",
            f"--executor={options.executor}",
        ]
        try:
            made = run(replace(options, device=self.device, dtype=self.dtype), self.registry)
        except MusebenchError as error:
            print(f"{name}: {error}", flush=True)
            return
        files.write(made, path)
        rows = made.runs[-1].steps if made.runs else None
        print(
            f"{name}: {made.status} {made.message or ''} {0 if rows is None else len(rows)} steps, "
            f"{time.perf_counter() - start:.1f} s in all",
            flush=True,
        )
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()

    @property
    def dtype(self) -> str:
        return "bfloat16" if self.device == "cuda" else "float32"

    # -- the parts ------------------------------------------------------------------------------------

    def steps(self) -> None:
        for shape in self.shapes:
            for executor in EXECUTORS if self.device == "cuda" else ("eager",):
                for count in SEQUENCES if not self.tiny else (1, 2):
                    settings: dict[str, dict[str, str]] = {"workload": {"requests": str(count)}}
                    if self.tiny:
                        settings["workload"] |= {"prompt_tokens": "20", "output_tokens": "8"}
                    if self.device == "cuda":
                        settings["executor"] = {"ladder": str(count)}
                    name = f"steady-{shape}-{count}-{executor}"
                    self.report(
                        name,
                        RunOptions(
                            "steady",
                            f"random:{shape}",
                            executor=executor,
                            max_sessions=count,
                            settings=settings,
                        ),
                    )

    def exported(self) -> None:
        """`steady` again, with programs that are exported into the folder first and are not kept in git."""
        for shape in self.shapes:
            package = self.folder / f"{shape.partition('@')[0]}.pt2"
            if not package.exists():
                bounds = Bounds(most=64, most_sequences=4) if self.tiny else EXPORT_BOUNDS
                start = time.perf_counter()
                try:
                    export(
                        ExportOptions(package, f"random:{shape}", self.device, self.dtype, bounds,
                                      max_context=EXPORT_CONTEXT),
                        self.registry,
                    )  # fmt: skip
                except MusebenchError as error:
                    print(f"export {shape}: {error}", flush=True)
                    continue
                print(f"export {shape}: {time.perf_counter() - start:.1f} s", flush=True)
            for count in SEQUENCES if not self.tiny else (1, 2):
                settings: dict[str, dict[str, str]] = {"workload": {"requests": str(count)}}
                if self.tiny:
                    settings["workload"] |= {"prompt_tokens": "20", "output_tokens": "8"}
                if self.device == "cuda":
                    settings["executor"] = {"ladder": str(count)}
                self.report(
                    f"steady-{shape}-{count}-exported",
                    RunOptions(
                        "steady", str(package), executor="exported", max_sessions=count, settings=settings
                    ),
                )

    def mixed(self) -> None:
        for shape in self.peer_shapes:
            for executor in ("eager", *EXECUTORS) if self.device == "cuda" else ("eager",):
                if executor == "eager" and shape == SHAPES[-1]:
                    continue
                self.report(f"mixed-{shape}-{executor}", self.mixed_options(shape, executor))

    def mixed_options(self, shape: str, executor: str) -> RunOptions:
        settings = (
            {"workload": {"requests": "4", "output_tokens": "5", "prompt_tokens": "9"}} if self.tiny else {}
        )
        return RunOptions(
            "mixed", f"random:{shape}", executor=executor, warmup=0 if executor == "eager" else 1,
            settings=settings,
        )  # fmt: skip

    def peers(self) -> None:
        for shape in self.peer_shapes:
            path = self.folder / f"peer-{shape}.json"
            if path.exists():
                continue
            try:
                made = generate_batch(self, shape)
            except Exception as error:  # a peer that fails must not cost what was measured
                print(f"peer {shape}: {type(error).__name__}: {error}", flush=True)
                continue
            path.write_text(json.dumps(made, indent=1) + "\n")
            print(f"peer {shape}: {made['output_tokens_per_second']:,.0f} tokens/s", flush=True)
            gc.collect()
            if self.device == "cuda":
                torch.cuda.empty_cache()

    def growth(self) -> None:
        path = self.folder / "growth.json"
        if path.exists():
            return
        made = doubled(self.device, GROWN_BYTES if not self.tiny else 16 << 20)
        path.write_text(json.dumps(made, indent=1) + "\n")
        print(f"growth: {json.dumps(made)}", flush=True)


def generate_batch(bench: Bench, shape: str) -> dict[str, Any]:
    """transformers' continuous batching on the requests and weights of `mixed`.

    Requests all at once, greedy, no stop token; seconds from the first request given to the last answer,
    after its own warm-up. `bench.left()` bounds it: what is not answered by then is counted as such.
    """
    import transformers
    from transformers import ContinuousBatchingConfig, GenerationConfig

    from musebench.models.random_source import RandomOptions, RandomSource
    from musebench.workload.load import load_workload
    from musebench.workload.spec import Context

    options = bench.mixed_options(shape, "graph")
    model = RandomSource(RandomOptions()).open(options.model, bench.dtype, bench.device, 0)
    workload = load_workload("mixed").with_overrides(options.settings.get("workload", {}))
    requests = workload.requests(Context(vocab=model.facts.vocab, seed=0))
    model.module.set_attn_implementation("sdpa")
    config = ContinuousBatchingConfig(
        use_cuda_graph=bench.device == "cuda", max_batch_tokens=1024, max_memory_percent=0.5
    )
    tokens, answered = 0, 0
    with model.module.continuous_batching_context_manager(
        generation_config=GenerationConfig(do_sample=False, eos_token_id=-1, max_new_tokens=1024),
        continuous_batching_config=config,
    ) as manager:
        start = time.perf_counter()
        for request in requests:
            manager.add_request(
                list(request.prompt), request_id=request.id, max_new_tokens=request.max_new_tokens
            )
        end = start
        while answered < len(requests) and bench.left() > 0 and manager.is_running():
            result = manager.get_result(timeout=1)
            if result is None or not result.is_finished():
                continue
            end = time.perf_counter()
            answered += 1
            tokens += len(result.generated_tokens)
    return {
        "what": "transformers continuous batching (sdpa)",
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "model": options.model,
        "workload": "mixed",
        "requests": len(requests),
        "answered": answered,
        "output_tokens": tokens,
        "wanted_tokens": sum(request.max_new_tokens for request in requests),
        "seconds": end - start,
        "output_tokens_per_second": tokens / (end - start) if end > start else None,
        "max_batch_tokens": 1024,
        "max_memory_percent": 0.5,
    }


def doubled(device: str, total: int) -> dict[str, Any]:
    """Seconds in which storage of `total` bytes doubles, keeping all rows, against a copy of its bytes."""
    from musebench.backends.probe import LayerShape
    from musebench.backends.torch_device import open_device
    from musebench.backends.torch_storage import TorchStorage

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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--seconds", type=float, default=3600.0, help="start nothing new after so long")
    given = parser.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        print("skipped: torch finds no CUDA device")
        return
    bench = Bench(given.folder, given.device, given.tiny, given.seconds)
    from musebench.backends.torch_device import open_device

    name = str(open_device(given.device).conditions()["device"])
    found = measure_ceilings(given.device, bench.dtype)
    store_ceilings(name, found)
    print(f"{name}: {found}", flush=True)
    for part in given.parts or ("steps", "mixed", "peers", "growth"):
        getattr(bench, part)()


if __name__ == "__main__":
    main()
