"""`vmm`: a pool whose rows never move, over virtual memory, as a plugin of musebench."""

from __future__ import annotations

from musebench.plugin import hookimpl
from musebench.plugin.hookspecs import Register


@hookimpl
def register_pools(register: Register) -> None:
    register(
        "vmm",
        "musebench_vmm.pool:VmmPool",
        options="musebench_vmm.pool:VmmPool.Options",
        summary="grows in place over virtual memory: nothing is copied, captured graphs stay",
    )
