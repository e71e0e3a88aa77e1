"""One forward's inputs as one packed int32 buffer: one copy to the device a forward.

The buffer is cut into named fields by a `BatchLayout`, which depends on the padded sizes alone: a captured
graph keeps one buffer for its layout and every replay refills it. `BatchLayout.fields` cuts a numpy array
and a torch tensor alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np


class BatchFields(NamedTuple):
    """Views into a packed buffer, all int32. T tokens, S sequences and R logit rows, padding included.

    Per token: `token_ids` [T] (`PENDING`, -1, means: the token sampled last for this slot, which the device
    keeps), `positions` [T], `cells` [T] (where its keys and values go), `slots` [T] (row of the cell table).
    Per sequence: `starts` [S + 1] (first token of each, and the end), `sequence_slots` [S].
    Per logit row: `rows` [R] (index of the token whose logits are wanted), `row_slots` [R] (whose next token
    it makes).
    Per logit row when the layout is sampled, else empty: `temperature` and `top_p` (float32 bits), `top_k`,
    `seed_low`, `seed_high` (two halves of a 63-bit seed), `sample_positions` (position of the new token).

    Padding has token 0, position 0, cell 0 and slot 0: it writes the scratch row, attends nothing, and no
    output of it is read. Only padding has cell 0.
    """

    token_ids: Any
    positions: Any
    cells: Any
    slots: Any
    starts: Any
    sequence_slots: Any
    rows: Any
    row_slots: Any
    temperature: Any
    top_k: Any
    top_p: Any
    seed_low: Any
    seed_high: Any
    sample_positions: Any


ALIGNED_WORDS = 4
"""Fields start at multiples of 16 bytes. Triton compiles a kernel again for every mix of arguments that are
aligned so and arguments that are not."""


def _aligned(size: int) -> int:
    return -(-size // ALIGNED_WORDS) * ALIGNED_WORDS


@dataclass(frozen=True)
class BatchLayout:
    """Padded sizes of one forward. `sampled` says whether any row wants more than the largest logit.

    `decode` says that every sequence has exactly one token, so that tokens, sequences and rows are the same
    axis (T = S = R).
    """

    tokens: int
    sequences: int
    rows: int
    sampled: bool = False
    decode: bool = False

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        drawn = self.rows if self.sampled else 0
        return (
            self.tokens, self.tokens, self.tokens, self.tokens,
            self.sequences + 1, self.sequences,
            self.rows, self.rows,
            drawn, drawn, drawn, drawn, drawn, drawn,
        )  # fmt: skip

    @cached_property
    def words(self) -> int:
        """Length of the packed buffer in int32 words."""
        return sum(map(_aligned, self.sizes))

    def fields(self, buffer: Any) -> BatchFields:
        """Cut a flat int32 array or tensor of `words` elements into views."""
        views, start = [], 0
        for size in self.sizes:
            views.append(buffer[start : start + size])
            start += _aligned(size)
        return BatchFields(*views)


@cache
def decode_layout(size: int) -> BatchLayout:
    """Of a forward in which `size` sequences decode one token each."""
    return BatchLayout(size, size, size, decode=True)


@dataclass(frozen=True)
class StepBatch:
    """One forward as an executor gets it: no requests, no sequences, only arrays.

    `tokens`, `sequences` and `rows` count what is real; the layout counts padding too. `program` names the
    program that the executor's planner chose ("" where there is one only). `context` is the longest context
    (tokens attended to, the newest included) of any sequence in it, `contexts_sum` the sum over tokens:
    what attention reads. `edits` are rows of the cell table that the device has not seen (after a fork):
    (slot, first position, cells int32), and stay empty otherwise because a step's own cells are in the
    buffer.
    """

    layout: BatchLayout
    buffer: np.ndarray
    tokens: int
    sequences: int
    rows: int
    program: str = ""
    context: int = 0
    contexts_sum: int = 0
    generation: int = 0
    edits: tuple[tuple[int, int, np.ndarray], ...] = ()

    @property
    def fields(self) -> BatchFields:
        return self.layout.fields(self.buffer)

    @property
    def padded_tokens(self) -> int:
        return self.layout.tokens - self.tokens
