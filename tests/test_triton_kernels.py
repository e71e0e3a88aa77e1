"""The Triton kernels of `update_and_attend` in Triton's interpreter, on the CPU, against float64.

Triton reads TRITON_INTERPRET when it is imported, for a whole process: without it these tests run in a
process of their own, started by the last one. tests/gpu checks larger cases on a GPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from attention_cases import TOLERANCE, Case, check, decode_case, same_bits
from torch import Tensor

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
interpreted = pytest.mark.skipif(not INTERPRETED, reason="runs in a process with TRITON_INTERPRET=1")


@pytest.fixture(scope="module", autouse=True)
def _numbers_in_the_interpreter() -> Iterator[None]:
    """Fill two gaps of Triton 3.6's interpreter: it takes numpy arrays of one element for integers, which
    numpy 2.4 refuses, and multiplies the bits of bfloat16 matrices as if they were integers.
    """
    if not INTERPRETED:
        yield
        return
    from triton.runtime import interpreter

    patch_tensor, create_dot = interpreter._patch_lang_tensor, interpreter.InterpreterBuilder.create_dot

    def patch_tensor_and_index(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    def widen(self: Any, matrix: Any) -> Any:
        return self.cast_impl(matrix, interpreter.tl.float32) if str(matrix.dtype) == "bf16" else matrix

    def create_dot_of_floats(self: Any, left: Any, right: Any, *rest: Any) -> Any:
        return create_dot(self, widen(self, left), widen(self, right), *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_lang_tensor", patch_tensor_and_index)
        patch.setattr(interpreter.InterpreterBuilder, "create_dot", create_dot_of_floats)
        yield


DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
RULES = pytest.mark.parametrize(
    "rules", [{"softcap": 2.0}, {"sinks": True}, {"softcap": 30.0, "sinks": True, "window": 20}], ids=str
)
SHAPES = pytest.mark.parametrize(
    "shape",
    [
        {"heads": 3, "kv_heads": 3, "head_dim": 72},
        {"heads": 9, "kv_heads": 3, "head_dim": 64},
        {"heads": 7, "kv_heads": 1, "head_dim": 80, "value_dim": 48},
        {"heads": 8, "kv_heads": 1, "head_dim": 96, "value_dim": 128},
        {"heads": 20, "kv_heads": 1, "head_dim": 256, "value_dim": 8},
    ],
    ids=str,
)
LAYOUTS = pytest.mark.parametrize("layout", ["fused", "transposed", "last axis first"])


@interpreted
@DTYPES
@pytest.mark.parametrize("contexts", [(0,), (1, 15, 16, 17), (63, 64, 65, 200)], ids=str)
def test_decode_of_any_context_is_right(contexts: tuple[int, ...], dtype: torch.dtype) -> None:
    check(decode_case(*contexts, dtype=dtype))


@interpreted
@SHAPES
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_decode_of_any_heads_is_right(shape: dict[str, int], dtype: torch.dtype) -> None:
    check(decode_case(70, 3, dtype=dtype, **shape))


@interpreted
@pytest.mark.parametrize("window", [1, 2, 50, 100, 101, 102, 1 << 40])
def test_decode_attends_to_its_window_only(window: int) -> None:
    check(decode_case(100, 0, 7, window=window))


@interpreted
@RULES
def test_decode_caps_logits_and_counts_sinks(rules: dict[str, Any]) -> None:
    check(decode_case(100, 0, 7, **rules))


@interpreted
@SHAPES
@DTYPES
@LAYOUTS
def test_decode_turns_query_and_key(layout: str, dtype: torch.dtype, shape: dict[str, int]) -> None:
    check(decode_case(0, 1, 40, 70, rotary=True, padding=2, layout=layout, dtype=dtype, **shape))


@interpreted
@LAYOUTS
def test_slices_turn_query_and_key(layout: str) -> None:
    check(Case(((0, 20), (9, 1), (17, 3)), rotary=True, padding=3, layout=layout))


@interpreted
@LAYOUTS
def test_decode_takes_inputs_of_any_strides(layout: str) -> None:
    check(decode_case(40, 0, dtype=torch.float16, layout=layout))


@interpreted
def test_padding_of_a_decode_gets_zeros_and_writes_nothing() -> None:
    check(decode_case(100, 5, padding=3))
    check(decode_case(padding=2, spare_width=100))


@interpreted
def test_one_split_needs_no_merge_and_agrees_with_many(monkeypatch: pytest.MonkeyPatch) -> None:
    from musebench.kernels import triton_attend

    case = decode_case(300, 20, 0, padding=1, sinks=True, window=250)
    check(case)
    config = replace(triton_attend.decode_config(case.dtype, case.head_dim, 1), programs=1)
    monkeypatch.setattr(triton_attend, "decode_config", lambda *_: config)
    check(case)


@interpreted
def test_a_short_context_in_a_wide_table_is_right() -> None:
    check(decode_case(3, 90, spare_width=4000))


@interpreted
def test_rows_may_be_parts_of_wider_rows() -> None:
    from musebench.kernels.triton_attend import update_and_attend

    def attend(key_rows: Tensor, value_rows: Tensor, **rest: Any) -> Tensor:
        both = torch.stack([key_rows, value_rows], 1)
        out = update_and_attend(key_rows=both[:, 0], value_rows=both[:, 1], **rest)
        key_rows.copy_(both[:, 0])
        value_rows.copy_(both[:, 1])
        return out

    check(decode_case(70, 5), attend)
    check(Case(((5, 20), (60, 1))), attend)


@interpreted
@DTYPES
@pytest.mark.parametrize(
    "slices", [((0, 1), (0, 2)), ((0, 70),), ((100, 40),), ((3, 33), (64, 64), (7, 1), (0, 5))], ids=str
)
def test_slices_of_any_length_are_right(slices: tuple[tuple[int, int], ...], dtype: torch.dtype) -> None:
    check(Case(slices, dtype=dtype))


@interpreted
@SHAPES
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_slices_of_any_heads_are_right(shape: dict[str, int], dtype: torch.dtype) -> None:
    check(Case(((30, 20), (9, 1), (0, 3)), dtype=dtype, **shape))


@interpreted
@pytest.mark.parametrize("window", [1, 2, 31, 64, 100, 150, 1 << 40])
def test_slices_attend_to_their_window_only(window: int) -> None:
    check(Case(((80, 60), (10, 1), (0, 9)), window=window))


@interpreted
@RULES
def test_slices_cap_logits_and_count_sinks(rules: dict[str, Any]) -> None:
    check(Case(((80, 9), (50, 1), (0, 40)), **rules))


@interpreted
@LAYOUTS
def test_slices_take_inputs_of_any_strides(layout: str) -> None:
    check(Case(((8, 9), (50, 1)), dtype=torch.float16, layout=layout))


@interpreted
def test_padding_beside_slices_gets_zeros_and_writes_nothing() -> None:
    from musebench.kernels.triton_attend import update_and_attend

    check(Case(((8, 9), (50, 1)), padding=40))
    check(Case(((8, 9),), padding=3))
    check(Case(((8, 9), (50, 1)), padding=40, padding_owned=True))
    check(Case(((8, 9), (50, 1)), padding=1, padding_owned=True))

    def attend_without_sequences(**arguments: Any) -> Tensor:
        none = torch.zeros(1, dtype=torch.int32)
        return update_and_attend(**{**arguments, "starts": none, "sequence_slots": none[1:], "decode": False})

    check(Case((), padding=3), attend_without_sequences)


@interpreted
def test_sequences_without_tokens_are_passed_over() -> None:
    check(Case(((0, 0), (8, 9), (20, 0), (20, 1), (4, 0)), padding=2))


@interpreted
def test_one_token_alone_is_right_in_both_kernels() -> None:
    from musebench.kernels.triton_attend import update_and_attend

    check(decode_case(90), lambda **arguments: update_and_attend(**{**arguments, "decode": False}))


@interpreted
@pytest.mark.parametrize("window", [0, 10])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_value_that_is_not_finite_reaches_only_tokens_that_attend_to_it(bad: float, window: int) -> None:
    from musebench.kernels.triton_attend import update_and_attend

    case = Case(((30, 12), (40, 1)), window=window)
    clean, spoilt = case.arguments(), case.arguments()
    spoilt["value"][7, 0, 3] = bad  # position 37
    cell = spoilt["table"][spoilt["sequence_slots"][0], 25]
    spoilt["value_rows"][cell, 1, 5] = bad
    out_clean, out_spoilt = update_and_attend(**clean), update_and_attend(**spoilt)
    met = torch.zeros_like(out_clean, dtype=torch.bool)
    met[7:12, :2, 3] = True
    met[: 25 + window - 30 if window else 12, 2:, 5] = True
    torch.testing.assert_close(out_spoilt[~met], out_clean[~met])
    assert torch.equal(out_spoilt[12], out_clean[12]), "another sequence changed"
    assert not torch.isfinite(out_spoilt[met]).any()


@interpreted
@pytest.mark.parametrize(
    ("slices", "others"),
    [
        (((150, 1), (90, 1), (40, 1)), ((150, 1), (40, 1), (90, 1))),
        (((150, 20), (90, 1), (40, 3)), ((150, 20), (40, 3), (90, 1))),
        (((150, 1), (90, 1), (40, 3)), ((150, 1), (43, 3), (87, 1))),
    ],
    ids=str,
)
def test_a_neighbour_changes_no_bit(slices: Any, others: Any) -> None:
    from musebench.kernels.triton_attend import update_and_attend

    case = Case(slices, dtype=torch.bfloat16)
    mine = slices[0][1]
    first, second = case.arguments(), replace(case, slices=others).arguments()
    assert torch.equal(first["query"][:mine], second["query"][:mine])
    second["query"][mine:] *= 3.0
    second["value"][mine:] = float("inf")
    assert same_bits(update_and_attend(**first)[:mine], update_and_attend(**second)[:mine])


@interpreted
def test_no_tokens_make_an_empty_output() -> None:
    check(Case(()))


def test_splits_fill_the_device_and_no_more() -> None:
    from musebench.kernels.triton_configs import MOST_SPLITS, decode_config, splits_of

    config = decode_config(torch.bfloat16, 128, 8)
    assert splits_of(config, 256 * 8, 1 << 20) == 1
    assert splits_of(config, 8, 1 << 20) * 8 >= 132
    assert splits_of(config, 1, 1 << 20) == MOST_SPLITS
    assert splits_of(config, 8, 1) == 1
    assert splits_of(config, 8, 4 * config.split_cells) == 4


@pytest.mark.parametrize("value_dim", [8, 48, 96, 128, 200, 256])
def test_a_merge_runs_on_a_power_of_two_of_warps(value_dim: int) -> None:
    from musebench.kernels.triton_configs import MOST_SPLITS, merge_warps

    assert {merge_warps(splits, value_dim) for splits in range(2, MOST_SPLITS + 1)} <= {1, 2, 4, 8}


def test_dtypes_without_kernels_are_refused_by_name() -> None:
    from musebench.core.errors import UnsupportedError
    from musebench.kernels.triton_attend import update_and_attend

    arguments = decode_case(3, dtype=torch.float64).arguments()
    with pytest.raises(UnsupportedError, match=r"torch\.float64"):
        update_and_attend(**arguments)
    arguments = decode_case(3).arguments() | {"query": torch.ones(1, 4, 16, dtype=torch.float16)}
    with pytest.raises(UnsupportedError, match=r"torch\.float16, torch\.float32"):
        update_and_attend(**arguments)


@pytest.mark.skipif(INTERPRETED, reason="this process interprets already")
def test_everything_above_in_the_interpreter() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__],
        env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
