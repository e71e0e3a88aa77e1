"""The op's reference in torch against the slow one in float64, over shuffled cells in poisoned rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from musebench.kernels import reference
from musebench.kernels.op import OPERATORS

NAMES = (
    "query", "key", "value", "key_rows", "value_rows", "cells", "positions", "slots", "starts",
    "sequence_slots", "table", "scale", "window", "softcap", "sinks", "decode",
)  # fmt: skip
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}


@dataclass(frozen=True)
class Shape:
    heads: int = 9
    kv_heads: int = 3
    key_dim: int = 16
    value_dim: int = 16
    window: int = 0
    softcap: float = 0.0
    sinks: bool = False
    dtype: torch.dtype = torch.float32


def arguments(
    shape: Shape, slices: list[tuple[int, int]], padding: int = 2, poison: float = math.nan, seed: int = 0,
    shuffled: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """The op's arguments for sequences of (tokens before, tokens in this step), padding behind.

    Every row that nobody may read holds `poison`, scratch among them; so do the padding's own inputs.
    """
    random = torch.Generator().manual_seed(seed)
    total = sum(before + count for before, count in slices)
    tokens = sum(count for _, count in slices) + padding
    decode = all(count == 1 for _, count in slices)
    order = torch.randperm(total + 4, generator=random) if shuffled else torch.arange(total + 4)
    free = (order + 1).int()

    def numbers(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=random, dtype=torch.float64).to(shape.dtype)

    key_rows = torch.full((total + 5, shape.kv_heads, shape.key_dim), poison, dtype=shape.dtype)
    value_rows = torch.full((total + 5, shape.kv_heads, shape.value_dim), poison, dtype=shape.dtype)
    table = torch.zeros(
        len(slices) + 1, 64 + max((sum(piece) for piece in slices), default=0), dtype=torch.int32
    )
    made: dict[str, Any] = {
        "query": numbers(tokens, shape.heads, shape.key_dim),
        "key": numbers(tokens, shape.kv_heads, shape.key_dim),
        "value": numbers(tokens, shape.kv_heads, shape.value_dim),
    }
    cells, positions, slots = (torch.zeros(tokens, dtype=torch.int32) for _ in range(3))
    sequences = len(slices) + (padding if decode else 0)
    sequence_slots = torch.zeros(sequences, dtype=torch.int32)
    starts = torch.zeros(sequences + 1, dtype=torch.int32)
    at = taken = 0
    for index, (before, count) in enumerate(slices):
        own = free[taken : taken + before + count]
        taken += before + count
        key_rows[own[:before].long()] = numbers(before, shape.kv_heads, shape.key_dim)
        value_rows[own[:before].long()] = numbers(before, shape.kv_heads, shape.value_dim)
        table[index + 1, : before + count] = own
        cells[at : at + count] = own[before:]
        positions[at : at + count] = torch.arange(before, before + count)
        slots[at : at + count] = sequence_slots[index] = index + 1
        starts[index + 1 :] = at = at + count
    if decode:
        starts = torch.arange(sequences + 1, dtype=torch.int32)
    for name in ("query", "key", "value"):
        made[name][at:] = poison
    return {
        **made, "key_rows": key_rows, "value_rows": value_rows, "cells": cells, "positions": positions,
        "slots": slots, "starts": starts, "sequence_slots": sequence_slots, "table": table,
        "scale": 0.3, "window": shape.window, "softcap": shape.softcap,
        "sinks": numbers(shape.heads) if shape.sinks else None, "decode": decode,
    }  # fmt: skip


def run(arguments: dict[str, Any], kernels: str = "reference") -> Tensor:
    return OPERATORS[kernels](*(arguments[name] for name in NAMES))


def copied(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value.clone() if isinstance(value, Tensor) else value for name, value in arguments.items()}


def check(shape: Shape, slices: list[tuple[int, int]], **others: Any) -> None:
    """The op equals the float64 reference, padding gets zeros, and the rows are written alike."""
    given_arguments = arguments(shape, slices, **others)
    apart = copied(given_arguments)
    expected = reference.reference_float64(*(apart[name] for name in NAMES))
    made = run(given_arguments)
    assert made.dtype == shape.dtype
    assert made.shape == expected.shape
    assert bool(expected.isfinite().all())
    torch.testing.assert_close(made.double(), expected, rtol=0, atol=TOLERANCE[shape.dtype])
    padding = given_arguments["cells"] == 0
    assert bool((made[padding] == 0).all())
    for rows in ("key_rows", "value_rows"):
        torch.testing.assert_close(given_arguments[rows], apart[rows], rtol=0, atol=0, equal_nan=True)


MIXED = [(5, 1), (0, 1), (0, 13), (7, 6), (30, 1)]


@pytest.mark.parametrize("size", [16, 64, 72, 256])
@pytest.mark.parametrize("features", [{}, {"window": 4}, {"softcap": 1.5}, {"sinks": True},
                                      {"window": 3, "softcap": 2.0, "sinks": True}])  # fmt: skip
@pytest.mark.parametrize("slices", [MIXED, [(5, 1), (0, 1), (17, 1)]], ids=["mixed", "decode"])
def test_the_op_equals_float64(size, features, slices):
    check(Shape(key_dim=size, value_dim=size, **features), slices)


@pytest.mark.parametrize(
    "shape", [Shape(4, 4), Shape(8, 1), Shape(9, 3, 24, 40), Shape(6, 2, 48, 16, sinks=True)]
)
def test_any_grouping_and_value_size_equals_float64(shape):
    check(shape, MIXED)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("features", [{}, {"softcap": 2.0, "sinks": True}])
def test_other_types_are_summed_in_float32_or_better(dtype, features):
    check(Shape(dtype=dtype, **features), MIXED)


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("features", [{}, {"window": 4, "softcap": 1.0, "sinks": True}])
def test_poison_where_nobody_may_read_reaches_nobody(poison, features):
    check(Shape(**features), MIXED, poison=poison)


def test_prompts_longer_than_a_block_equal_float64(monkeypatch):
    monkeypatch.setattr(reference, "BLOCK", 4)
    for window in (0, 3, 9):
        check(Shape(window=window), [(3, 11), (0, 9)])


def test_cells_in_one_run_give_what_shuffled_ones_do():
    check(Shape(), MIXED, shuffled=False)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6)), min_size=1, max_size=5),
    st.sampled_from(
        [Shape(2, 1, 8, 8), Shape(4, 2, 8, 12, window=3), Shape(2, 2, 8, 8, softcap=1.0, sinks=True)]
    ),
    st.integers(0, 3),
    st.integers(0, 1000),
)
def test_any_batch_equals_float64(slices, shape, padding, seed):
    check(shape, slices, padding=padding, seed=seed)


@pytest.mark.parametrize("which", ["key", "value"])
def test_a_broken_token_reaches_later_tokens_of_its_sequence_only(which):
    clean = arguments(Shape(), [(0, 6), (4, 3)])
    broken = copied(clean)
    broken[which][3] = math.nan
    expected, made = run(clean), run(broken)
    assert bool(made[3:6].isnan().all())
    torch.testing.assert_close(made[:3], expected[:3])
    torch.testing.assert_close(made[6:], expected[6:], rtol=0, atol=0)


def test_what_a_window_left_behind_may_be_broken():
    given_arguments = arguments(Shape(window=4), [(10, 1)])
    old = given_arguments["table"][1, :7].long()
    given_arguments["key_rows"][old] = math.nan
    given_arguments["value_rows"][old] = math.inf
    assert bool(run(given_arguments).isfinite().all())


def test_a_neighbours_content_does_not_change_a_bit():
    ours = arguments(Shape(key_dim=64, value_dim=64), [(40, 5), (9, 1), (3, 8)])
    other = copied(ours)
    mine = slice(0, 5)
    for name in ("query", "key", "value"):
        other[name][5:] = other[name][5:] * -3.0 + 1.0
    theirs = ours["table"][2:].unique().long()
    for name in ("key_rows", "value_rows"):
        other[name][theirs] = 100.0
    assert torch.equal(run(ours)[mine], run(other)[mine])


def test_padding_inside_of_a_slot_gets_zeros_and_disturbs_nobody():
    given_arguments = arguments(Shape(), [(2, 6)], padding=0)
    expected = run(copied(given_arguments))
    given_arguments["cells"][4:] = 0
    made = run(given_arguments)
    assert bool((made[4:] == 0).all())
    torch.testing.assert_close(made[:4], expected[:4])


def test_a_negative_cell_is_refused_rather_than_written_from_the_end():
    given_arguments = arguments(Shape(), [(2, 1)])
    given_arguments["cells"][0] = -1
    with pytest.raises((IndexError, RuntimeError)):
        run(given_arguments)


def test_both_operators_run_the_reference_on_a_cpu():
    given_arguments = arguments(Shape(), MIXED)
    assert torch.equal(run(copied(given_arguments), "triton"), run(given_arguments, "reference"))


@pytest.mark.parametrize("kernels", sorted(OPERATORS))
def test_torch_accepts_the_operators_declaration(kernels):
    given_arguments = arguments(Shape(4, 2, 8, 8), [(2, 3), (4, 1)], poison=0.0)
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(
        OPERATORS[kernels], tuple(given_arguments[name] for name in NAMES), test_utils=tests
    )


def test_torch_compile_sees_one_opaque_call_that_writes_the_rows():
    def step(query: Tensor, key_rows: Tensor, value_rows: Tensor) -> Tensor:
        changed = {**given_arguments, "query": query * 2, "key_rows": key_rows, "value_rows": value_rows}
        return run(changed) + 1

    given_arguments = arguments(Shape(4, 2, 8, 8), [(2, 3), (4, 1)])
    inputs = [given_arguments[name] for name in ("query", "key_rows", "value_rows")]
    eager, compiled = [value.clone() for value in inputs], [value.clone() for value in inputs]
    expected = step(*eager)
    made = torch.compile(step, backend="aot_eager", fullgraph=True)(*compiled)
    torch.testing.assert_close(made, expected)
    for after, wanted in zip(compiled, eager, strict=True):
        torch.testing.assert_close(after, wanted, rtol=0, atol=0, equal_nan=True)
