"""The Triton kernels of `update_and_attend` on a GPU, against float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from attention_cases import Case, check, decode_case, same_bits

from musebench.kernels.triton_attend import update_and_attend

TOLERANCE = {torch.float32: 5e-6, torch.float16: 5e-4, torch.bfloat16: 4e-3}
"""Of the relative norm of the error: the outputs' rounding, and that of the softmax's weights."""

DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
HEADS = pytest.mark.parametrize(
    "heads",
    [
        (32, 8, 128), (32, 8, 64), (9, 3, 64), (14, 2, 64), (8, 8, 72), (4, 1, 80), (24, 8, 96), (8, 4, 256),
        (6, 2, 16), (4, 4, 32), (16, 1, 64),
    ],
    ids=str,
)  # fmt: skip
RULES = pytest.mark.parametrize(
    "rules",
    [
        {"window": 1}, {"window": 128}, {"window": 1000}, {"softcap": 50.0}, {"sinks": True},
        {"window": 100, "softcap": 20.0, "sinks": True}, {"value_dim": 128}, {"value_dim": 40},
        {"layout": "fused"}, {"layout": "transposed"}, {"spare_width": 30_000},
    ],
    ids=str,
)  # fmt: skip
CONTEXTS = (0, 1, 15, 16, 17, 63, 64, 65, 1000, 4097)
SLICES = ((0, 300), (500, 129), (1000, 1), (0, 1), (3, 2), (64, 64), (0, 0), (2000, 1))


def held(case: Case) -> None:
    error = check(replace(case, device="cuda"))
    assert error < TOLERANCE[case.dtype]


def shape(heads: tuple[int, int, int]) -> dict[str, int]:
    return dict(zip(("heads", "kv_heads", "head_dim"), heads, strict=True))


@DTYPES
@HEADS
def test_decode_is_right(heads: tuple[int, int, int], dtype: torch.dtype) -> None:
    held(decode_case(*CONTEXTS, padding=3, dtype=dtype, **shape(heads)))
    held(decode_case(3000, dtype=dtype, **shape(heads)))


@DTYPES
@HEADS
def test_slices_are_right(heads: tuple[int, int, int], dtype: torch.dtype) -> None:
    held(Case(SLICES, padding=30, dtype=dtype, **shape(heads)))
    held(Case(((200, 150),), padding=5, padding_owned=True, dtype=dtype, **shape(heads)))


@DTYPES
@RULES
def test_rules_and_layouts_are_kept(rules: dict[str, Any], dtype: torch.dtype) -> None:
    held(decode_case(*CONTEXTS, padding=1, dtype=dtype, **{**shape((12, 4, 64)), **rules}))
    held(Case(SLICES, padding=1, dtype=dtype, **{**shape((12, 4, 64)), **rules}))


@pytest.mark.parametrize(
    ("sequences", "heads"),
    [(100, (4, 2, 16)), (1500, (4, 2, 16)), (40, (32, 8, 128)), (90, (9, 3, 64))],
    ids=str,
)
def test_many_sequences_are_right(sequences: int, heads: tuple[int, int, int]) -> None:
    fields = {"dtype": torch.bfloat16, **shape(heads)}
    held(decode_case(*(7 * index % 290 for index in range(sequences)), **fields))
    held(Case(tuple((index % 70, 1 + index % 7 // 6) for index in range(sequences)), **fields))


def test_a_long_slice_is_right() -> None:
    held(Case(((100, 2100),), dtype=torch.bfloat16, **shape((32, 8, 64))))


def test_a_group_of_many_heads_is_right() -> None:
    held(decode_case(*CONTEXTS, dtype=torch.bfloat16, **shape((71, 1, 64))))
    held(Case(SLICES, dtype=torch.bfloat16, **shape((71, 1, 64))))


@DTYPES
def test_a_captured_graph_serves_other_sequences_of_its_shapes(dtype: torch.dtype) -> None:
    case = decode_case(1000, 64, 5, 0, dtype=dtype, **shape((32, 8, 128)))
    held(case)  # compiles
    inputs = replace(case, device="cuda").arguments()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = update_and_attend(**inputs)

    def replayed(**arguments: Any) -> torch.Tensor:
        for name, given in arguments.items():
            if isinstance(given, torch.Tensor):
                inputs[name].copy_(given)
        out.fill_(float("nan"))
        graph.replay()
        for name in ("key_rows", "value_rows"):
            arguments[name].copy_(inputs[name])
        return out.clone()

    for contexts in ((1000, 64, 5, 0), (20, 900, 1, 148), (500, 500, 69, 0)):
        other = replace(decode_case(*contexts, dtype=dtype, **shape((32, 8, 128))), device="cuda")
        other = replace(other, spare_width=1005 - max(contexts))
        check(other, replayed)
        eager = other.arguments()
        assert same_bits(update_and_attend(**eager), replayed(**other.arguments()))


@DTYPES
@pytest.mark.parametrize(
    ("slices", "others"),
    [
        (((1500, 1), (90, 1), (40, 1)), ((1500, 1), (40, 1), (90, 1))),
        (((1500, 70), (90, 1), (40, 3)), ((1500, 70), (40, 3), (90, 1))),
        (((1500, 1), (90, 1), (40, 3)), ((1500, 1), (43, 3), (87, 1))),
    ],
    ids=str,
)
def test_a_neighbour_changes_no_bit(slices: Any, others: Any, dtype: torch.dtype) -> None:
    case = Case(slices, dtype=dtype, device="cuda", **shape((32, 8, 128)))
    mine = slices[0][1]
    first, second = case.arguments(), replace(case, slices=others).arguments()
    assert torch.equal(first["query"][:mine], second["query"][:mine])
    second["query"][mine:] *= 3.0
    second["value"][mine:] = float("inf")
    assert same_bits(update_and_attend(**first)[:mine], update_and_attend(**second)[:mine])


@pytest.mark.parametrize("window", [0, 100])
def test_a_value_that_is_not_finite_reaches_only_tokens_that_attend_to_it(window: int) -> None:
    case = Case(((300, 120), (40, 1)), window=window, device="cuda", dtype=torch.bfloat16)
    clean, spoilt = case.arguments(), case.arguments()
    spoilt["value"][70, 0, 3] = float("nan")
    spoilt["value_rows"][spoilt["table"][spoilt["sequence_slots"][0], 250], 1, 5] = float("inf")
    out_clean, out_spoilt = update_and_attend(**clean), update_and_attend(**spoilt)
    met = torch.zeros_like(out_clean, dtype=torch.bool)
    met[70:120, :2, 3] = True
    met[: 250 + window - 300 if window else 120, 2:, 5] = True
    torch.testing.assert_close(out_spoilt[~met], out_clean[~met], atol=5e-3, rtol=0)
    assert torch.equal(out_spoilt[120], out_clean[120]), "another sequence changed"
    assert not torch.isfinite(out_spoilt[met]).any()


def test_an_address_beyond_two_to_the_31_is_right() -> None:
    case = decode_case(50, 70, dtype=torch.bfloat16, device="cuda", **shape((32, 8, 128)))
    inputs = case.arguments()
    shift = (1 << 31) // 1024 + 5
    far = {name: inputs[name] for name in ("key_rows", "value_rows")}
    near = {**inputs, **{name: rows.clone() for name, rows in far.items()}}
    for name, rows in far.items():
        moved = rows.new_full((shift + len(rows), *rows.shape[1:]), float("nan"))
        moved[shift:] = rows
        inputs[name] = moved
    inputs["cells"], inputs["table"] = inputs["cells"] + shift, inputs["table"] + shift
    assert same_bits(update_and_attend(**inputs), update_and_attend(**near))
