"""`least-tokens`: the replica whose queued and running sequences have the fewest tokens."""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from typing import ClassVar

from musebench.core.options import NoOptions
from musebench.core.protocols import Replica
from musebench.core.request import Request


def tokens(replica: Replica) -> int:
    """Queued and running."""
    return replica.queued_tokens + replica.running_tokens


class LeastTokensRouter:
    """Of equal ones the first."""

    name: ClassVar[str] = "least-tokens"
    Options = NoOptions

    def __init__(self, options: NoOptions) -> None:
        self.options = options

    def route(self, request: Request, replicas: Ordered[Replica]) -> int:
        return min(range(len(replicas)), key=lambda place: tokens(replicas[place]))
