"""What `--set pool.NAME=VALUE` sets."""

from __future__ import annotations

from dataclasses import dataclass

from musebench.core.options import option


@dataclass(frozen=True)
class PagedOptions:
    block: int = option(16, "cells of a block", unit="cells", minimum=1, maximum=1 << 20)
    start: int = option(64, "rows of the first allocation", unit="cells", minimum=1)
    factor: float = option(2.0, "rows grow at least by this factor", above=1.0)
    capacity: int | None = option(None, "most rows; none: as many as memory holds", unit="cells", minimum=1)
    retain: int = option(
        0,
        "cells of finished prefixes that the pool grows for, rather than to give them to others",
        unit="cells",
        minimum=0,
    )
