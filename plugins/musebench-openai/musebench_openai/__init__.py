"""Any OpenAI-compatible server, as a whole engine of musebench."""

from __future__ import annotations

from musebench.plugin import hookimpl
from musebench.plugin.hookspecs import Register


@hookimpl
def register_engines(register: Register) -> None:
    register(
        "openai",
        "musebench_openai.engine:OpenAIEngine",
        options="musebench_openai.options:OpenAIOptions",
        summary="any OpenAI-compatible server, streamed, by the client's clock",
    )
