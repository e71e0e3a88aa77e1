"""`round-robin`: one replica after the other."""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from typing import ClassVar

from musebench.core.options import NoOptions
from musebench.core.protocols import Replica
from musebench.core.request import Request


class RoundRobinRouter:
    name: ClassVar[str] = "round-robin"
    Options = NoOptions

    def __init__(self, options: NoOptions) -> None:
        self._next = 0

    def route(self, request: Request, replicas: Ordered[Replica]) -> int:
        place = self._next % len(replicas)
        self._next = place + 1
        return place
