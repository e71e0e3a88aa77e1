"""Closed-form predictions of published measurements, from datasheet profiles and without fitting.

Three kinds of serving, each in the form that its source describes: a static batch, a closed loop whose
requests of one length run in waves, and a queue that is never empty, in steady state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from musebench.backends.simulated.costs import ModelCosts
from musebench.backends.simulated.shape import StepShape

SERVING = "compiled graph"
"""The program of engines that fuse small kernels and replay graphs; products are joined in all programs."""

TOKEN_BUDGET = 2048
"""Prompt tokens of one step: vLLM's default of max_num_batched_tokens for an online server."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """Tokens per second of all requests together, milliseconds of the mean first token and of each later one;
    None where the row gives too little."""

    output_tok_s: float | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    decode_tok_s: float | None = None
    prefill_tok_s: float | None = None


def prefill_seconds(costs: ModelCosts, prompts: int, tokens: int, program: str = SERVING) -> float:
    """One step that prefills `prompts` prompts of `tokens` tokens, its host work and launch included."""
    queries = np.full(prompts, tokens, np.int64)
    device = costs.step(StepShape(queries, queries, prompts), program)
    return costs.host_seconds(prompts, prompts * tokens) + max(device, costs.launch_seconds(program))


def decode_seconds(
    costs: ModelCosts, sequences: int, first: int, steps: int, program: str = SERVING
) -> float:
    """`steps` decodes of `sequences` sequences whose contexts start at `first`, host work not hidden."""
    device = costs.decode_stretch(np.full(sequences, first, np.int64), steps, program)
    host = costs.host_seconds(sequences, sequences)
    return float(np.maximum(device, costs.launch_seconds(program)).sum()) + steps * host


def static_batch(
    costs: ModelCosts, batch: int, prompt: int, output: int, program: str = SERVING
) -> Predicted:
    """All prompts in one step, then all decodes together."""
    first = prefill_seconds(costs, batch, prompt, program)
    rest = decode_seconds(costs, batch, prompt + 1, output - 1, program) if output > 1 else 0.0
    return Predicted(
        output_tok_s=batch * output / (first + rest),
        ttft_ms=first * 1e3,
        tpot_ms=rest / (output - 1) * 1e3 if output > 1 else None,
        decode_tok_s=batch * (output - 1) / rest if rest else None,
        prefill_tok_s=batch * prompt / first,
    )


def waves(costs: ModelCosts, concurrency: int, prompt: int, output: int, requests: int) -> Predicted:
    """A closed loop: equal requests end together, so that the next ones start together, `concurrency` at a
    time and in the last wave those that are left. Prompts are prefilled in steps of `TOKEN_BUDGET` tokens."""
    total, first_tokens, later = 0.0, 0.0, 0.0
    left = requests
    while left:
        wave = min(concurrency, left)
        full, rest = divmod(wave, max(1, TOKEN_BUDGET // prompt))
        groups = [max(1, TOKEN_BUDGET // prompt)] * full + [rest] * (rest > 0)
        now = 0.0
        for group in groups:
            now += prefill_seconds(costs, group, prompt)
            first_tokens += group * now
        decoding = decode_seconds(costs, wave, prompt + 1, output - 1)
        later += wave * decoding / (output - 1)
        total += now + decoding
        left -= wave
    return Predicted(
        output_tok_s=requests * output / total,
        ttft_ms=first_tokens / requests * 1e3,
        tpot_ms=later / requests * 1e3,
    )


def saturated(costs: ModelCosts, cells: int, most: int, prompt: int, output: int, requests: int) -> Predicted:
    """A queue that is never empty: as many sequences run as `cells` hold at their mean length, and no more
    than `most`; each step decodes them all and prefills as many prompt tokens as keep their number."""
    running = max(1, min(most, requests, int(cells / (prompt + output / 2))))
    joining = max(1, round(running * prompt / output))
    queries = np.append(np.ones(running, np.int64), joining)
    contexts = np.append(np.full(running, prompt + output // 2, np.int64), min(joining, prompt))
    if joining > prompt:  # several prompts a step
        each = joining // prompt
        queries = np.append(np.ones(running, np.int64), np.full(each, prompt))
        contexts = np.append(np.full(running, prompt + output // 2, np.int64), np.full(each, prompt))
    device = costs.step(StepShape(queries, contexts, len(queries)), SERVING)
    step = max(device, costs.launch_seconds(SERVING)) + costs.host_seconds(len(queries), int(queries.sum()))
    return Predicted(output_tok_s=running / step, tpot_ms=step * 1e3)
