"""What `musebench list --program` shows of a package."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from musebench.cli.format import render
from musebench.programs.facts import ProgramFacts
from musebench.programs.package import read_facts

COLUMNS = ("part", "fact", "value")


def show_program(path: Path, form: str) -> str:
    """The facts of the package at `path` as a table, or all of them as json.

    Raises:
        InputError: it cannot be read.
    """
    facts = read_facts(path)
    if form == "json":
        return json.dumps(dataclasses.asdict(facts), indent=2, allow_nan=False)
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in _rows(path, facts)]
    return render(COLUMNS, rows, form)


def _rows(path: Path, facts: ProgramFacts) -> Iterator[tuple[str, str, Any]]:
    model, build, weights = facts.model, facts.build, facts.weights
    yield "model", "name", model.name
    yield "model", "source", facts.source
    yield "model", "family", model.family
    yield "model", "dtype", model.dtype
    yield "model", "layers", model.layers
    yield "model", "heads", model.heads
    yield "model", "KV heads", model.kv_heads
    yield "model", "head dim", model.head_dim
    yield "model", "vocabulary", facts.vocabulary
    yield "model", "longest context", facts.max_context
    yield "model", "bytes per cell", model.cell_bytes
    yield "model", "window per layer", _windows(facts)
    for method in facts.methods:
        yield "method", method.name, method.describe().partition(": ")[2]
    yield "planner", "kind", "ladder" if facts.static else "bounded"
    yield "weights", "where", weights.file or "in the package"
    yield "weights", "tensors", len(weights.tensors)
    yield "weights", "sha256", weights.source_sha256
    yield "build", "device", " ".join(filter(None, (build.device, build.machine, build.capability)))
    yield "build", "instructions", build.instructions
    yield "build", "kernels", build.operator
    yield "build", "torch", build.torch
    yield "build", "transformers", build.transformers
    yield "build", "musebench", build.musebench
    for part, seconds in facts.costs.seconds.items():
        yield "costs", f"{part} (s)", f"{seconds:.1f}"
    yield "costs", "peak of memory (bytes)", facts.costs.peak_bytes
    yield "costs", "package (bytes)", path.stat().st_size


def _windows(facts: ProgramFacts) -> str | None:
    """Runs of layers with one window: "8 x 512, 1 x none"; None where no layer has one."""
    runs: list[list[int]] = []
    for layer in facts.layers:
        if runs and runs[-1][1] == layer.window:
            runs[-1][0] += 1
        else:
            runs.append([1, layer.window])
    if not any(window for _, window in runs):
        return None
    return ", ".join(f"{count} x {window or 'none'}" for count, window in runs)
