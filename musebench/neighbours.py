"""Whether a neighbour's content changes a row by a bit: a workload run twice, the others' contents changed.

Both runs have the same shapes: all requests arrive at once, no stop token ends one, and lengths stay. The
first request is held: the logits of its rows, read off the model's own output, are compared bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from musebench.core.errors import UnsupportedError, UsageError
from musebench.core.request import Request
from musebench.plugin.registry import Registry
from musebench.report.verdict import Verdict
from musebench.run import Parts, RunOptions, run

HELD_SLOT = 1
"""The slot of the first request: it is admitted first, takes the lowest, and is never preempted."""

EXECUTORS = ("eager", "compiled")
"""Those whose model is called from Python in each step; a replayed graph is not."""


@dataclass
class LogitTap:
    """A model call that keeps the logits of the held slot's rows, as bytes, in the order of its tokens."""

    call: Any
    kept: list[np.ndarray]

    def __call__(self, token_ids: Any, positions: Any, rows: Any, step: Any) -> Any:
        import torch

        logits = self.call(token_ids, positions, rows, step)
        slots = step.slots if rows is None else step.slots[rows]
        for place in (slots == HELD_SLOT).nonzero()[:, 0].tolist():
            row = logits[place].detach().cpu().contiguous()
            self.kept.append(row.view(torch.uint8).numpy().copy())
        return logits

    def __getattr__(self, name: str) -> Any:
        return getattr(self.call, name)


def check_neighbours(
    options: RunOptions, registry: Registry, plant: Callable[[Parts], None] | None = None
) -> Verdict:
    """Run twice and compare; `plant` may change what a run is put together from, for tests.

    Raises:
        UsageError: the workload makes one request only.
        UnsupportedError: an executor or backend whose logits cannot be read.
    """
    if options.executor not in EXECUTORS:
        raise UnsupportedError(
            f"--neighbours cannot read the logits of executor {options.executor!r}; use "
            f"--executor {' or '.join(EXECUTORS)}"
        )
    settings = {name: dict(values) for name, values in options.settings.items()}
    if options.executor == "compiled":
        settings.setdefault("executor", {})["capture"] = "false"
    options = replace(options, settings=settings, overlap=False, warmup=0, repeat=1)
    made = [_logits(options, registry, changed, plant) for changed in (False, True)]
    (first, count, report), (second, _, _) = made
    differing = [
        index
        for index, (one, other) in enumerate(zip(first, second, strict=False))
        if not np.array_equal(one, other)
    ]
    if len(first) != len(second):
        differing.append(min(len(first), len(second)))
    bits = sum(row.size for row in first) * 8
    reason = ""
    if differing:
        at = differing[0]
        words = int((first[at] != second[at]).sum()) if at < len(first) and at < len(second) else "all"
        reason = (
            f"the logits of token {at} of the first request differ in {words} bytes when the other "
            f"{count - 1:,} requests hold other tokens"
        )
    return Verdict(
        report,
        "neighbours",
        not differing,
        reason,
        "a row's logits, other neighbours",
        f"{len(differing):,} of {len(first):,} rows differ",
        "0 rows, bit for bit",
        f"{bits:,} bits of the first request's logits; {count - 1:,} other requests of the same lengths, "
        "every token of their prompts changed",
    )


def _logits(
    options: RunOptions, registry: Registry, changed: bool, plant: Callable[[Parts], None] | None
) -> tuple[list[np.ndarray], int, str]:
    """The held rows' logits, how many requests there were, and the report's id."""
    kept: list[np.ndarray] = []
    counts: list[int] = []

    def prepare(parts: Parts) -> None:
        program = getattr(parts.backend, "program", None)
        if program is None:
            raise UnsupportedError(f"--neighbours cannot read the logits of --device {options.device}")
        if len(parts.built.requests) < 2:
            raise UsageError(f"--neighbours: workload {parts.workload.name!r} makes one request, without any")
        vocab = parts.model.facts.vocab
        first, *others = (replace(one, arrival_seconds=0.0, stop_tokens=()) for one in parts.built.requests)
        parts.built.requests[:] = [first, *(_other(one, vocab) if changed else one for one in others)]
        counts.append(len(parts.built.requests))
        if plant is not None:
            plant(parts)
        program.model = LogitTap(program.model, kept)

    report = run(options, registry, prepare=prepare)
    made = report.runs[0].requests.generated_tokens[0] if report.runs else 0
    if report.message or len(kept) < made or not made:
        raise UnsupportedError(
            f"--neighbours: the run ended early ({report.message or report.runs[0].requests.message[0]})"
        )
    return kept[:made], counts[0], report.id


def _other(request: Request, vocab: int) -> Request:
    """The same request with every token of its prompt another one."""
    prompt = [(token + 1 + place % (vocab - 1)) % vocab for place, token in enumerate(request.prompt)]
    return replace(request, prompt=prompt)
