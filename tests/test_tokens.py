"""Truth of tokens: every scheduler and pool makes what `generate` makes, one prompt at a time."""

from __future__ import annotations

import random
from functools import cache

import pytest
import torch
from tiny_models import ARCHITECTURES, as_model, generated, tiny_module
from transformers import AutoModelForCausalLM

from musebench.backends.torch_backend import TorchBackend
from musebench.backends.torch_options import TorchOptions
from musebench.core.engine import Engine
from musebench.core.plan import Limits
from musebench.core.protocols import PoolBounds
from musebench.core.request import FinishReason, Request
from musebench.models.bundled import bundled_dir
from musebench.plugin.registry import Registry

BUNDLED = "bundled"
PROMPT_TOKENS = (1, 2, 63, 300)
NEW_TOKENS = 10
SCHEDULERS = ("solo", "static", "continuous", "chunked")
POOLS = ("geometric", "fixed")


@cache
def registry() -> Registry:
    return Registry.installed()


@cache
def case(architecture: str):
    """A model, four prompts and what `generate` makes of each."""
    if architecture == BUNDLED:
        module = AutoModelForCausalLM.from_pretrained(bundled_dir(), dtype=torch.float32)
    else:
        module = tiny_module(architecture, max_position_embeddings=512)
    draw = random.Random(architecture)
    prompts = [[draw.randrange(3, 199) for _ in range(count)] for count in PROMPT_TOKENS]
    return module, prompts, [generated(module, prompt, NEW_TOKENS) for prompt in prompts]


@pytest.mark.parametrize("architecture", [BUNDLED, *ARCHITECTURES])
def test_every_scheduler_and_pool_makes_the_tokens_of_generate(architecture):
    module, prompts, expected = case(architecture)
    for scheduler in SCHEDULERS:
        for pool in POOLS:
            # Room for the longest prompt and little more: sessions grow the pool and preempt each other.
            capacity = 318 if pool == "geometric" else None
            backend = TorchBackend(TorchOptions(poison=True), "cpu", as_model(module))
            bounds = PoolBounds(max_sessions=3, max_context=320, capacity=capacity)
            limits = Limits(fewest_prefill=2, most_prefill=48, most_sequences=3, most_tokens=64)
            backend.open(bounds)
            engine = Engine(
                registry().get("scheduler", scheduler).make({}),
                registry().get("pool", pool).make({}, bounds, backend.storage()),
                registry().get("executor", "eager").make({}, backend, limits),
                backend.clock, limits, bounds.max_sessions, bounds.max_context, scheduler == "chunked",
            )  # fmt: skip
            recorder = engine.run(
                Request(f"{len(prompt)}", prompt, NEW_TOKENS) for prompt in (prompts[3], *prompts[:3])
            )
            made = {sequence.request.id: sequence for sequence in recorder.sequences}
            for prompt, tokens in zip(prompts, expected, strict=True):
                sequence = made[f"{len(prompt)}"]
                assert sequence.finish_reason is FinishReason.LENGTH, sequence.message
                assert sequence.generated_tokens() == tokens, (scheduler, pool, len(prompt))
            if pool == "geometric":
                assert len(engine.pool.resizes) > 1
            if (scheduler, pool) == ("chunked", "geometric"):
                assert recorder.preemptions > 0
            assert engine.pool.in_use == 0
            backend.close()
