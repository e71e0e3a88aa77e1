"""A forward's sizes without its contents: what a device that only counts asks for."""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from typing import Any

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

    def __init__(self, decodes: Contexts, prefills: Ordered[tuple[int, int]], **sizes: Any) -> None:
        self.__dict__.update(sizes, decodes=decodes, prefills=prefills, buffer=_EMPTY)


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
    rows, sequences, tokens = decodes.decodes + len(first), plan.slices, plan.tokens
    layout = BatchLayout(
        max(tokens, forward.pad_tokens),
        max(sequences, forward.pad_sequences),
        max(rows, forward.pad_rows),
        decode=not prefills,
    )
    batch = OutlinedBatch(
        decodes, prefills, layout=layout, tokens=tokens, sequences=sequences, rows=rows,
        program=forward.program, contexts_sum=pairs, generation=generation, edits=edits,
    )  # fmt: skip
    return Packed(batch, plan, first, *table.places(plan, first))
