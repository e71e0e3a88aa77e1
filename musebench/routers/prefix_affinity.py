"""`prefix-affinity`: where the longest part of the prompt's beginning went before."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from typing import ClassVar

from musebench.core.options import option
from musebench.core.protocols import Replica
from musebench.core.request import Request
from musebench.routers.least_tokens import tokens


class PrefixAffinityRouter:
    """Knows where requests went, by the blocks that they name (`Request.prefix`), or else by the first token
    ids of the prompt; one that shares nothing goes to the replica with the fewest tokens. A simulated prompt
    without named blocks has no ids to share."""

    name: ClassVar[str] = "prefix-affinity"

    @dataclass(frozen=True)
    class Options:
        tokens: int = option(256, "of a prompt without named blocks: how many first ids are held", minimum=1)
        most_ahead: int = option(
            0, "leave a replica that has this many tokens more than the least; 0: never", minimum=0
        )

    def __init__(self, options: Options) -> None:
        self.options = options
        self._went: dict[Hashable, int] = {}

    def route(self, request: Request, replicas: Ordered[Replica]) -> int:
        keys = list(self._keys(request))
        place = next((self._went[key] for key in keys if key in self._went), None)
        if place is None or self.options.most_ahead:
            held = [tokens(replica) for replica in replicas]
            least = min(range(len(held)), key=held.__getitem__)
            if place is None or held[place] - held[least] >= self.options.most_ahead:
                place = least
        for key in keys:
            self._went[key] = place
        return place

    def _keys(self, request: Request) -> Iterator[Hashable]:
        """What stands for the prompt's beginning, the longest first."""
        if request.prefix is not None:
            # A name stands for its block and for all before it.
            yield from ((request.prefix.block_tokens, name) for name in reversed(request.prefix.names))
        elif not isinstance(request.prompt, range):
            yield tuple(request.prompt[: self.options.tokens])
