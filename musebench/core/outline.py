"""A forward's sizes without its contents: what a device that only counts asks for."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from musebench.core.batch import BatchLayout, StepBatch
from musebench.core.packing import Packed
from musebench.core.protocols import Forward
from musebench.core.sequence import SequenceTable

_EMPTY = np.empty(0, np.int32)


def _empty() -> np.ndarray:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class OutlinedBatch(StepBatch):
    """A batch whose buffer is empty. For each slice, in order, `queries` (its tokens) and `contexts` (tokens
    that its last one attends to, itself included), both int64 [sequences]."""

    queries: np.ndarray = field(default_factory=_empty)
    contexts: np.ndarray = field(default_factory=_empty)


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
    slots = row_slots = plan.decode_slots
    decodes = len(slots)
    contexts = np.empty(plan.slices, np.int64)
    np.add(table.computed[slots], 1, out=contexts[:decodes])
    queries = np.ones(plan.slices, np.int64)
    pairs = int(contexts[:decodes].sum())
    if plan.prefills:
        wanting = []
        for place, piece in enumerate(plan.prefills, start=decodes):
            slot = piece.sequence.slot
            end = int(table.computed[slot]) + piece.count
            queries[place], contexts[place] = piece.count, end
            pairs += piece.count * end - piece.count * (piece.count - 1) // 2
            if end == table.length[slot]:
                wanting.append(slot)
        if wanting:
            row_slots = np.concatenate([slots, np.array(wanting, np.int32)])
    rows, sequences, tokens = len(row_slots), plan.slices, plan.tokens
    layout = BatchLayout(
        max(tokens, forward.pad_tokens),
        max(sequences, forward.pad_sequences),
        max(rows, forward.pad_rows),
        decode=not plan.prefills,
    )
    batch = OutlinedBatch(
        layout=layout, buffer=_EMPTY, tokens=tokens, sequences=sequences, rows=rows,
        program=forward.program, context=int(contexts.max()), contexts_sum=pairs, generation=generation,
        edits=edits, queries=queries, contexts=contexts,
    )  # fmt: skip
    return Packed(batch, row_slots, table.length[row_slots])
