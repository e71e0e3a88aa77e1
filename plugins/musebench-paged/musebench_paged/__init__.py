"""`paged`: a pool policy over blocks of cells, in which sequences share their common prefixes."""

from __future__ import annotations

from musebench.plugin import hookimpl
from musebench.plugin.hookspecs import Register


@hookimpl
def register_pools(register: Register) -> None:
    register(
        "paged",
        "musebench_paged.pool:PagedPool",
        options="musebench_paged.options:PagedOptions",
        summary="blocks of cells; sequences share prefixes, finished ones until their blocks are needed",
    )
