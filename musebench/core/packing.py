"""From a forward's slices to its packed buffer: tokens, positions, cells, and the logit rows it wants."""

from __future__ import annotations

from collections.abc import Sequence as Ordered

import numpy as np

from musebench.core.batch import BatchFields, BatchLayout, StepBatch
from musebench.core.plan import StepPlan
from musebench.core.protocols import Forward
from musebench.core.sequence import Sequence, SequenceTable
from musebench.core.table import NOWHERE


class Packed:
    """A packed forward of `plan`, and where its sampled tokens go: `slots` and `positions` int32 [R], in row
    order (empty where tokens have no place). `first` are the sequences whose prefills want a token;
    `together` is what a table notes of its decodes."""

    __slots__ = ("batch", "first", "plan", "positions", "slots", "together")

    def __init__(
        self,
        batch: StepBatch,
        plan: StepPlan,
        first: Ordered[Sequence] = (),
        slots: np.ndarray = NOWHERE,
        positions: np.ndarray = NOWHERE,
    ) -> None:
        self.batch = batch
        self.plan = plan
        self.first = first
        self.slots = slots
        self.positions = positions
        self.together = False


def pack(
    forward: Forward,
    table: SequenceTable,
    cells: np.ndarray,
    generation: int,
    edits: tuple[tuple[int, int, np.ndarray], ...] = (),
) -> Packed:
    """Pack the next tokens of a forward's slices, whose cells are `cells`, int32 [tokens], in plan order.

    Reads `table` and changes nothing in it. A slice wants a next token when it ends at the last token that
    its sequence has; that token's position is then the row's.

    Raises:
        ValueError: a slice that is empty or longer than what its sequence has left to compute, a decode of a
            sequence that has more or less than one token left, a sequence that is in the forward twice, or
            cells that do not match the tokens.
    """
    plan = forward.plan
    slots_d = plan.decode_slots
    decodes = len(slots_d)
    starts_d = table.computed[slots_d]
    tokens = plan.tokens
    if len(cells) != tokens:
        raise ValueError(f"{len(cells)} cells for {tokens} tokens")
    if decodes and (table.length[slots_d] - starts_d != 1).any():
        raise ValueError("a decode has not exactly one token left to compute")
    sequences = plan.slices
    slots = [*slots_d.tolist(), *(piece.sequence.slot for piece in plan.prefills)]
    if len(set(slots)) != sequences:
        raise ValueError("a sequence is in one forward twice")
    width = max(tokens, forward.pad_tokens)
    wanting = [
        index
        for index, piece in enumerate(plan.prefills)
        if piece.sequence.computed + piece.count == piece.sequence.length
    ]
    rows = decodes + len(wanting)
    padded_rows = max(rows, forward.pad_rows)
    row_slots = slots_d
    if wanting:
        extra = [plan.prefills[index].sequence.slot for index in wanting]
        row_slots = np.concatenate([slots_d, np.array(extra, np.int32)])
    sampled = bool(table.temperature[row_slots].any())
    layout = BatchLayout(
        width, max(sequences, forward.pad_sequences), padded_rows, sampled, decode=not plan.prefills
    )
    buffer = np.zeros(layout.words, np.int32)
    fields = layout.fields(buffer)

    fields.cells[:tokens] = cells
    fields.token_ids[:decodes] = table.tokens[slots_d, starts_d]
    fields.positions[:decodes] = starts_d
    fields.slots[:decodes] = slots_d
    fields.sequence_slots[:decodes] = slots_d
    if layout.decode:
        fields.starts[:] = np.arange(layout.sequences + 1, dtype=np.int32)
        fields.rows[:] = np.arange(padded_rows, dtype=np.int32)
    else:
        fields.starts[: decodes + 1] = np.arange(decodes + 1, dtype=np.int32)
        fields.rows[:decodes] = np.arange(decodes, dtype=np.int32)
        at = decodes
        ends = []
        for index, piece in enumerate(plan.prefills):
            slot, count = piece.sequence.slot, piece.count
            start = int(table.computed[slot])
            if not 1 <= count <= int(table.length[slot]) - start:
                raise ValueError(
                    f"a slice of {count} of the {piece.sequence.remaining} tokens of {piece.sequence}"
                )
            fields.token_ids[at : at + count] = table.tokens[slot, start : start + count]
            fields.positions[at : at + count] = np.arange(start, start + count, dtype=np.int32)
            fields.slots[at : at + count] = slot
            fields.sequence_slots[decodes + index] = slot
            at += count
            fields.starts[decodes + index + 1] = at
            ends.append(at - 1)
        fields.starts[sequences + 1 :] = at
        fields.rows[decodes:rows] = [ends[index] for index in wanting]
    fields.row_slots[:rows] = row_slots
    positions = table.length[row_slots]
    if sampled:
        _pack_sampling(fields, rows, row_slots, positions, table)
    real = fields.positions[:tokens]
    batch = StepBatch(
        layout=layout,
        buffer=buffer,
        tokens=tokens,
        sequences=sequences,
        rows=rows,
        program=forward.program,
        context=int(real.max()) + 1,
        contexts_sum=int(real.sum(dtype=np.int64)) + tokens,
        generation=generation,
        edits=edits,
    )
    first = [plan.prefills[index].sequence for index in wanting]
    return Packed(batch, plan, first, row_slots, positions)


def _pack_sampling(
    fields: BatchFields, rows: int, slots: np.ndarray, positions: np.ndarray, table: SequenceTable
) -> None:
    fields.temperature[:rows] = table.temperature[slots].view(np.int32)
    fields.top_p[:rows] = table.top_p[slots].view(np.int32)
    fields.top_k[:rows] = table.top_k[slots]
    seeds = table.seed[slots].view(np.uint64)
    fields.seed_low[:rows] = (seeds & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.int32)
    fields.seed_high[:rows] = (seeds >> np.uint64(32)).astype(np.uint32).view(np.int32)
    fields.sample_positions[:rows] = positions
