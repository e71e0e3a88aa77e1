"""The shapes of known models, from shapes.csv, and the facts that follow from them. No torch."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from musebench.core.errors import UsageError
from musebench.core.facts import ModelFacts
from musebench.core.options import nearest


@dataclass(frozen=True)
class Shape:
    """One row of shapes.csv: what a config of that model says, and where the numbers come from.

    `window` is that of sliding layers (0: none); which layers slide is the family's rule. `moe_intermediate`
    counts one expert's. `parameters` and `active_parameters` are the table's own, in billions, and a test
    holds the formulas against them.
    """

    name: str
    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied_embeddings: bool
    rope_theta: float
    max_context: int
    qk_norm: bool
    attn_bias: bool
    window: int
    experts: int
    experts_per_token: int
    moe_intermediate: int
    parameters_billions: float
    active_parameters_billions: float
    source: str
    notes: str

    @property
    def windows(self) -> tuple[int | None, ...]:
        """The window of each layer; None where it attends to all."""
        return family_windows(self.family, self.layers, self.window)

    def facts(self, dtype: str) -> ModelFacts:
        total, active = parameter_counts(self)
        return ModelFacts(
            name=self.name, family=self.family, layers=self.layers, hidden=self.hidden, heads=self.heads,
            kv_heads=self.kv_heads, head_dim=self.head_dim, intermediate=self.intermediate, vocab=self.vocab,
            max_context=self.max_context, dtype=dtype, parameters=total, active_parameters=active,
            tied_embeddings=self.tied_embeddings, windows=self.windows, experts=self.experts,
            experts_per_token=self.experts_per_token, moe_intermediate=self.moe_intermediate,
        )  # fmt: skip


def family_windows(family: str, layers: int, window: int) -> tuple[int | None, ...]:
    """Gemma 3: five sliding layers, then one full; GPT-OSS and Gemma 2: sliding and full in turn; else all
    layers slide, where there is a window."""
    if not window:
        return (None,) * layers
    if family == "gemma3":
        return tuple(None if layer % 6 == 5 else window for layer in range(layers))
    if family in ("gpt_oss", "gemma2"):
        return tuple(window if layer % 2 == 0 else None for layer in range(layers))
    return (window,) * layers


def parameter_counts(shape: Shape) -> tuple[int, int]:
    """All parameters, each once, and those a token passes through (its experts only).

    Per layer: q, k, v and output products, their biases (Qwen2: q, k and v only; GPT-OSS: all four, and one
    sink a head), q and k norms of head_dim each, two norms of hidden (Gemma 3: four), and a gated MLP or its
    experts with their router; then embeddings, a last norm, and the output layer where it is not tied.
    """
    hidden, queries, keys = shape.hidden, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    attention = hidden * (queries + 2 * keys) + queries * hidden
    if shape.attn_bias:
        attention += queries + 2 * keys
        if shape.family == "gpt_oss":
            attention += hidden + shape.heads
    if shape.qk_norm:
        attention += 2 * shape.head_dim
    norms = (4 if shape.family == "gemma3" else 2) * hidden
    if shape.experts:
        expert = 3 * hidden * shape.moe_intermediate
        router = shape.experts * hidden
        if shape.family == "gpt_oss":
            expert += 2 * shape.moe_intermediate + hidden
            router += shape.experts
        mlp, active_mlp = shape.experts * expert + router, shape.experts_per_token * expert + router
    else:
        mlp = active_mlp = 3 * hidden * shape.intermediate
    ends = shape.vocab * hidden * (1 if shape.tied_embeddings else 2) + hidden
    fixed = shape.layers * (attention + norms) + ends
    return fixed + shape.layers * mlp, fixed + shape.layers * active_mlp


@cache
def shapes() -> dict[str, Shape]:
    """All shapes by name in lower case."""
    with (Path(__file__).parent / "shapes.csv").open(newline="", encoding="utf-8") as file:
        rows = [_shape(row) for row in csv.DictReader(file)]
    return {shape.name.lower(): shape for shape in rows}


def shape(name: str) -> Shape:
    """The shape of that name, in any case.

    Raises:
        UsageError: there is none; names the nearest.
    """
    known = shapes()
    if name.lower() not in known:
        raise UsageError(f"there is no shape {name!r}; {nearest(name.lower(), known)}")
    return known[name.lower()]


def _shape(row: dict[str, Any]) -> Shape:
    def number(key: str) -> int:
        return int(row[key] or 0)

    return Shape(
        name=row["name"], family=row["family"], layers=number("layers"), hidden=number("hidden"),
        heads=number("heads"), kv_heads=number("kv_heads"), head_dim=number("head_dim"),
        intermediate=number("intermediate"), vocab=number("vocab"),
        tied_embeddings=bool(number("tied_embeddings")), rope_theta=float(row["rope_theta"]),
        max_context=number("max_context"), qk_norm=bool(number("qk_norm")),
        attn_bias=bool(number("attn_bias")), window=number("sliding_window"), experts=number("n_experts"),
        experts_per_token=number("experts_per_token"), moe_intermediate=number("moe_intermediate"),
        parameters_billions=float(row["params_total_b"]),
        active_parameters_billions=float(row["params_active_b"]), source=row["source"], notes=row["notes"],
    )  # fmt: skip
