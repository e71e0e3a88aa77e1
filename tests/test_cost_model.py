"""The cost model: seconds grow with work, parts scale, and bulk equals single steps bit for bit."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musebench.backends.simulated.attended import attended, decode_cells_over
from musebench.backends.simulated.costs import ModelCosts, costs_for
from musebench.backends.simulated.explain import DEVICE, explain_step, step_bound
from musebench.backends.simulated.kernels import ProductCurve, ProductPoint, expected_experts
from musebench.backends.simulated.operations import PROGRAMS
from musebench.backends.simulated.profile import open_profile
from musebench.backends.simulated.shape import OutlinedShape, StepShape
from musebench.core.errors import UnsupportedError, UsageError
from musebench.core.table import Contexts
from musebench.models.shapes import shape

MODELS = st.sampled_from(["smollm2-135m", "llama-3.1-8b", "gemma-3-1b", "qwen3-30b-a3b", "gpt-oss-20b"])
DEVICES = st.sampled_from(["h200", "a100-80g", "gb10"])
NAMES = st.sampled_from(sorted(PROGRAMS))
CONTEXTS = st.lists(st.integers(1, 3000), min_size=1, max_size=40)


@cache
def costs(
    model: str = "llama-3.1-8b", device: str = "h100", devices: int = 1, weights: str = ""
) -> ModelCosts:
    return costs_for(shape(model).facts("bfloat16"), open_profile(device), devices, weights or None)


def decodes(contexts: list[int]) -> StepShape:
    return StepShape(np.ones(len(contexts), np.int64), np.array(contexts, np.int64), len(contexts))


def prefill(tokens: int, before: int = 0) -> StepShape:
    return StepShape(np.array([tokens], np.int64), np.array([before + tokens], np.int64), 1)


# -- bulk -----------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(MODELS, DEVICES, NAMES, CONTEXTS, st.integers(1, 60), st.integers(0, 8))
def test_a_stretch_of_decodes_equals_its_steps_to_the_last_bit(model, device, program, first, steps, padded):
    made = costs(model, device)
    bulk = made.decode_stretch(np.array(first, np.int64), steps, program, padded)
    single = [
        made.step(
            StepShape(
                np.ones(len(first), np.int64), np.array(first, np.int64) + step, len(first) + padded, padded
            ),
            program,
        )
        for step in range(steps)
    ]
    assert bulk.tolist() == single
    each = np.array(first, np.int64)
    contexts = Contexts(len(each), int(each.sum()), lambda: each)
    assert list(made.decodes(contexts, steps, program, padded)) == single


def test_a_stretch_of_no_steps_is_empty():
    assert costs("gemma-3-1b").decode_stretch(np.array([5, 600]), 0, "eager").tolist() == []


# -- attention ------------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 200)), min_size=1, max_size=8),
    st.sampled_from([None, 1, 7, 64, 1000]),
)
def test_attended_cells_are_those_of_a_walk_over_every_query(slices, window):
    queries = np.array([count for count, _ in slices], np.int64)
    contexts = queries + np.array([before for _, before in slices], np.int64)
    far = window or 10**9
    decode, prefills, cells, pairs = 0, 0, 0, 0
    for count, before in slices:
        reads = [
            set(range(max(0, position + 1 - far), position + 1)) for position in range(before, before + count)
        ]
        if count == 1:
            decode += len(reads[0])
            continue
        prefills += 1
        cells += len(set.union(*reads))
        pairs += sum(map(len, reads))
    seen = attended(queries, contexts, window)
    assert (seen.decode_cells, seen.prefills, seen.prefill_cells, seen.pairs) == (
        decode,
        prefills,
        cells,
        pairs,
    )
    single = np.array([end for count, end in zip(queries, contexts, strict=True) if count == 1], np.int64)
    longer = [(int(count), int(end)) for count, end in zip(queries, contexts, strict=True) if count > 1]
    decodes = Contexts(len(single), int(single.sum()), lambda: single)
    for made in (
        OutlinedShape(decodes, longer, int(queries.sum()), 1, 3),
        OutlinedShape(
            Contexts(0, 0, lambda: np.empty(0, np.int64)),
            list(zip(queries.tolist(), contexts.tolist(), strict=True)),
            int(queries.sum()),
            1,
            3,
        ),
    ):
        assert made.attended(window) == seen
        assert made.tokens == StepShape(queries, contexts, 1, 3).tokens
        assert sorted(made.contexts) == sorted(contexts)


@settings(max_examples=60)
@given(CONTEXTS, st.integers(1, 80), st.sampled_from([None, 1, 16, 512, 2999]))
def test_cells_over_a_stretch_are_the_sum_over_sequences(first, steps, window):
    most = window or 10**9
    expected = [sum(min(context + step, most) for context in first) for step in range(steps)]
    assert decode_cells_over(np.array(first, np.int64), steps, window).tolist() == expected


def test_beyond_its_window_a_sliding_layer_costs_no_more():
    sliding, full = costs("gpt-oss-20b"), costs("llama-3.1-8b")
    assert full.step(decodes([64_000]), "graph") > full.step(decodes([32_000]), "graph")
    grown = sliding.step(decodes([64_000]), "graph") - sliding.step(decodes([32_000]), "graph")
    layers = sum(window is None for window in sliding.facts.windows)
    rates = sliding.profile.attention_for(sliding.facts.head_dim)
    a_layer = 32_000 * sliding.cell_bytes / sliding.facts.layers / rates.decode_bandwidth
    assert 0 < layers < sliding.facts.layers
    assert grown == pytest.approx(layers * a_layer, rel=1e-6)


def test_grouped_heads_read_fewer_bytes_for_the_same_context():
    grouped, full = costs("qwen3-1.7b"), costs("smollm2-1.7b")
    assert grouped.facts.kv_heads < grouped.facts.heads
    assert full.facts.kv_heads == full.facts.heads
    by_name = {row.operation: row for row in explain_step(grouped, decodes([1000] * 8), "graph")}
    facts = grouped.facts
    assert by_name["decode attention"].bytes == pytest.approx(8000 * facts.cell_bytes)


# -- growth with work -------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(MODELS, DEVICES, NAMES, CONTEXTS, st.integers(1, 500))
def test_longer_contexts_never_take_less(model, device, program, contexts, more):
    made = costs(model, device)
    assert made.step(decodes([each + more for each in contexts]), program) >= made.step(
        decodes(contexts), program
    )


@settings(max_examples=60)
@given(MODELS, st.sampled_from(["h100", "a100-80g", "l4"]), NAMES, st.integers(1, 2000), st.integers(1, 2000))
def test_more_tokens_never_take_less_by_a_datasheet(model, device, program, tokens, more):
    made = costs(model, device)
    assert made.step(prefill(tokens + more), program) >= made.step(prefill(tokens), program)


@settings(max_examples=30)
@given(MODELS, CONTEXTS)
def test_padding_costs_and_only_rows_pay_for_the_vocabulary(model, contexts):
    made, count = costs(model), len(contexts)
    ones, held = np.ones(count, np.int64), np.array(contexts, np.int64)
    assert made.step(StepShape(ones, held, count + 8, 8), "graph") > made.step(decodes(contexts), "graph")
    without = made.step(StepShape(ones, held, 0), "graph")
    assert "vocabulary" not in {
        row.operation for row in explain_step(made, StepShape(ones, held, 0), "graph")
    }
    assert without < made.step(StepShape(ones, held, 1), "graph")


def test_no_step_beats_the_bytes_it_must_move():
    for device in ("h100", "a100-80g", "h200", "mi300x"):
        made = costs(device=device)
        facts = made.facts
        read = (
            facts.weight_bytes
            - facts.vocab * facts.hidden * facts.element_bytes
            + 64 * 1024 * made.cell_bytes
        )
        assert made.step(decodes([1024] * 64), "compiled graph") > read / made.profile.bandwidth


def test_prefill_is_bound_by_compute_and_decode_by_bandwidth():
    assert step_bound(explain_step(costs(), prefill(4096), "compiled graph")) == "compute"
    assert step_bound(explain_step(costs(), decodes([1024] * 32), "compiled graph")) == "bandwidth"
    assert step_bound(explain_step(costs("smollm2-135m"), decodes([64]), "eager")) == "launch"


def test_twice_the_bandwidth_and_rate_halve_what_is_not_fixed():
    curve = ProductCurve(0.85, 0.75, 1.5, 0.0)
    place = ("bfloat16", 64, 4096, 4096)
    slow, _ = curve.seconds(1e12, 1e14, 3e7, 2e9, place)
    fast, _ = curve.seconds(2e12, 2e14, 3e7, 2e9, place)
    assert slow == pytest.approx(2 * fast)


def test_an_infinite_sharpness_is_the_roofline():
    curve = ProductCurve(1.0, 1.0, math.inf, 0.0)
    assert curve.seconds(1e12, 1e14, 3e9, 2e9, ("bfloat16", 1, 1, 1)) == (3e-3, "bandwidth")
    assert curve.seconds(1e12, 1e14, 3e6, 2e12, ("bfloat16", 1, 1, 1)) == (2e-2, "compute")


def test_measured_products_are_met_exactly_and_correct_their_neighbours():
    points = tuple(
        ProductPoint(tokens, 4096, outputs, "bfloat16", seconds)
        for outputs, seconds in ((4096, 5e-5), (14336, 2e-4))
        for tokens in (1, 64)
    )
    plain, curve = ProductCurve(1.0, 1.0, 2.0, 0.0), ProductCurve(1.0, 1.0, 2.0, 0.0, points)

    def seconds(of: ProductCurve, tokens: int, outputs: int, dtype: str = "bfloat16") -> float:
        moved = 2.0 * (4096 * outputs + tokens * (4096 + outputs))
        return of.seconds(4e12, 7e14, moved, 2.0 * tokens * 4096 * outputs, (dtype, tokens, 4096, outputs))[0]

    for point in points:
        assert seconds(curve, point.tokens, point.outputs) == pytest.approx(point.seconds)
    ratios = [seconds(curve, tokens, 8192) / seconds(plain, tokens, 8192) for tokens in (1, 8, 64, 5000)]
    known = [point.seconds / seconds(plain, point.tokens, point.outputs) for point in points]
    assert all(min(known) <= ratio <= max(known) for ratio in ratios)
    assert seconds(curve, 8, 4096, "float16") == seconds(plain, 8, 4096, "float16")


# -- mixtures of experts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("experts", "chosen", "tokens"), [(8, 2, 3), (128, 8, 1), (128, 8, 40), (32, 4, 200)]
)
def test_expected_experts_agree_with_a_seeded_draw(experts, chosen, tokens):
    random = np.random.default_rng(5)
    drawn = [
        len(np.unique([random.choice(experts, chosen, replace=False) for _ in range(tokens)]))
        for _ in range(300)
    ]
    assert expected_experts(experts, chosen, tokens) == pytest.approx(np.mean(drawn), rel=0.03)


def test_one_token_reads_its_own_experts_and_a_wide_batch_all_of_them():
    assert expected_experts(128, 8, 1) == pytest.approx(8)
    assert expected_experts(128, 8, 5000) == pytest.approx(128)


def test_a_sparse_model_decodes_faster_than_a_dense_one_of_its_size_and_less_so_in_a_wider_batch():
    sparse, dense = costs("qwen3-30b-a3b"), costs("qwen3-32b")
    one, some = [
        sparse.step(decodes([64] * count), "compiled graph")
        / dense.step(decodes([64] * count), "compiled graph")
        for count in (1, 16)
    ]
    assert one < 0.35 < some < 1.0


# -- weights and devices ----------------------------------------------------------------------------------


def test_fewer_bytes_a_weight_read_faster_and_hold_less():
    full, half, quarter = costs(), costs(weights="float8"), costs(weights="int4")
    steps = [made.step(decodes([64]), "compiled graph") for made in (full, half, quarter)]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] < 2 * steps[1] < 2 * steps[0]
    ends = 2 * full.facts.vocab * full.facts.hidden
    assert half.weight_bytes == full.facts.parameters + ends
    assert quarter.weight_bytes < half.weight_bytes < full.weight_bytes


def test_devices_share_products_and_cells_and_pay_for_the_links():
    alone, two, four = (costs("llama-3.1-70b", devices=count) for count in (1, 2, 4))
    assert four.weight_bytes * 4 == pytest.approx(alone.weight_bytes, rel=1e-6)
    assert four.cell_bytes * 4 == two.cell_bytes * 2 == alone.cell_bytes
    seconds = [made.step(decodes([1024] * 8), "compiled graph") for made in (alone, two, four)]
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] < 4 * seconds[2]
    networks = [
        row for row in explain_step(four, decodes([1024] * 8), "compiled graph") if row.bound == "network"
    ]
    assert {row.operation for row in networks} == {"all-reduce", "gather of logits"}


def test_more_devices_than_kv_heads_hold_a_copy_of_one_each():
    assert costs("gemma-3-1b", devices=4).cell_bytes == costs("gemma-3-1b").cell_bytes


def test_what_a_device_cannot_do_is_said_in_one_line():
    facts = shape("llama-3.1-8b").facts
    with pytest.raises(UnsupportedError, match=r"t4 \(datasheet\).*no rate for bfloat16.*float16"):
        costs_for(facts("bfloat16"), open_profile("t4"))
    with pytest.raises(UnsupportedError, match="no links"):
        costs_for(facts("bfloat16"), open_profile("jetson-agx-orin"), 2)
    with pytest.raises(UsageError, match="3 devices cannot share the 32 heads"):
        costs_for(facts("bfloat16"), open_profile("h100"), 3)
    with pytest.raises(UsageError, match="did you mean 'float8'"):
        costs_for(facts("bfloat16"), open_profile("h100"), weights="flot8")
    with pytest.raises(UsageError, match="no dtype 'fp8' for cells"):
        costs_for(facts("bfloat16"), open_profile("h100"), cells="fp8")
    with pytest.raises(UsageError, match=r"no program 'grap'.*'graph'"):
        costs().step(decodes([1]), "grap")


# -- the host, growth, memory -----------------------------------------------------------------------------


def test_an_eager_launch_grows_with_layers_and_a_replay_does_not():
    small, large = costs("llama-3.2-1b"), costs("llama-3.1-8b")
    assert large.launch_seconds("eager") > 1.9 * small.launch_seconds("eager")
    assert large.launch_seconds("graph") == small.launch_seconds("graph") < small.launch_seconds("eager") / 10
    # A compiled layer has fewer kernels, and each takes its share of the call.
    assert small.launch_seconds("compiled") < 1.1 * small.launch_seconds("eager")


def test_operations_of_a_llama_layer_are_those_counted_in_transformers():
    """35 a layer (4 products, attention, 30 small ones), 51 with norms of q and k, 23 around them."""
    llama, qwen = costs("llama-3.2-1b").work, costs("qwen3-0.6b").work
    assert llama.launches(PROGRAMS["eager"]) == 16 * 35 + 23
    assert qwen.launches(PROGRAMS["eager"]) == 28 * 51 + 23


def test_every_step_has_a_host_term():
    for device in ("h200", "h100"):
        assert costs(device=device).host_seconds(1, 1) > 0.0


def test_the_copy_of_a_growth_is_linear_beyond_its_launches():
    made = costs()
    copies = made.profile.bandwidth * made.profile.copy_share
    assert made.copy_seconds(0) == 2 * 32 * made.profile.launch.eager_seconds
    large = made.copy_seconds(16 << 30)
    assert large == pytest.approx(2 * (16 << 30) / copies + made.profile.copy_seconds)


def test_activations_grow_with_tokens_and_logits_with_rows():
    made = costs()
    assert made.activation_bytes(2048, 256) > made.activation_bytes(1024, 256)
    assert made.activation_bytes(16, 4096) > 4096 * made.facts.vocab * 2
    assert made.graph_bytes(256) > made.graph_bytes(8)


# -- explanations -----------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(MODELS, DEVICES, NAMES, CONTEXTS, st.integers(0, 900))
def test_the_rows_of_an_explanation_add_up_to_the_step(model, device, program, contexts, tokens):
    made = costs(model, device)
    queries = [1] * len(contexts) + [tokens] * (tokens > 1)
    lengths = [*contexts, *([tokens] * (tokens > 1))]
    shape = StepShape(np.array(queries, np.int64), np.array(lengths, np.int64), len(queries))
    rows = explain_step(made, shape, program)
    assert sum(row.seconds for row in rows if row.side == DEVICE) == pytest.approx(made.step(shape, program))
    assert {row.bound for row in rows} <= {"compute", "bandwidth", "launch", "host", "network"}
    assert max(row.share for row in rows) <= 1.0
