"""Token ids, lengths and times drawn from a seed, in an order that is written down.

`NumpyDraws` has one PCG64 generator a section, seeded from (seed, section): "prompt_tokens", "output_tokens",
"contents" and "arrivals". Changing one section leaves the others' draws as they were, and lengths need no
contents.

`PythonDraws` is one `random.Random(seed)`: for each request its prompt's length, `randint(low, high)`, then
its contents, `randrange(vocab)` a token; after all prompts, each request's output length, `randint(low,
high)`. A fixed length draws nothing. Anybody can repeat it with the standard library.
"""

from __future__ import annotations

import hashlib
import random
from array import array
from collections.abc import Sequence as Ordered
from typing import Protocol

import numpy as np

from musebench.core.errors import InputError
from musebench.workload.lengths import Fixed, Lengths, Uniform

MOST_DRAWN = 1 << 28
"""Most token ids drawn for one workload: 1 GiB."""


class Draws(Protocol):
    """Draws the prompts and output lengths of a whole workload."""

    def requests(
        self, count: int, prompts: Lengths, outputs: Lengths, vocab: int, keep: bool
    ) -> tuple[list[Ordered[int]], list[int]]:
        """Prompts and output lengths, one each a request.

        Prompts are int32 arrays of ids below `vocab`; without `keep` nobody reads the ids, and they are
        ranges of the same lengths.

        Raises:
            InputError: more than `MOST_DRAWN` tokens.
        """


def generator(seed: int, section: str, *keys: int) -> np.random.Generator:
    """The PCG64 generator of one section, seeded from (seed, section, keys) alone."""
    digest = hashlib.sha256(section.encode()).digest()[:8]
    return np.random.Generator(np.random.PCG64([seed, int.from_bytes(digest, "little"), *keys]))


def contents(drawn: np.ndarray) -> array[int]:
    """An int32 array of ids as a sequence of Python ints, four bytes each."""
    return array("i", drawn.astype(np.int32, copy=False).tobytes())


def check_drawn(tokens: int) -> None:
    """Raise InputError when a workload would need more than `MOST_DRAWN` drawn ids."""
    if tokens > MOST_DRAWN:
        raise InputError(
            f"the prompts have {tokens:,} tokens to draw; at most {MOST_DRAWN:,} are; lower requests or "
            "lengths"
        )


class NumpyDraws:
    """One generator a section. Contents are drawn in the order of the requests."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def requests(
        self, count: int, prompts: Lengths, outputs: Lengths, vocab: int, keep: bool
    ) -> tuple[list[Ordered[int]], list[int]]:
        lengths = prompts.draw(count, generator(self._seed, "prompt_tokens"))
        output_lengths = outputs.draw(count, generator(self._seed, "output_tokens")).tolist()
        if not keep:
            return [range(length) for length in lengths.tolist()], output_lengths
        check_drawn(int(lengths.sum()))
        source = generator(self._seed, "contents")
        made: list[Ordered[int]] = [
            contents(source.integers(0, vocab, length, np.int32)) for length in lengths.tolist()
        ]
        return made, output_lengths


class PythonDraws:
    """One `random.Random` for all, for fixed and uniform lengths."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def requests(
        self, count: int, prompts: Lengths, outputs: Lengths, vocab: int, keep: bool
    ) -> tuple[list[Ordered[int]], list[int]]:
        draw = self._random
        made: list[Ordered[int]] = []
        total = 0
        for _ in range(count):
            length = self._length(prompts)
            total += length
            check_drawn(total)
            # the ids are drawn even when nobody reads them: the output lengths come after them
            ids = array("i", [draw.randrange(vocab) for _ in range(length)])
            made.append(ids if keep else range(length))
        return made, [self._length(outputs) for _ in range(count)]

    def _length(self, lengths: Lengths) -> int:
        if isinstance(lengths, Fixed):
            return lengths.tokens
        if isinstance(lengths, Uniform):
            return self._random.randint(lengths.low, lengths.high)
        raise InputError(
            f"draws 'python' take fixed and uniform lengths, not {type(lengths).__name__.lower()}; "
            "use draws 'numpy'"
        )


DRAWS: dict[str, type[NumpyDraws | PythonDraws]] = {"numpy": NumpyDraws, "python": PythonDraws}
