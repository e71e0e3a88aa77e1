"""What `make bench-gpu` runs, in order of what a row is worth: a star around one choice.

The centre is executor `graph`, pool `geometric`, scheduler `chunked`; every other row changes one of them. A
cross product of executors, pools, schedulers, workloads and shapes has hundreds of rows, and most of them
would say nothing that its axes do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from musebench.run import RunOptions

EXECUTOR, POOL, SCHEDULER = "graph", "geometric", "chunked"
SMOLLM2, SMALL, LARGE = "smollm2-135m", "llama-3.2-1b", "llama-3.1-8b"
POOLS = ("geometric", "fixed", "paged", "vmm")
SCHEDULERS = ("static", "continuous")
PEERS = ("transformers-static", "transformers-batch")

SHORT = {"requests": "64", "output_tokens": "{uniform: [32, 256]}"}
"""`mixed` with a quarter of its requests and of their outputs, for what is too slow for all of it."""

WARM_SECONDS = {SMOLLM2: 36.0, SMALL: 8.0, LARGE: 8.0}
"""Kernels of a shape, once in a process; SmolLM2's weights are read from a file."""

COMPILE_SECONDS = {SMOLLM2: 30.0, SMALL: 30.0, LARGE: 40.0}
"""torch.compile of a shape, once in a process."""

EXPORT_SECONDS = {SMOLLM2: 60.0, SMALL: 100.0, LARGE: 150.0}

RUN_SECONDS = {
    ("mixed", SMOLLM2): 5.5, ("mixed", SMALL): 6.0, ("mixed", LARGE): 17.0,
    ("mixed64", SMOLLM2): 2.0, ("mixed64", SMALL): 2.5, ("mixed64", LARGE): 5.0,
    ("longtail", SMALL): 7.0, ("longtail", LARGE): 16.0,
    ("capitals", SMOLLM2): 0.5,
    ("steady1", SMALL): 0.5, ("steady64", SMALL): 1.5, ("steady256", SMALL): 4.0,
    ("steady1", LARGE): 1.0, ("steady64", LARGE): 3.0, ("steady256", LARGE): 10.0,
    ("steady1", SMOLLM2): 0.5, ("steady64", SMOLLM2): 1.0, ("steady256", SMOLLM2): 4.0,
}  # fmt: skip
"""Of one serving at the centre, from reports of this folder where one is there; the rest are guesses."""

SLOWER = {"eager": 4.0, "solo": 8.0, "static": 1.5, "continuous": 1.2, "transformers-static": 10.0,
          "transformers-batch": 9.0}  # fmt: skip
"""Times the centre's seconds."""


@dataclass(frozen=True)
class Row:
    """One report to be made, `NAME.json.gz`. `seconds` is what it should take; with `engine`, a whole engine
    takes the place of executor, pool and scheduler. `exported`: the shape whose program it needs."""

    name: str
    options: RunOptions
    seconds: float
    engine: str | None = None
    exported: str | None = None

    @property
    def arguments(self) -> list[str]:
        """Those of `musebench` that make the same report."""
        options = self.options
        made = ["run", options.workload, "--model", options.model, "--device", options.device]
        made += ["--dtype", str(options.dtype)]
        if self.engine is not None:
            made += ["--engine", self.engine]
        else:
            made += ["--executor", options.executor, "--pool", options.pool, "--scheduler", options.scheduler]
        if options.max_sessions is not None:
            made += ["--max-sessions", str(options.max_sessions)]
        made += ["--warmup", str(options.warmup), "--repeat", str(options.repeat)]
        settings = options.settings.items()
        return made + [
            word for kind, pairs in settings for name, value in pairs.items()
            for word in ("--set", f"{kind}.{name}={value}")
        ]  # fmt: skip


@dataclass
class Plan:
    """Rows in order. `models` names the model of each shape; `tiny` shrinks all work for a CPU."""

    device: str
    models: dict[str, str]
    tiny: bool = False
    rows: list[Row] = field(default_factory=list)
    _warm: set[tuple[str, str]] = field(default_factory=set)

    @property
    def dtype(self) -> str:
        return "bfloat16" if self.device.startswith("cuda") else "float32"

    def add(
        self,
        work: str,
        shape: str,
        executor: str = EXECUTOR,
        pool: str = POOL,
        scheduler: str = SCHEDULER,
        *,
        engine: str | None = None,
        warmup: int = 1,
        repeat: int = 1,
        round: int | None = None,
        sessions: int | None = None,
    ) -> None:
        """A row. `round`: of rows that start with an empty pool, numbered, their kernels compiled by the rows
        before them. `sessions`: at a time, rather than the workload's."""
        if shape not in self.models:
            return
        chosen = engine or f"{executor}-{pool}-{scheduler}"
        name = f"{work}-{shape}-{chosen}" + ("" if round is None else f"-fresh{round}")
        slower = [SLOWER.get(one, 1.0) for one in (executor, scheduler, engine) if one is not None]
        servings = (warmup + repeat) * RUN_SECONDS[work, shape] * max(slower) + 0.5
        once = 0.0
        if (shape, executor) not in self._warm and engine is None:
            costs = {"compiled": COMPILE_SECONDS, "exported": EXPORT_SECONDS}
            once = costs.get(executor, WARM_SECONDS)[shape]
            if executor in (EXECUTOR, "eager"):
                self._warm |= {(shape, EXECUTOR), (shape, "eager")}
            self._warm.add((shape, executor))
        workload, own_sessions, settings = self._work(work, executor)
        if self.tiny and pool == "vmm":
            settings["pool"] = {"granule": "4096"}
        options = RunOptions(
            workload, self.models[shape], device=self.device, dtype=self.dtype, executor=executor, pool=pool,
            scheduler=scheduler, max_sessions=sessions or own_sessions, warmup=warmup, repeat=repeat,
            settings=settings,
        )  # fmt: skip
        on_gpu = self.device.startswith("cuda")
        if engine is not None:
            options = replace(options, executor=RunOptions.executor)
            if (
                engine == PEERS[1] and on_gpu
            ):  # left to itself it captures nothing under sdpa, which wants a mask
                options = replace(options, settings={**settings, "engine": {"graphs": "on"}})
        elif executor in ("graph", "compiled") and not on_gpu:
            options = replace(options, executor="eager", settings=_without(settings, "executor"))
        exported = shape if executor == "exported" else None
        self.rows.append(Row(name, options, servings + once, engine, exported))

    def _work(self, work: str, executor: str) -> tuple[str, int | None, dict[str, dict[str, Any]]]:
        """Workload, most sequences, options by kind."""
        sizes: dict[str, str] = {}
        settings: dict[str, dict[str, Any]] = {}
        sessions: int | None = None
        if work.startswith("steady"):
            count = work.removeprefix("steady")
            work, sizes = "steady", {"requests": count}
            sessions = int(count)
            if executor != "eager":
                settings["executor"] = {"ladder": count}
        elif work == "mixed64":
            work, sizes, sessions = "mixed", dict(SHORT), 64
        if self.tiny and work != "capitals":
            requests = {"requests": str(min(int(sizes.get("requests", "4")), 4))}
            sizes = requests | {"prompt_tokens": "20", "output_tokens": "6"}
            sessions = 4
        return work, sessions, settings | ({"workload": sizes} if sizes else {})


def _without(settings: dict[str, dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {name: values for name, values in settings.items() if name != kind}


def plan(device: str, models: dict[str, str], tiny: bool = False) -> list[Row]:
    """All rows, what is worth most first; those of a shape without a model are left out.

    `longtail` is not run with SmolLM2, which was made for 8,192 positions. `solo` runs the short `mixed`.
    """
    made = Plan(device, models, tiny)
    made.add("mixed", SMALL, repeat=3)
    for pool in POOLS:
        made.add("mixed", SMALL, pool=pool, warmup=0, round=1)
    for scheduler in SCHEDULERS:
        made.add("mixed", SMALL, scheduler=scheduler)
    made.add("mixed64", SMALL, repeat=3)
    made.add("mixed64", SMALL, "eager")
    for count in (1, 64, 256):
        made.add(f"steady{count}", SMALL, warmup=0)
        made.add(f"steady{count}", SMALL, "eager", warmup=0)
    for engine in PEERS:
        made.add("mixed64", SMALL, engine=engine)
    made.add("mixed", LARGE, repeat=3)
    made.add("longtail", SMALL, repeat=3)
    for scheduler in SCHEDULERS:
        made.add("longtail", SMALL, scheduler=scheduler)
    made.add("mixed64", SMALL, scheduler="solo", warmup=0)
    for row in _smollm2():
        made.add(**row)
    for work, warmup in (("mixed", 1), ("mixed64", 1), ("steady1", 0), ("steady64", 0), ("steady256", 0)):
        made.add(work, SMALL, "compiled", warmup=warmup)
    for number in (2, 3):
        for pool in POOLS:
            made.add("mixed", SMALL, pool=pool, warmup=0, round=number)
    for pool in POOLS:
        made.add("longtail", SMALL, pool=pool, warmup=0, round=1)
    for count in (1, 64, 256):
        made.add(f"steady{count}", LARGE, warmup=0)
    for count in (1, 64):
        made.add(f"steady{count}", LARGE, "eager", warmup=0)
    made.add("mixed64", LARGE)
    made.add("mixed64", LARGE, engine=PEERS[1])
    made.add("mixed", SMALL, engine=PEERS[1], warmup=0)
    made.add("mixed", LARGE, engine=PEERS[1], warmup=0, sessions=128)  # a cache of 32 GiB
    made.add("longtail", LARGE)
    for pool in POOLS:
        made.add("mixed", LARGE, pool=pool, warmup=0, round=1)
    for scheduler in SCHEDULERS:
        made.add("mixed", LARGE, scheduler=scheduler)
    made.add("mixed", LARGE, "compiled")
    for count in (1, 64, 256):
        made.add(f"steady{count}", LARGE, "compiled", warmup=0)
    made.add("mixed64", LARGE, engine=PEERS[0])
    made.add("capitals", SMOLLM2, "compiled")
    made.add("mixed", SMOLLM2, "compiled")
    for executor in ("graph", "compiled"):
        for count in (1, 64, 256):
            made.add(f"steady{count}", SMOLLM2, executor, warmup=0)
    made.add("mixed", SMALL, "exported")
    made.add("mixed64", SMALL, "exported")
    for count in (1, 64, 256):
        made.add(f"steady{count}", SMALL, "exported", warmup=0)
    made.add("capitals", SMOLLM2, "exported")
    return made.rows


def _smollm2() -> Iterator[dict[str, Any]]:
    """Rows with answers that can be right or wrong, and `mixed` with trained weights."""
    yield {"work": "capitals", "shape": SMOLLM2, "repeat": 3}
    yield {"work": "capitals", "shape": SMOLLM2, "executor": "eager"}
    for pool in ("fixed", "paged", "vmm"):
        yield {"work": "capitals", "shape": SMOLLM2, "pool": pool}
    for scheduler in ("solo", "static", "continuous"):
        yield {"work": "capitals", "shape": SMOLLM2, "scheduler": scheduler}
    yield {"work": "mixed", "shape": SMOLLM2, "repeat": 3}
