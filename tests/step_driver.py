"""Drives a backend by hand, without engine, scheduler or pool: packs step batches over shuffled cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transformers
from tiny_models import as_model, tiny_module

from musebench.backends.torch_backend import TorchBackend
from musebench.backends.torch_options import TorchOptions
from musebench.core.batch import BatchLayout, StepBatch
from musebench.core.protocols import Backend, PoolBounds, StepOutput
from musebench.core.request import Sampling
from musebench.core.sampling import seed_words

transformers.logging.set_verbosity_error()

GREEDY = Sampling()
LLAMA = tiny_module("llama")
PROMPTS = [np.random.default_rng(5).integers(3, 199, length).tolist() for length in (1, 9, 30)]


@dataclass(frozen=True)
class Piece:
    """The tokens of one sequence in one step; `sampling` None leaves its last token without a row."""

    slot: int
    tokens: Sequence[int]
    first: int
    cells: Sequence[int]
    sampling: Sampling | None = GREEDY


def pack(
    pieces: Sequence[Piece], pad_tokens: int = 0, pad_rows: int = 0, decode: bool = False, edits: tuple = ()
) -> StepBatch:
    """One batch; `pad_tokens` are one padding sequence each, `pad_rows` point at token 0."""
    rows = [piece for piece in pieces if piece.sampling is not None]
    sampled = any(piece.sampling.temperature > 0 for piece in rows)
    tokens = sum(len(piece.tokens) for piece in pieces)
    layout = BatchLayout(tokens + pad_tokens, len(pieces) + pad_tokens, len(rows) + pad_rows, sampled, decode)
    buffer = np.zeros(layout.words, np.int32)
    fields = layout.fields(buffer)
    at = row = 0
    for index, piece in enumerate(pieces):
        end = at + len(piece.tokens)
        fields.token_ids[at:end] = piece.tokens
        fields.positions[at:end] = range(piece.first, piece.first + len(piece.tokens))
        fields.cells[at:end] = piece.cells
        fields.slots[at:end] = piece.slot
        fields.starts[index] = at
        fields.sequence_slots[index] = piece.slot
        if piece.sampling is not None:
            fields.rows[row], fields.row_slots[row] = end - 1, piece.slot
            if sampled:
                fields.temperature[row : row + 1].view(np.float32)[:] = piece.sampling.temperature
                fields.top_p[row : row + 1].view(np.float32)[:] = piece.sampling.top_p
                fields.top_k[row] = piece.sampling.top_k
                fields.seed_low[row], fields.seed_high[row] = seed_words(piece.sampling.seed)
                fields.sample_positions[row] = piece.first + len(piece.tokens)
            row += 1
        at = end
    fields.starts[len(pieces) :] = range(at, at + pad_tokens + 1)
    return StepBatch(layout, buffer, tokens, len(pieces), len(rows), edits=edits)


class Driver:
    """Keeps tokens and cells of sequences in slots 1, 2, ... and grows the storage when told to."""

    def __init__(self, backend: Backend, sessions: int, context: int, rows: int, seed: int = 0) -> None:
        backend.open(PoolBounds(sessions, context))
        self.backend = backend
        self.storage = backend.storage()
        self.storage.resize(rows, 0)
        self._random = np.random.default_rng(seed)
        self._free = list(self._random.permutation(np.arange(1, rows)))
        self.tokens: dict[int, list[int]] = {}
        self.cells: dict[int, list[int]] = {}
        self.computed: dict[int, int] = {}
        self.sampling: dict[int, Sampling] = {}

    def add(self, prompt: Iterable[int], sampling: Sampling = GREEDY) -> int:
        slot = len(self.tokens) + 1
        self.tokens[slot], self.cells[slot], self.computed[slot] = list(prompt), [], 0
        self.sampling[slot] = sampling
        return slot

    def grow(self, rows: int) -> None:
        before = self.storage.rows
        self.storage.resize(rows, before)
        self._free += list(self._random.permutation(np.arange(before, rows)))

    def piece(self, slot: int, most: int) -> Piece:
        """The next tokens of a sequence, at most `most`; the last one asks for a next token."""
        first = self.computed[slot]
        tokens = self.tokens[slot][first : first + most]
        self.cells[slot] += [self._free.pop() for _ in tokens]
        self.computed[slot] = end = first + len(tokens)
        wants = self.sampling[slot] if end == len(self.tokens[slot]) else None
        return Piece(slot, tokens, first, self.cells[slot][first:end], wants)

    def step(self, slots: Iterable[int], most: int = 7, pad: int = 0) -> StepOutput:
        """One eager forward over the next tokens of `slots`; appends what was sampled."""
        pieces = [self.piece(slot, most) for slot in slots]
        output = self.backend.forward(pack(pieces, pad_tokens=pad, pad_rows=pad))
        self.take(pieces, output)
        return output

    def take(self, pieces: Sequence[Piece], output: StepOutput) -> None:
        wanting = [piece.slot for piece in pieces if piece.sampling is not None]
        for slot, token in zip(wanting, output.wait().tolist(), strict=True):
            self.tokens[slot].append(token)

    def run(self, new_tokens: dict[int, int], most: int = 7, pad: int = 0) -> dict[int, list[int]]:
        """Step all sequences together until each has its new tokens; returns these."""
        lengths = {slot: len(self.tokens[slot]) + count for slot, count in new_tokens.items()}
        while going := [slot for slot, length in lengths.items() if len(self.tokens[slot]) < length]:
            self.step(going, most, pad)
        return {slot: self.tokens[slot][-count:] for slot, count in new_tokens.items()}


def llama_backend(dtype: str = "float32", options: TorchOptions | None = None) -> TorchBackend:
    """A backend on the CPU over a copy of `LLAMA`."""
    return TorchBackend(options or TorchOptions(), "cpu", as_model(LLAMA, dtype))


def llama_driver(rows: int = 200, **others: Any) -> Driver:
    return Driver(llama_backend(**others), sessions=6, context=100, rows=rows)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Rows that were never written may hold NaN, which equals nothing."""
    return torch.equal(one.view(torch.int32), other.view(torch.int32))
