"""A forward's sizes without its contents: what a device that only counts asks for."""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from functools import cached_property

import numpy as np

from musebench.core.batch import BatchLayout, StepBatch
from musebench.core.packing import Packed
from musebench.core.protocols import Forward
from musebench.core.sequence import SequenceTable
from musebench.core.table import Contexts

_EMPTY = np.empty(0, np.int32)
_NOBODY = Contexts(0, 0, lambda: np.empty(0, np.int64))


class OutlinedBatch(StepBatch):
    """A batch whose buffer is empty: the contexts of its decodes, and of each prefill slice, in order, its
    tokens and the tokens that its last one attends to, itself included."""

    decodes: Contexts
    prefills: Ordered[tuple[int, int]]
    forward: Forward

    def __init__(
        self,
        forward: Forward,
        decodes: Contexts,
        prefills: Ordered[tuple[int, int]],
        rows: int,
        contexts_sum: int,
        generation: int,
        edits: tuple[tuple[int, int, np.ndarray], ...],
    ) -> None:
        plan = forward.plan
        self.__dict__.update(
            forward=forward, decodes=decodes, prefills=prefills, buffer=_EMPTY, tokens=plan.tokens,
            sequences=plan.slices, rows=rows, program=forward.program, contexts_sum=contexts_sum,
            generation=generation, edits=edits,
        )  # fmt: skip

    @cached_property
    def layout(self) -> BatchLayout:  # few ask for it
        forward = self.forward
        return BatchLayout(
            max(self.tokens, forward.pad_tokens),
            max(self.sequences, forward.pad_sequences),
            self.padded_rows,
            decode=not self.prefills,
        )

    @property
    def padded_tokens(self) -> int:
        return self.forward.padded_tokens

    @property
    def padded_rows(self) -> int:
        """Logit rows, padding included."""
        return max(self.rows, self.forward.pad_rows)


def outline(
    forward: Forward,
    table: SequenceTable,
    cells: np.ndarray,
    generation: int,
    edits: tuple[tuple[int, int, np.ndarray], ...] = (),
) -> Packed:
    """As `musebench.core.packing.pack`, with the same sizes and the same places for the sampled tokens.

    The plan has been checked by the engine, so what `pack` refuses is not looked for again.
    """
    plan = forward.plan
    decodes = table.contexts(plan) if plan.decodes else _NOBODY
    pairs, prefills, first = decodes.total, [], []
    for piece in plan.prefills:
        sequence, count = piece.sequence, piece.count
        end = sequence.computed + count
        prefills.append((count, end))
        pairs += count * end - count * (count - 1) // 2
        if end == sequence.length:
            first.append(sequence)
    rows = decodes.decodes + len(first)
    batch = OutlinedBatch(forward, decodes, prefills, rows, pairs, generation, edits)
    return Packed(batch, plan, first, *table.places(plan, first))
