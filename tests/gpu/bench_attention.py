"""Checks and times variants of the attention kernels on the GPU, and prints tables: run it as a script.

    PYTHONPATH=. python3 tests/gpu/bench_attention.py [shipped] [decode] [prefill] [mixed] [float32]

`shipped` times the configurations that ship and no variants. Times are medians over replays of a CUDA graph
that goes round several layers, whose rows are together larger than the L2 cache. GB/s counts the keys and
values attended to, once.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import cycle
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from attention_cases import Case, check, decode_case

from musebench.kernels import triton_attend
from musebench.kernels.triton_configs import (
    DecodeConfig,
    PrefillConfig,
    decode_config,
    prefill_config,
    splits_of,
)

SHAPES = ((32, 8, 128), (32, 8, 64), (9, 3, 64))
DECODES = ((1, 1024), (1, 8192), (64, 1024), (256, 1024))
ROTATED_BYTES = 160 << 20
REPLAYS = 9
WORKERS = 14
MOST_LINES = 8


@dataclass(frozen=True)
class Work:
    """One row of a table: sequences by (tokens before, tokens of the step)."""

    heads: tuple[int, int, int]
    slices: tuple[tuple[int, int], ...]
    dtype: torch.dtype = torch.bfloat16

    @property
    def decode(self) -> bool:
        return all(count == 1 for _, count in self.slices)

    @property
    def attended_bytes(self) -> int:
        _, kv_heads, head_dim = self.heads
        cells = sum(before + count for before, count in self.slices)
        return cells * kv_heads * head_dim * 2 * self.dtype.itemsize

    @property
    def flops(self) -> int:
        """Two products of two operations for each query head and attended cell."""
        heads, _, head_dim = self.heads
        pairs = sum(count * before + count * (count + 1) // 2 for before, count in self.slices)
        return 4 * heads * head_dim * pairs

    def steps(self) -> list[dict[str, Any]]:
        """Arguments of the op for several layers: each has rows of its own, all share the rest."""
        heads, kv_heads, head_dim = self.heads
        lengths = [before + count for before, count in self.slices]
        sequences, tokens = len(self.slices), sum(count for _, count in self.slices)
        numbers = {"device": "cuda", "dtype": self.dtype}
        free = torch.randperm(sum(lengths), dtype=torch.int32) + 1
        table = torch.zeros(1 + sequences, max(lengths), dtype=torch.int32)
        cells, positions, slots, starts = [], [], [], [0]
        for slot, (owned, (before, count)) in enumerate(
            zip(free.split(lengths), self.slices, strict=True), start=1
        ):
            table[slot, : len(owned)] = owned
            cells.append(owned[before:])
            positions.append(torch.arange(before, before + count, dtype=torch.int32))
            slots.extend([slot] * count)
            starts.append(starts[-1] + count)
        shared = {
            "query": torch.randn(tokens, heads, head_dim, **numbers),
            "key": torch.randn(tokens, kv_heads, head_dim, **numbers),
            "value": torch.randn(tokens, kv_heads, head_dim, **numbers),
            "cells": torch.cat(cells).cuda(), "positions": torch.cat(positions).cuda(),
            "slots": torch.tensor(slots, dtype=torch.int32).cuda(),
            "starts": torch.tensor(starts, dtype=torch.int32).cuda(),
            "sequence_slots": torch.arange(1, 1 + sequences, dtype=torch.int32).cuda(),
            "table": table.cuda(), "scale": head_dim**-0.5, "window": 0, "softcap": 0.0, "sinks": None,
            "decode": self.decode,
        }  # fmt: skip

        def rows() -> torch.Tensor:
            return torch.randn(1 + sum(lengths), kv_heads, head_dim, **numbers)

        layers = min(220, 2 + ROTATED_BYTES // self.attended_bytes)
        return [{**shared, "key_rows": rows(), "value_rows": rows()} for _ in range(layers)]

    def __str__(self) -> str:
        decodes = sum(count == 1 for _, count in self.slices)
        parts = [f"{count} tokens after {before}" for before, count in self.slices if count > 1]
        if decodes:
            parts.insert(0, f"{decodes} decodes after {self.slices[0][0]}")
        return f"heads {self.heads} {str(self.dtype)[6:]}: {', '.join(parts)}"


@dataclass(frozen=True)
class Variant:
    """Configurations to run with, and whether a mixed batch is one launch."""

    decode: DecodeConfig | None = None
    prefill: PrefillConfig | None = None
    one_launch: bool = False

    def attend(self, **arguments: Any) -> torch.Tensor:
        module: Any = triton_attend
        module.decode_config = (lambda *_: self.decode) if self.decode else decode_config
        module.prefill_config = (lambda *_: self.prefill) if self.prefill else prefill_config
        if not self.one_launch:
            return triton_attend.update_and_attend(**arguments)
        step = {name: arguments[name] for name in ("key", "value", "key_rows", "value_rows", "cells")}
        triton_attend.launch_write(**step)
        out = torch.empty_like(arguments["query"])
        kept = {
            name: given
            for name, given in arguments.items()
            if name not in ("key", "value", "slots", "decode")
        }
        head_dim = out.shape[2]
        triton_attend.launch_prefill(**kept, out=out, config=module.prefill_config(out.dtype, head_dim, 1))
        return out

    def __str__(self) -> str:
        parts = []
        if self.decode:
            d = self.decode
            parts.append(
                f"m{d.block_m} n{d.block_n} w{d.warps} s{d.stages} programs {d.programs} "
                f"cells {d.split_cells}{'' if d.early_merge else ' late'}"
            )
        if self.prefill:
            p = self.prefill
            parts.append(f"m{p.block_m} n{p.block_n} w{p.warps} s{p.stages}")
        return " | ".join(parts) + (" one launch" if self.one_launch else "") or "as shipped"


def check_variant(heads: tuple[int, int, int], dtype: torch.dtype, variant: Variant) -> str:
    """Compile the kernels of a variant and hold small cases against float64; -> what is wrong, or nothing."""
    shape: dict[str, Any] = dict(zip(("heads", "kv_heads", "head_dim"), heads, strict=True))
    shape |= {"dtype": dtype, "device": "cuda"}
    try:
        if variant.decode or not variant.prefill:
            config = variant.decode or decode_config(dtype, heads[2], heads[1])
            unsplit = replace(variant, decode=replace(config, programs=1))
            check(decode_case(1000, 65, 0, padding=1, **shape), variant.attend)
            check(decode_case(1000, 65, 0, padding=1, **shape), unsplit.attend)
        if variant.prefill or not variant.decode:
            check(Case(((0, 70),), padding=1, **shape), variant.attend)
            check(Case(((100, 150), (1000, 1), (0, 2)), padding=1, **shape), variant.attend)
    except Exception as error:  # one variant that does not fit must not end the table
        return f"{type(error).__name__}: {error}".splitlines()[0][:90]
    return ""


def seconds(steps: list[dict[str, Any]], attend: Callable[..., torch.Tensor]) -> float:
    """Median time of one call, from replays of a graph of at least 40 calls."""
    calls = max(len(steps), 40 if len(steps[0]["query"]) < 200 else 12)
    for step in steps[:2]:
        attend(**step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _, step in zip(range(calls), cycle(steps)):
            attend(**step)
    graph.replay()
    samples = []
    for _ in range(REPLAYS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        samples.append(begin.elapsed_time(end) / 1e3 / calls)
    return statistics.median(samples)


def decode_variants(work: Work) -> Iterator[Variant]:
    kv_heads, head_dim = work.heads[1:]
    tried = [(64, 4, 3), (64, 2, 3), (64, 2, 5), (32, 1, 5), (32, 1, 7), (32, 2, 5), (128, 4, 3)]
    for n, warps, stages in tried:
        seen = set()
        for programs, cells in ((132, 64), (264, 64), (528, 64), (528, 128)):
            config = DecodeConfig(16, n, warps, stages, programs, cells)
            splits = splits_of(config, len(work.slices) * kv_heads, 1 + work.slices[0][0]), cells
            if splits not in seen and (splits[0] > 1 or cells == 64):
                seen.add(splits)
                yield Variant(config)
    yield Variant(replace(decode_config(work.dtype, head_dim, kv_heads), early_merge=False))


def prefill_variants(_: Work) -> Iterator[Variant]:
    for m, n, warps, stages in (
        (64, 64, 4, 2), (64, 128, 4, 2), (128, 64, 4, 2), (128, 128, 8, 2), (256, 64, 8, 2),
    ):  # fmt: skip
        yield Variant(prefill=PrefillConfig(m, n, warps, stages))


def mixed_variants(work: Work) -> Iterator[Variant]:
    for m, n, warps, stages in ((64, 64, 4, 2), (64, 128, 4, 2)):
        variant = Variant(prefill=PrefillConfig(m, n, warps, stages))
        yield replace(variant, one_launch=True)
        for config in (DecodeConfig(16, 64, 2, 3, 264, 64), DecodeConfig(16, 64, 4, 3, 264, 64)):
            yield replace(variant, decode=config)


def float32_variants(work: Work) -> Iterator[Variant]:
    if work.decode:
        for n, warps, stages in ((32, 2, 3), (32, 1, 3), (16, 1, 5), (32, 2, 5), (64, 2, 3), (16, 2, 5)):
            yield Variant(DecodeConfig(1, n, warps, stages))
        return
    for m, n, warps, stages in ((32, 32, 4, 1), (32, 64, 8, 1), (64, 64, 8, 2)):
        yield Variant(prefill=PrefillConfig(m, n, warps, stages))


def plan(name: str) -> tuple[list[Work], Callable[[Work], Iterator[Variant]]]:
    if name == "decode":
        return [Work(h, ((c - 1, 1),) * s) for h in SHAPES for s, c in DECODES], decode_variants
    if name == "prefill":
        slices = ((0, 1024), (4096, 1024), (0, 2048))
        return [Work(h, (each,)) for h in SHAPES for each in slices], prefill_variants
    if name == "mixed":
        return [Work(h, ((1023, 1),) * 64 + ((0, 512),)) for h in SHAPES], mixed_variants
    batches = (((1023, 1),) * 64, ((0, 1024),))
    return [
        Work(h, each, torch.float32) for h in (SHAPES[0], SHAPES[2]) for each in batches
    ], float32_variants


def main(names: list[str]) -> None:
    plans = []
    shipped = "shipped" in names
    for name in [name for name in names if name != "shipped"] or ["decode", "prefill", "mixed", "float32"]:
        works, variants = plan(name)
        plans.extend((work, [Variant()] if shipped else list(variants(work))) for work in works)
    wanted = list(
        dict.fromkeys((work.heads, work.dtype, variant) for work, made in plans for variant in made)
    )
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        faults = dict(zip(wanted, pool.map(check_variant, *zip(*wanted, strict=True)), strict=True))
    print(f"{torch.cuda.get_device_name()}, {len(wanted)} variants checked in {time.perf_counter():.0f} s")
    for key, fault in faults.items():
        if fault:
            print("fault:", key[0], key[1], key[2], fault)
    for work, made in plans:
        steps = work.steps()
        lines = [
            (seconds(steps, variant.attend), str(variant))
            for variant in made
            if not faults[work.heads, work.dtype, variant]
        ]
        print(work)
        for taken, text in sorted(lines)[:MOST_LINES]:
            rates = f"{work.attended_bytes / taken / 1e9:5.0f} GB/s {work.flops / taken / 1e12:4.0f} TFLOP/s"
            print(f"  {taken * 1e6:8.2f} us {rates}  {text}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
