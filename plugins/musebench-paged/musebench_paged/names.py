"""Names of blocks: equal exactly where the tokens of a block, and all tokens before it, are the same.

A pool belongs to one run of one model with one set of weights, and a token's keys and values follow from the
model, the token and those before it, whatever a sequence samples with: nothing else has to be in a name.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Protocol

import numpy as np

from musebench.core.sequence import Sequence
from musebench.core.table import PENDING
from musebench_paged.blocks import Name

DIGEST_BYTES = 32


class Naming(Protocol):
    def extend(self, names: list[Name], sequence: Sequence, count: int) -> None:
        """Append the names of a sequence's blocks from `len(names)` on, to `count` of them, or as far as its
        tokens are known."""


def chained(before: bytes, tokens: np.ndarray, block: int) -> Iterator[bytes]:
    """Of each whole block of `tokens`, int32: BLAKE2b over the name before and the block's ids, 256 bits.

    Two blocks with other tokens but one name would be a collision of BLAKE2b, which nobody has found or can
    search for: ids need not be compared again.
    """
    data = np.ascontiguousarray(tokens, "<i4").tobytes()
    size = 4 * block
    for start in range(0, len(data) // size * size, size):
        before = blake2b(before + data[start : start + size], digest_size=DIGEST_BYTES).digest()
        yield before


class TokenNames:
    """By the ids of the tokens, where a run keeps them."""

    def __init__(self, block: int) -> None:
        self.block = block

    def extend(self, names: list[Name], sequence: Sequence, count: int) -> None:
        start, end = len(names) * self.block, count * self.block
        if sequence.slot:
            tokens = sequence.table.tokens[sequence.slot, start:end]
        else:
            rest = [] if sequence.rest is None else sequence.rest
            tokens = np.concatenate([np.asarray(part, np.int32) for part in (sequence.request.prompt, rest)])[
                start:end
            ]
        pending = np.flatnonzero(tokens == PENDING)
        if len(pending):
            tokens = tokens[: int(pending[0])]
        before = names[-1] if names else b""
        assert isinstance(before, bytes)
        names.extend(chained(before, tokens, self.block))


class GivenNames:
    """By what a request says that its prompt shares, where nobody has ids to compare (a simulated run).

    A block that a prefix covers is called by the prefix's last name in it and by its place. A prompt that has
    ids and no prefix is named by them. What neither covers is a sequence's own: only itself finds it again,
    after a preemption.
    """

    def __init__(self, block: int) -> None:
        self.block = block

    def extend(self, names: list[Name], sequence: Sequence, count: int) -> None:
        size, request = self.block, sequence.request
        prefix, prompt = request.prefix, request.prompt
        if prefix is not None:
            covered = min(len(prefix.names) * prefix.block_tokens, len(prompt)) // size
            for place in range(len(names), min(count, covered)):
                names.append((prefix.names[((place + 1) * size - 1) // prefix.block_tokens], place))
        elif not isinstance(prompt, range) and len(names) < (covered := min(count, len(prompt) // size)):
            before = names[-1] if names else b""
            assert isinstance(before, bytes)
            own = np.asarray(prompt[len(names) * size : covered * size], np.int32)
            names.extend(chained(before, own, size))
        names.extend((sequence.session << 40) + place for place in range(len(names), count))
