"""One run more, under the backend's profiler."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from musebench.core.engine import Engine
from musebench.core.errors import UnsupportedError
from musebench.core.profiling import Activity
from musebench.plugin.registry import Registry
from musebench.report.columns import RunData
from musebench.run.options import RunOptions
from musebench.run.parts import Parts
from musebench.run.repeat import measure


@dataclass
class Profile:
    """What `run` fills when it is handed one: a run more, after the measured ones and in no report, with what
    was recorded in its first `steps` steps. None and empty when the measured runs did not end well, or with
    `trouble` in one line."""

    steps: int = 200
    run: RunData | None = None
    activities: list[Activity] = field(default_factory=list)
    trouble: str | None = None


def require_profiler(options: RunOptions, registry: Registry) -> None:
    name = options.device.partition(":")[0]
    if not hasattr(registry.get("backend", name).load(), "profiler"):
        raise UnsupportedError(
            f"--profile: backend {name!r} launches nothing to record; use --device cpu or cuda"
        )


def record_profile(options: RunOptions, registry: Registry, parts: Parts, profile: Profile) -> None:
    """One more run under the backend's profiler; costs and memory of the report stay as they were."""
    profiler = parts.backend.profiler()  # type: ignore[attr-defined]

    def watch(engine: Engine, repeat: int) -> None:
        if len(engine.recorder.steps) <= profile.steps:
            profiler.mark(engine.now)
        if len(engine.recorder.steps) == profile.steps:
            profiler.stop()

    apart = replace(parts, costs=dict(parts.costs), snapshots=dict(parts.snapshots))
    try:
        profiler.start()
        try:
            runs, _ = measure(replace(options, warmup=0, repeat=1), registry, apart, watch, None)
        finally:
            profiler.stop()
        profile.run, profile.activities = runs[0], profiler.activities()
    except Exception as error:  # what was measured is worth more than the profile
        profile.trouble = f"nothing was recorded: {type(error).__name__}: {error}"
