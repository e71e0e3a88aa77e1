"""Looks at a batch on the host before the device uses its numbers as addresses.

On the device an index of -1 or one too many reads or writes a row that is somebody's. Here it is an error
that names the field, the place and the value. All checks together cost some twenty microseconds a step.
"""

from __future__ import annotations

import numpy as np

from musebench.core.batch import StepBatch
from musebench.core.sequence import PENDING


def check_batch(batch: StepBatch, slots: int, width: int, rows: int, vocabulary: int) -> None:
    """Hold every index of `batch` against `slots` (of sessions, scratch left out), `width` of the cell table,
    `rows` of the storage and the size of the vocabulary.

    Raises:
        ValueError: an index out of its range, or a token that is neither padding nor owned by a slot.
    """
    if batch.buffer.dtype != np.int32 or batch.buffer.shape != (batch.layout.words,):
        raise ValueError(
            f"a buffer {batch.buffer.dtype} {batch.buffer.shape} was packed for int32 ({batch.layout.words},)"
        )
    fields, layout = batch.fields, batch.layout
    _check("token id", fields.token_ids, vocabulary, lowest=PENDING)
    _check("position", fields.positions, width)
    _check("cell", fields.cells, rows)
    _check("slot", fields.slots, slots + 1)
    _check("sequence slot", fields.sequence_slots, slots + 1)
    _check("start", fields.starts, layout.tokens + 1)
    _check("row", fields.rows, layout.tokens)
    _check("row slot", fields.row_slots, slots + 1)
    real = fields.slots != 0
    if not np.array_equal(fields.cells != 0, real):
        at = int(((fields.cells != 0) != real).argmax())
        raise ValueError(
            f"token {at} has slot {fields.slots[at]} and cell {fields.cells[at]}: padding has neither, all "
            "other tokens have both"
        )
    if (np.diff(fields.starts) < 0).any():
        raise ValueError("the first tokens of sequences fall")
    for slot, first, cells in batch.edits:
        if not 1 <= slot <= slots or first < 0 or first + len(cells) > width:
            raise ValueError(f"an edit of slot {slot}, positions {first} to {first + len(cells)}, is outside")
        _check("edited cell", np.ascontiguousarray(cells, np.int32), rows, lowest=1)


def _check(what: str, values: np.ndarray, end: int, lowest: int = 0) -> None:
    """lowest <= values < end, in one pass: as unsigned numbers, those below `lowest` are large."""
    if not values.size:
        return
    shifted = values if not lowest else values - np.int32(lowest)
    if int(shifted.view(np.uint32).max()) >= end - lowest:
        at = int(((values < lowest) | (values >= end)).argmax())
        raise ValueError(f"{what} {at} is {values[at]}; {lowest} to {end - 1} is wanted")
