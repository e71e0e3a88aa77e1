"""The progress bar of a run: requests done, output tokens per second, cells in use."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

EVERY = 16
"""Steps between two looks at the engine: a look costs more than a step's bookkeeping."""


@contextmanager
def shown(wanted: bool | None) -> Iterator[Any]:
    """A callback for `musebench.run.run` that moves a bar on standard error, or None."""
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from musebench.core.service import Service

    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total} requests"),
        TextColumn("{task.fields[rate]}"), TextColumn("{task.fields[cells]}"), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[int, Any] = {}

        def served(service: Service, repeat: int) -> None:
            if repeat not in tasks:
                name = f"run {repeat}" if repeat else "warm-up"
                tasks[repeat] = bar.add_task(name, total=len(service.records), rate="", cells="")
            seconds = service.now()
            rate = f"{service.output_tokens / seconds:,.0f} tokens/s" if seconds > 0 else ""
            bar.update(tasks[repeat], completed=service.ended_requests, rate=rate)

        def callback(engine: Any, repeat: int) -> None:
            if isinstance(engine, Service):
                served(engine, repeat)
                return
            recorder = engine.recorder
            done = len(recorder.steps)
            if done % EVERY and not engine.idle:
                return
            if repeat not in tasks:
                name = f"run {repeat}" if repeat else "warm-up"
                tasks[repeat] = bar.add_task(name, total=len(recorder.sequences), rate="", cells="")
            tokens = sum(step.decode_tokens for step in recorder.steps[-EVERY:])
            seconds = recorder.steps[-1].end - recorder.steps[-EVERY:][0].start
            bar.update(
                tasks[repeat],
                completed=sum(1 for sequence in recorder.sequences if sequence.finish_reason is not None),
                rate=f"{tokens / seconds:,.0f} tokens/s" if seconds > 0 else "",
                cells=f"{engine.pool.in_use:,} of {engine.pool.rows:,} cells",
            )

        yield callback
