"""Summaries against tables of single kernels and of whole prompts."""

from __future__ import annotations

import csv
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
from predict import decode_seconds, prefill_seconds

from musebench.backends.simulated.costs import costs_for
from musebench.backends.simulated.profile import open_profile
from musebench.models.shapes import shape

PRODUCTS = (("h100_llama-2-7b_mlp.csv", "h100"), ("a100_llama-3-8b_mlp.csv", "a100-80g"))

BLOOM = {"layers": 70, "hidden": 14336, "heads": 112, "kv_heads": 112, "head_dim": 128, "intermediate": 57344,
         "vocab": 250880, "tied_embeddings": True}  # fmt: skip
"""From the model's config; its MLP is not gated."""

H200_STEPS = {
    ("SmolLM2-135M", 1): (2.278, 0.835), ("SmolLM2-135M", 64): (3.247, 1.442),
    ("SmolLM2-135M", 256): (4.509, 2.606), ("Llama-3.2-1B", 1): (1.866, 1.093),
    ("Llama-3.2-1B", 64): (2.812, 1.746), ("Llama-3.2-1B", 256): (4.925, 3.748),
    ("Llama-3.1-8B", 1): (6.214, 4.823), ("Llama-3.1-8B", 64): (9.553, None),
    ("Llama-3.1-8B", 256): (18.678, None),
}  # fmt: skip
"""Milliseconds of results/baselines/h200/README.md: replayed from a graph, and compiled and captured."""


def vidur_products(data: Path) -> list[tuple[object, ...]]:
    """Median and mean error of every product's median time, and the median of predicted over measured."""
    made: list[tuple[object, ...]] = []
    for name, device in PRODUCTS:
        profile = open_profile(device)
        ratios = []
        with (data / "measured" / "vidur" / name).open(newline="") as file:
            for row in csv.DictReader(file):
                tokens, shards = int(row["num_tokens"]), int(row["num_tensor_parallel_workers"])
                hidden, inner = int(row["n_embd"]), int(row["n_expanded_embd"])
                keys = int(row["n_kv_head"]) * hidden // int(row["n_head"])
                for column, inputs, outputs in (
                    ("attn_pre_proj", hidden, (hidden + 2 * keys) // shards),
                    ("attn_post_proj", hidden // shards, hidden),
                    ("mlp_up_proj", hidden, 2 * inner // shards),
                    ("mlp_down_proj", inner // shards, hidden),
                ):
                    seconds, _ = profile.products.seconds(
                        profile.bandwidth, profile.rates["float16"],
                        2.0 * (inputs * outputs + tokens * (inputs + outputs)),
                        2.0 * tokens * inputs * outputs,
                        ("float16", tokens, inputs, outputs),
                    )  # fmt: skip
                    ratios.append(seconds * 1e3 / float(row[f"time_stats.{column}.median"]))
        errors = [abs(ratio - 1) for ratio in ratios]
        made.append(
            (name, f"{len(ratios):,}", f"{statistics.median(errors):.1%}", f"{statistics.mean(errors):.1%}",
             f"{statistics.median(ratios) - 1:+.1%}")
        )  # fmt: skip
    return made


def splitwise(data: Path) -> list[tuple[object, ...]]:
    """Median errors of prompt and token times by model, device and number of devices."""
    groups: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    llama = shape("llama-3.1-70b")
    bloom = replace(llama, **BLOOM).facts("float16")
    ungated = bloom.parameters - bloom.layers * bloom.hidden * bloom.intermediate
    models = {
        "llama2-70b": replace(llama, vocab=32000).facts("float16"),
        "bloom-176b": replace(bloom, gated_mlp=False, parameters=ungated, active_parameters=ungated),
    }
    with (data / "measured" / "splitwise_sim_perf_model.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row["hardware"].endswith("pcap"):  # power capped, which no profile knows
                continue
            devices = int(row["tensor_parallel"])
            profile = open_profile(row["hardware"].replace("-80gb", "-80g").replace("h100-80g", "h100"))
            costs = costs_for(models[row["model"]], profile, devices)
            prompt, batch = int(row["prompt_size"]), int(row["batch_size"])
            first = prefill_seconds(costs, batch, prompt) * 1e3 / float(row["prompt_time"]) - 1
            token = decode_seconds(costs, batch, prompt + int(row["token_size"]) // 2, 1) * 1e3
            token_error = token / float(row["token_time"]) - 1
            groups.setdefault((row["model"], profile.name, devices), []).append((first, token_error))
    return [
        (*key, len(errors), f"{statistics.median(first for first, _ in errors):+.0%}",
         f"{statistics.median(token for _, token in errors):+.0%}")
        for key, errors in sorted(groups.items())
    ]  # fmt: skip


def own_steps() -> list[tuple[object, ...]]:
    """Measured and predicted milliseconds of an H200's replayed decodes."""
    made: list[tuple[object, ...]] = []
    for (model, sequences), measured in H200_STEPS.items():
        costs = costs_for(shape(model).facts("bfloat16"), open_profile("h200"))
        cells: list[object] = [model, sequences]
        for program, milliseconds in zip(("graph", "compiled graph"), measured, strict=True):
            predicted = costs.decode_stretch(np.full(sequences, 1024), 1, program)[0] * 1e3
            error = "-" if milliseconds is None else f"{predicted / milliseconds - 1:+.0%}"
            cells += [milliseconds or "-", f"{predicted:.3f}", error]
        made.append(tuple(cells))
    return made
