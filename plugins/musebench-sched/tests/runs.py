"""Simulated runs of a few hundred requests, through the registry as any run is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from musebench.plugin.registry import Registry
from musebench.report.columns import RequestColumns
from musebench.run import RunOptions, run

Row = tuple[float, int, int, str, float]
"""Arrival in seconds, prompt tokens, output tokens, tenant, priority."""


def served(
    folder: Path, rows: list[Row], scheduler: str, stepwise: bool = False, **options: Any
) -> RequestColumns:
    """The requests of one run on a virtual H200, four sequences at a time, in the order of `rows`."""
    trace = folder / "requests.csv"
    lines = [",".join(map(str, row)) for row in rows]
    trace.write_text("\n".join(["arrival,prompt_tokens,output_tokens,tenant,priority", *lines, ""]))
    report = run(
        RunOptions(
            str(trace), "llama-3.1-8b", "sim:h200", scheduler=scheduler, max_sessions=4, max_context=8192,
            stepwise=stepwise, settings={"scheduler": options},
        ),
        Registry.installed(),
    )  # fmt: skip
    (made,) = report.runs
    assert all(reason is not None and reason.succeeded for reason in made.requests.finish_reason)
    return made.requests
