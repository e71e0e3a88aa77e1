"""Rows of measured_results.csv: what each measured, and what the cost model says of it."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from pathlib import Path

from predict import SERVING, Predicted, decode_seconds, prefill_seconds, saturated, static_batch, waves

from musebench.backends.simulated.costs import ModelCosts, costs_for
from musebench.backends.simulated.profile import open_profile
from musebench.core.facts import ModelFacts
from musebench.models.shapes import shape

PROFILES = {
    "A100-SXM-80GB": "a100-80g", "A100-SXM-40GB": "a100-40g", "H100-SXM": "h100", "H200-SXM": "h200-sxm",
    "RTX-4090": "rtx-4090", "GB200 (per GPU)": "gb200", "DGX-Spark-GB10": "gb10",
}  # fmt: skip
"""Datasheet profiles by the table's devices; the H200's too, although it was measured."""

NAMED = {
    "Llama-3.1-8B-Instruct": "llama-3.1-8b", "Llama-3.1-8B": "llama-3.1-8b",
    "Llama-3.3-70B-Instruct": "llama-3.1-70b", "Mistral-7B-v0.3": "mistral-7b-v0.3",
    "Qwen2.5-7B": "qwen2.5-7b", "Qwen3-30B-A3B": "qwen3-30b-a3b",
}  # fmt: skip
"""Shapes that ship, by the table's models."""

OLDER = {
    # layers, hidden, heads, head size, inner, vocabulary, gated, tied; heads are not grouped.
    "LLaMA-7B": (32, 4096, 32, 128, 11008, 32000, True, False),
    "GPT-J-6B": (28, 4096, 16, 256, 16384, 50400, False, False),
    "OPT-175B": (96, 12288, 96, 128, 49152, 50272, False, True),
}
"""From the models' papers and configs; LLaMA-7B's also from Vidur's table of Llama-2-7B."""

FORMATS = {"fp8": "float8", "fp4": "float4", "q8_0": "q8-0"}
CELLS = {"fp8": "float8"}
CELL_SHARE = 0.9
"""Of the memory beside weights and activations: the lower end of the table's "kv fraction 0.90-0.95"."""

FIGURES = ("output_tok_s", "decode_tok_s", "tpot_ms", "ttft_ms", "prefill_tok_s")
"""In order: the first that a row has, and that can be predicted, is the one that counts."""


@dataclass(frozen=True)
class Compared:
    """One row with its predictions: `figures` holds (name, measured, predicted); `why_not` says why there
    are none."""

    row: dict[str, str]
    figures: tuple[tuple[str, float, float], ...] = ()
    why_not: str = ""

    @property
    def dense(self) -> bool:
        """Whether its weights are of 16 bits; a row without a dtype names their bytes in its notes."""
        return self.row["weight_dtype"] in ("bf16", "fp16", "")

    @property
    def error(self) -> float | None:
        """Of the figure that counts, predicted over measured less one."""
        return self.figures[0][2] / self.figures[0][1] - 1 if self.figures else None

    @property
    def conditions(self) -> str:
        row = self.row
        sizes = [row["batch_or_concurrency"], row["input_len"], row["output_len"]]
        return f"{row['mode'].split(',')[0].split(':')[0]} {' / '.join(size or '?' for size in sizes)}"


def compare_all(data: Path) -> list[Compared]:
    """Every row of the table, in its order."""
    with (data / "measured_results.csv").open(newline="", encoding="utf-8") as file:
        return [compare(row) for row in csv.DictReader(file)]


def compare(row: dict[str, str]) -> Compared:
    """One row against its prediction."""
    if row["device"] not in PROFILES:
        return Compared(row, why_not=f"no profile: the devices known here do not include {row['device']}")
    if row["model"] not in NAMED and row["model"] not in OLDER:
        return Compared(row, why_not=f"no shape: the models known here do not include {row['model']}")
    profile = open_profile(PROFILES[row["device"]])
    costs = costs_for(
        facts_of(row["model"]), profile, int(row["n_devices"]), FORMATS.get(row["weight_dtype"]),
        CELLS.get(row["kv_dtype"]),
    )  # fmt: skip
    predicted = _predict(row, costs)
    figures = tuple(
        (name, float(row[name]), value)
        for name in FIGURES
        if row[name] and (value := getattr(predicted, name)) is not None
    )
    return Compared(row, figures)


def facts_of(model: str) -> ModelFacts:
    """A model's facts with elements of 16 bits."""
    if model in NAMED:
        return shape(NAMED[model]).facts("float16")
    layers, hidden, heads, head_dim, inner, vocab, gated, tied = OLDER[model]
    made = replace(
        shape("llama-3.1-8b"), name=model, layers=layers, hidden=hidden, heads=heads, kv_heads=heads,
        head_dim=head_dim, intermediate=inner, vocab=vocab, tied_embeddings=tied,
    ).facts("float16")  # fmt: skip
    if gated:
        return made
    fewer = made.parameters - layers * hidden * inner
    return replace(made, gated_mlp=False, parameters=fewer, active_parameters=fewer)


def _predict(row: dict[str, str], costs: ModelCosts) -> Predicted:
    mode, notes = row["mode"], row["notes"]
    if mode.startswith("offline max load"):
        free = costs.profile.memory_bytes - costs.weight_bytes - costs.activation_bytes(8192, 2048)
        cells = int(free * CELL_SHARE / costs.cell_bytes)
        requests = int(row["num_requests"])
        return saturated(costs, cells, requests, int(row["input_len"]), int(row["output_len"]), requests)
    count = int(row["batch_or_concurrency"])
    if mode.endswith("decode step"):
        return _bare_step(costs, count, "eager" if mode.startswith("eager") else SERVING)
    if not row["input_len"]:
        # Nothing is known of the lengths: the weights alone, which one token of context is next to.
        return Predicted(tpot_ms=decode_seconds(costs, count, 1, 1) * 1e3)
    prompt, output = int(row["input_len"]), int(row["output_len"])
    if mode.startswith("static batch"):
        return static_batch(costs, count, prompt, output)
    if mode.startswith("first token"):
        return Predicted(ttft_ms=prefill_seconds(costs, count, prompt) * 1e3)
    if mode.startswith("llama-batched-bench"):
        made = static_batch(costs, count, prompt, output + 1)
        return Predicted(decode_tok_s=made.decode_tok_s, prefill_tok_s=made.prefill_tok_s)
    if "outputs stop early" in notes:
        output = 100  # "about 100 tokens a request"
    made = waves(costs, count, prompt, output, int(row["num_requests"] or count))
    return replace(made, decode_tok_s=count * 1e3 / made.tpot_ms if made.tpot_ms else None)


def _bare_step(costs: ModelCosts, count: int, program: str) -> Predicted:
    """A step with no engine around it: device or launches, whichever takes longer."""
    engine = costs.host_seconds(count, count)
    return Predicted(tpot_ms=(decode_seconds(costs, count, 1, 1, program) - engine) * 1e3)
