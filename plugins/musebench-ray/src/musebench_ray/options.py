"""What `--set launcher.NAME=VALUE` sets."""

from __future__ import annotations

from dataclasses import dataclass

from musebench.core.options import option


@dataclass(frozen=True)
class Options:
    """`cpus` is what Ray counts a run as, and the threads that it takes on a CPU."""

    address: str = option(
        "auto",
        "HOST:PORT of the cluster; auto: this machine's; local: one of its own, for these runs",
    )
    cpus: int = option(1, "cores that a run takes; as many as a node has: no two share it", minimum=1)
    parallel: int | None = option(None, "most runs at a time; none: as many as the cluster takes", minimum=1)
    retries: int = option(2, "how often a run is started again whose worker or node died", minimum=0)
    folder: str | None = option(
        None, "a folder that is sent to every node, where runs start; none: where musebench was started"
    )
    python: str | None = option(None, "the interpreter of runs on the nodes; none: the worker's own")
