"""Thousands of random requests with cancels, growth and preemption over a torch backend: nothing is left."""

from __future__ import annotations

import gc
import random
from dataclasses import dataclass, field

import torch
from fakes import REGISTRY, assert_empty

from musebench.backends.torch_backend import TorchBackend
from musebench.backends.torch_options import TorchOptions
from musebench.core.engine import Engine
from musebench.core.plan import Limits
from musebench.core.protocols import PoolBounds
from musebench.core.request import FinishReason, Request
from musebench.models.random_source import RandomOptions, RandomSource

SESSIONS, CONTEXT, CAPACITY = 48, 160, 900
"""A pool that 48 sessions of up to 160 tokens do not fit into: the newest are preempted."""


@dataclass
class Outcome:
    """How the requests ended, and what `torch.cuda` held after each wave (empty on a CPU)."""

    ended: dict[FinishReason, int]
    preemptions: int
    growths: int
    recaptures: int
    allocated: list[int] = field(default_factory=list)
    reserved: list[int] = field(default_factory=list)


def soak(device: str, executor: str, requests: int, waves: int, seed: int = 0) -> Outcome:
    """Serve `requests` in `waves`; after each no cell, slot or sequence may be left, and the pool is emptied
    of its rows every third wave, so that it grows under captured graphs again and again."""
    draw = random.Random(seed)
    model = RandomSource(RandomOptions()).open("random:smollm2-135m@layers=2,vocab=500", "float32", device, 0)
    backend = TorchBackend(TorchOptions(), device, model)
    limits = Limits(most_prefill=64, most_sequences=SESSIONS, most_tokens=128)
    bounds = PoolBounds(SESSIONS, CONTEXT, CAPACITY)
    backend.open(bounds)
    launcher = REGISTRY.get("executor", executor).load()(
        REGISTRY.get("executor", executor).parse({}), backend, limits
    )
    launcher.prepare()
    ended: dict[FinishReason, int] = {}
    outcome = Outcome(ended, 0, 0, 0)
    for wave in range(waves):
        if wave % 3 == 0:
            backend.storage().close()
            pool = REGISTRY.get("pool", "geometric").make({"start": "16"}, bounds, backend.storage())
            # The executor outlives the pool here: its graphs were captured at generations of the last one.
            pool.generation = backend.storage().generation
        engine = Engine(
            REGISTRY.get("scheduler", draw.choice(("chunked", "continuous", "static"))).make({}),
            pool, launcher, backend.clock, limits, SESSIONS, CONTEXT, overlap=device != "cpu",
        )  # fmt: skip
        made = [_request(draw, f"{wave}-{number}") for number in range(requests // waves)]
        for request in made:
            engine.submit(request)
        engine._origin = engine.clock.now()
        while not engine.idle:
            engine.step()
            if draw.random() < 0.15 and (open_ := [*engine.running.all(), *engine.waiting]):
                engine.cancel(draw.choice(open_).request.id)
        assert_empty(engine)
        for sequence in engine.recorder.sequences:
            assert sequence.finish_reason is not None
            assert sequence.finish_reason is not FinishReason.FAILED, sequence.message
            ended[sequence.finish_reason] = ended.get(sequence.finish_reason, 0) + 1
        outcome.preemptions += engine.recorder.preemptions
        outcome.growths += sum(growth.resize.copied_bytes > 0 for growth in engine.recorder.growths)
        del engine
        gc.collect()
        if device != "cpu":
            backend.synchronize()
            outcome.allocated.append(torch.cuda.memory_allocated())
            outcome.reserved.append(torch.cuda.memory_reserved())
    outcome.recaptures = int(launcher.counters().get("recaptures", 0))
    launcher.close()
    backend.storage().close()
    backend.close()
    return outcome


def _request(draw: random.Random, name: str) -> Request:
    prompt = [draw.randrange(500) for _ in range(draw.choice((1, 2, draw.randrange(1, 120))))]
    new = draw.choice((0, 1, draw.randrange(1, 60), 400 if draw.random() < 0.1 else 5))
    return Request(name, prompt, new)
