"""Where simulated answers stop: nobody makes the token, so it is drawn."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from musebench.core.request import Request


@dataclass(frozen=True)
class SeededStops:
    """Every token of an answer is its stop with probability 1 / `mean_tokens` (above 1), so that answers
    without a limit have so many in the mean. Depends on (seed, the request's id) alone: neither on the batch
    nor on which replica or how often a request is served."""

    seed: int
    mean_tokens: float

    def __call__(self, request: Request) -> int:
        """How many tokens a request has made with its stop: at least 1, geometrically distributed."""
        digest = hashlib.blake2b(f"{self.seed} {request.id}".encode(), digest_size=8).digest()
        below_one = (int.from_bytes(digest, "little") >> 11) * 2.0**-53
        return 1 + int(math.log1p(-below_one) / math.log1p(-1.0 / self.mean_tokens))
