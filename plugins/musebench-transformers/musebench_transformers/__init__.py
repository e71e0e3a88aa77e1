"""transformers' own continuous batching and static `generate`, as whole engines of musebench."""

from __future__ import annotations

from musebench.plugin import hookimpl
from musebench.plugin.hookspecs import Register


@hookimpl
def register_engines(register: Register) -> None:
    register(
        "transformers-batch",
        "musebench_transformers.batch:BatchEngine",
        options="musebench_transformers.options:BatchOptions",
        summary="transformers' continuous batching, over its own paged cache",
    )
    register(
        "transformers-static",
        "musebench_transformers.static:StaticEngine",
        options="musebench_transformers.options:StaticOptions",
        summary="transformers' generate over padded batches",
    )
