"""Inputs of `update_and_attend`, its output by definition, and what holds kernels against it, anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 6e-3}
"""Of the relative norm of the error. In 2 bytes the outputs' own rounding is 3e-4 and 2e-3 of it at most."""


@dataclass(frozen=True)
class Case:
    """Inputs of the op: `slices` has, for each sequence, the tokens it had before and those of this step."""

    slices: tuple[tuple[int, int], ...]
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    value_dim: int = 0  # as head_dim
    dtype: torch.dtype = torch.float32
    padding: int = 0
    padding_owned: bool = False  # by a sequence of slot 0, beside slices
    window: int = 0
    softcap: float = 0.0
    sinks: bool = False
    rotary: bool = False  # query and key come without it
    layout: str = "contiguous"  # of query, key and value
    spare_width: int = 5  # of the cell table, beyond the longest context
    seed: int = 0
    device: str = "cpu"

    @property
    def decode(self) -> bool:
        return all(count == 1 for _, count in self.slices)

    def arguments(self) -> dict[str, Any]:
        """Random inputs. Nothing is zero; all that must not be read, padding included, is NaN or infinite."""
        random = torch.Generator().manual_seed(self.seed)
        value_dim = self.value_dim or self.head_dim
        real = sum(count for _, count in self.slices)
        tokens = real + self.padding
        lengths = [before + count for before, count in self.slices]
        row_count = sum(lengths) + 7
        # In decode each padding token is a sequence of its own; else padding belongs to none.
        sequences = len(self.slices) + (self.padding if self.decode else 0)

        free = (torch.randperm(row_count - 1, generator=random) + 1).int()
        unowned = free[sum(lengths) :]
        slots = (torch.randperm(len(self.slices) + 2, generator=random)[: len(self.slices)] + 1).int()
        table = unowned[0].repeat(len(self.slices) + 3, max(lengths, default=1) + self.spare_width)
        cells, positions, token_slots = (torch.zeros(tokens, dtype=torch.int32) for _ in range(3))
        starts = torch.full((sequences + 1,), real, dtype=torch.int32)
        sequence_slots = torch.zeros(sequences, dtype=torch.int32)
        older = []
        token = taken = 0
        for index, (before, count) in enumerate(self.slices):
            owned = free[taken : taken + before + count]
            table[slots[index], : before + count] = owned
            step = slice(token, token + count)
            cells[step], token_slots[step] = owned[before:], slots[index]
            positions[step] = torch.arange(before, before + count, dtype=torch.int32)
            starts[index], sequence_slots[index] = token, slots[index]
            older.append(owned[:before])
            token, taken = token + count, taken + before + count
        if self.decode:
            starts = torch.arange(sequences + 1, dtype=torch.int32)
        elif self.padding_owned:
            starts = torch.cat([starts, torch.tensor([tokens], dtype=torch.int32)])
            sequence_slots = torch.cat([sequence_slots, torch.zeros(1, dtype=torch.int32)])

        old = torch.cat(older).long() if older else torch.zeros(0, dtype=torch.long)
        rows = []
        for width in (self.head_dim, value_dim):
            numbers = torch.randn(row_count, self.kv_heads, width, generator=random)
            kept = numbers[old]
            numbers[0::2], numbers[1::2] = float("nan"), float("inf")
            numbers[old] = kept
            rows.append(numbers.to(self.device, self.dtype))
        inputs = []
        for heads, width in ((self.heads, self.head_dim), (self.kv_heads, self.head_dim),
                             (self.kv_heads, value_dim)):  # fmt: skip
            numbers = torch.randn(tokens, heads, width, generator=random)
            numbers[real:] = float("nan")
            inputs.append(numbers.to(self.device, self.dtype))
        query, key, value = arranged(inputs, self.layout)
        sinks = None
        if self.sinks:
            sinks = torch.randn(self.heads, generator=random).to(self.device, self.dtype)
        step_tensors = {
            "cells": cells, "positions": positions, "slots": token_slots, "starts": starts,
            "sequence_slots": sequence_slots, "table": table,
        }  # fmt: skip
        return {
            "query": query, "key": key, "value": value, "key_rows": rows[0], "value_rows": rows[1],
            **{name: tensor.to(self.device) for name, tensor in step_tensors.items()},
            "scale": self.head_dim**-0.5, "window": self.window, "softcap": self.softcap, "sinks": sinks,
            "decode": self.decode, **self._angles(tokens),
        }  # fmt: skip

    def _angles(self, tokens: int) -> dict[str, Tensor]:
        if not self.rotary:
            return {}
        turns = torch.rand(tokens, self.head_dim // 2, generator=torch.Generator().manual_seed(self.seed))
        turns = torch.cat([turns, turns], 1) * 2 * torch.pi
        return {
            name: made.to(self.device, self.dtype)
            for name, made in (("cos", turns.cos()), ("sin", turns.sin()))
        }


def arranged(inputs: list[Tensor], layout: str) -> list[Tensor]:
    """The same numbers with other strides, such as slices of one fused tensor."""
    if layout == "fused":
        flat = torch.cat([tensor.flatten(1) for tensor in inputs], 1)
        parts = flat.split([tensor[0].numel() for tensor in inputs], 1)
        return [part.unflatten(1, tensor.shape[1:]) for part, tensor in zip(parts, inputs, strict=True)]
    if layout == "last axis first":
        return [tensor.transpose(0, 2).contiguous().transpose(0, 2) for tensor in inputs]
    if layout == "transposed":
        return [tensor.transpose(0, 1).contiguous().transpose(0, 1) for tensor in inputs]
    return inputs


def turned(heads: Tensor, arguments: dict[str, Any]) -> Tensor:
    """Query or key as attention gets it: where angles are given, its halves turned as complex numbers."""
    if "cos" not in arguments:
        return heads
    half = heads.shape[2] // 2
    angles = torch.complex(*(arguments[name].double()[:, None, :half] for name in ("cos", "sin")))
    made = torch.complex(heads[..., :half].double(), heads[..., half:].double()) * angles
    return torch.cat([made.real, made.imag], 2).to(heads.dtype)


def expected(arguments: dict[str, Any]) -> Tensor:
    """The op's output by its definition, float64, from the arguments as they are before the call."""
    keys, values = arguments["key_rows"].double(), arguments["value_rows"].double()
    cells = arguments["cells"].long()
    keys[cells], values[cells] = turned(arguments["key"], arguments).double(), arguments["value"].double()
    query = turned(arguments["query"], arguments).double()
    tokens, heads, _ = query.shape
    kv_heads = keys.shape[1]
    out = query.new_zeros(tokens, heads, values.shape[2])
    for token, (cell, position, slot) in enumerate(
        zip(*(arguments[name].tolist() for name in ("cells", "positions", "slots")), strict=True)
    ):
        if not cell:
            continue
        first = max(0, position + 1 - arguments["window"]) if arguments["window"] else 0
        attended = arguments["table"][slot, first : position + 1].long()
        grouped = query[token].view(kv_heads, heads // kv_heads, -1)
        logits = torch.einsum("kgd,nkd->kgn", grouped, keys[attended]) * arguments["scale"]
        if softcap := arguments["softcap"]:
            logits = softcap * torch.tanh(logits / softcap)
        logits = logits.view(heads, -1)
        if arguments["sinks"] is not None:
            logits = torch.cat([logits, arguments["sinks"].double()[:, None]], 1)
        weights = logits.softmax(1)[:, : len(attended)].view(kv_heads, heads // kv_heads, -1)
        out[token] = torch.einsum("kgn,nkd->kgd", weights, values[attended]).reshape(heads, -1)
    return out


@contextmanager
def poisoned_allocations() -> Iterator[None]:
    """Let `torch.empty` hand out NaN, so that an output nobody writes shows."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def same_bits(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors are equal with NaN equal to itself."""
    return torch.equal(first.contiguous().view(torch.uint8), second.contiguous().view(torch.uint8))


def check(case: Case, attend: Any = None) -> float:
    """Run the kernels on a case and hold output and rows against the definition; -> the relative error."""
    if attend is None:
        from musebench.kernels.triton_attend import update_and_attend as attend
    arguments = case.arguments()
    wanted = expected(arguments)
    rows_before = arguments["key_rows"].clone(), arguments["value_rows"].clone()
    with poisoned_allocations():
        out = attend(**arguments)
    assert out.shape == wanted.shape
    assert out.dtype == case.dtype
    assert out.is_contiguous()
    assert not torch.isnan(out).any(), "an output was not written, or met what it does not attend to"
    real = arguments["cells"] != 0
    assert not out[~real].any(), "padding's outputs are not zero"
    written = arguments["cells"][real].long()
    for rows, before, new in zip(
        (arguments["key_rows"], arguments["value_rows"]),
        rows_before,
        (turned(arguments["key"], arguments), arguments["value"]),
        strict=True,
    ):
        # The kernel turns keys in float32, and not in float64: once in a while they round differently.
        rounding = 4 * torch.finfo(case.dtype).eps if case.rotary else 0.0
        torch.testing.assert_close(rows[written], new[real], rtol=rounding, atol=rounding)
        before[written] = rows[written]
        assert same_bits(rows, before), "rows other than this step's cells changed, or those did not"
    error = float((out.double() - wanted).norm() / wanted.norm().clamp_min(1e-30))
    assert error < TOLERANCE[case.dtype], f"relative error {error:.2e} in {case}"
    return error


def decode_case(*contexts: int, **fields: Any) -> Case:
    """One new token for each sequence, after so many older ones."""
    return Case(tuple((context, 1) for context in contexts), **fields)
