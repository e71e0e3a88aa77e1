"""`private`: a pool that gives each sequence one contiguous run of cells, as a plugin of musebench."""

from __future__ import annotations

from musebench.plugin import hookimpl
from musebench.plugin.hookspecs import Register


@hookimpl
def register_pools(register: Register) -> None:
    register(
        "private",
        "musebench_private.pool:PrivatePool",
        options="musebench_private.pool:PrivatePool.Options",
        summary="each sequence's cells in one run, which doubles and moves when it is full",
    )
