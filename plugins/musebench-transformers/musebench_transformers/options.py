"""Options of both engines; imports neither torch nor transformers."""

from __future__ import annotations

from dataclasses import dataclass

from musebench.core.options import option


@dataclass(frozen=True)
class BatchOptions:
    attention: str = option("sdpa", "attention implementation under the paged cache")
    block_size: int = option(256, "tokens of a block of its cache", minimum=4)
    blocks: int | None = option(
        None, "blocks of its cache; none: what max-sessions and max-context need", minimum=1
    )
    graphs: str = option(
        "auto", "CUDA graphs: where transformers wants them, always or never", choices=("auto", "on", "off")
    )
    silence: float = option(120.0, "longest time without an answer before the run fails", unit="s", above=0.0)


@dataclass(frozen=True)
class StaticOptions:
    attention: str = option("sdpa", "attention implementation")
    cache: str = option("dynamic", "transformers' cache implementation", choices=("dynamic", "static"))
