"""Sampling: the hash, the reference in numpy, and the device's own against it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from musebench.backends import torch_sampling
from musebench.core import sampling as sampling_reference
from musebench.core.batch import BatchFields, BatchLayout
from musebench.core.request import Sampling
from musebench.core.sampling import choose, hashed, seed_words, uniform

SEEDS = st.integers(0, 2**63 - 1)
POSITIONS = st.integers(0, 2**31 - 1)
TEMPERATURES = st.one_of(st.just(0.0), st.floats(0.05, 4.0))
SAMPLINGS = st.builds(Sampling, TEMPERATURES, st.integers(0, 50), st.floats(0.01, 1.0), SEEDS)


def sampling_fields(rows: list[tuple[Sampling, int]]) -> BatchFields:
    """The sampling fields of a packed batch, as tensors."""
    layout = BatchLayout(0, 0, len(rows), sampled=True)
    buffer = np.zeros(layout.words, np.int32)
    fields = layout.fields(buffer)
    for row, (sampling, position) in enumerate(rows):
        fields.temperature[row : row + 1].view(np.float32)[:] = sampling.temperature
        fields.top_p[row : row + 1].view(np.float32)[:] = sampling.top_p
        fields.top_k[row] = sampling.top_k
        fields.seed_low[row], fields.seed_high[row] = seed_words(sampling.seed)
        fields.sample_positions[row] = position
    return layout.fields(torch.from_numpy(buffer))


def chosen(logits: np.ndarray, rows: list[tuple[Sampling, int]]) -> list[int]:
    return torch_sampling.choose(torch.from_numpy(logits), sampling_fields(rows)).tolist()


def test_the_hash_is_splitmix64():
    # The first outputs for this seed, as Rosetta Code's "Pseudo-random numbers/Splitmix64" lists them.
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [hashed(1234567, position) for position in range(4)] == expected


def test_random_numbers_fill_the_unit_interval_evenly():
    numbers = np.array([uniform(seed, position) for seed in range(40) for position in range(100)])
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    counts, _ = np.histogram(numbers, 20, (0.0, 1.0))
    chi_squared = ((counts - 200.0) ** 2 / 200.0).sum()
    assert chi_squared < 43.8  # 19 degrees of freedom, 0.1 %
    pairs = numbers.reshape(40, 100)
    assert abs(np.corrcoef(pairs[:-1].ravel(), pairs[1:].ravel())[0, 1]) < 0.06
    assert abs(np.corrcoef(pairs[:, :-1].ravel(), pairs[:, 1:].ravel())[0, 1]) < 0.06


@given(st.lists(st.tuples(SEEDS, POSITIONS), min_size=1, max_size=8))
def test_the_device_draws_the_same_random_numbers(draws):
    fields = sampling_fields([(Sampling(1.0, seed=seed), position) for seed, position in draws])
    made = torch_sampling.uniform(fields.seed_low, fields.seed_high, fields.sample_positions)
    assert made.tolist() == [uniform(seed, position) for seed, position in draws]


@given(SEEDS)
def test_seed_words_are_the_two_halves_of_a_seed(seed):
    low, high = seed_words(seed)
    assert (high << 32) | (low & 0xFFFFFFFF) == seed
    assert np.array([low, high], np.int64).astype(np.int32).tolist() == [low, high]


@settings(max_examples=60)
@given(
    hnp.arrays(
        np.float32, st.tuples(st.integers(1, 6), st.integers(2, 60)), elements=st.floats(-30, 30, width=32)
    ),
    st.data(),
)
def test_the_device_takes_the_same_tokens_as_the_reference(logits, data):
    rows = data.draw(st.lists(st.tuples(SAMPLINGS, POSITIONS), min_size=len(logits), max_size=len(logits)))
    expected = [
        choose(row, sampling, position) for row, (sampling, position) in zip(logits, rows, strict=True)
    ]
    assert chosen(logits, rows) == expected


def test_equal_logits_of_a_coarse_type_give_the_same_tokens_as_the_reference():
    logits = torch.randn(64, 500, generator=torch.Generator().manual_seed(1)).mul(3).bfloat16()
    rows = [(Sampling(0.8, 40, 0.9, seed), seed + 7) for seed in range(64)]
    expected = [choose(row.float().numpy(), *pair) for row, pair in zip(logits, rows, strict=True)]
    assert torch_sampling.choose(logits, sampling_fields(rows)).tolist() == expected


def test_a_row_does_not_depend_on_the_batch_it_is_in(monkeypatch):
    logits = np.random.default_rng(3).normal(0, 3, (9, 400)).astype(np.float32)
    rows = [(Sampling(1.1, 0 if row % 2 else 60, 0.95, row), 100 + row) for row in range(9)]
    together = chosen(logits, rows)
    assert len(set(together)) > 5
    assert [chosen(logits[row : row + 1], rows[row : row + 1])[0] for row in range(9)] == together
    other = logits.copy()
    other[1:] = -other[1:]
    assert chosen(other, rows)[0] == together[0]
    monkeypatch.setattr(torch_sampling, "MOST_LOGITS", 1000)
    assert chosen(logits, rows) == together, "rows are drawn in parts of two now"


def test_greedy_takes_the_lowest_id_among_the_largest():
    logits = np.array([[1.0, 5.0, 5.0, -1.0], [0.0, -0.0, 0.0, -2.0]], np.float32)
    greedy = (Sampling(), 0)
    assert chosen(logits, [greedy, greedy]) == [1, 0]
    assert torch_sampling.greedy(torch.from_numpy(logits))[0].tolist() == [1, 0]
    assert [choose(row, Sampling(), 0) for row in logits] == [1, 0]


def test_top_k_one_is_greedy_and_top_k_keeps_the_lowest_ids_of_a_tie():
    logits = np.array([0.0, 3.0, 3.0, 3.0], np.float32)
    assert {choose(logits, Sampling(5.0, 1, 1.0, seed), 0) for seed in range(50)} == {1}
    assert {choose(logits, Sampling(5.0, 2, 1.0, seed), 0) for seed in range(50)} == {1, 2}


def test_top_p_keeps_the_fewest_tokens_that_reach_it():
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05])).astype(np.float32)

    def drawn(top_p: float) -> set[int]:
        return {choose(logits, Sampling(1.0, 0, top_p, seed), 3) for seed in range(300)}

    assert drawn(0.45) == {0}
    assert drawn(0.6) == {0, 1}
    assert drawn(0.9) == {0, 1, 2}
    assert drawn(1.0) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("number", "token"), [(0.0, 0), (0.5 - 2**-53, 0), (0.5, 1), (1.0 - 2**-53, 1), (1.0, 1)]
)
def test_a_token_is_taken_from_the_start_of_its_share_to_before_its_end(monkeypatch, number, token):
    """A number that rounds up to 1 still takes a token that was kept."""
    logits = np.array([2.0, 2.0, -9.0], np.float32)
    sampling = Sampling(1.0, 2, 1.0, 0)
    monkeypatch.setattr(sampling_reference, "uniform", lambda seed, position: number)
    monkeypatch.setattr(torch_sampling, "uniform", lambda *words: torch.tensor([number], dtype=torch.float64))
    assert choose(logits, sampling, 0) == token
    assert chosen(logits[None], [(sampling, 0)]) == [token]


def test_draws_follow_the_probabilities():
    probabilities = np.array([0.5, 0.3, 0.15, 0.05])
    logits = np.log(probabilities).astype(np.float32)
    tokens = [choose(logits, Sampling(1.0, seed=9), position) for position in range(4000)]
    counts = np.bincount(tokens, minlength=4)
    chi_squared = ((counts - 4000 * probabilities) ** 2 / (4000 * probabilities)).sum()
    assert chi_squared < 16.3  # 3 degrees of freedom, 0.1 %


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_broken_logits_are_told_and_never_become_an_id_out_of_range(broken):
    logits = torch.zeros(3, 7)
    logits[1, 4] = broken
    logits[2, :3] = -math.inf  # some models rule tokens out so
    tokens, finite = torch_sampling.greedy(logits)
    assert finite.tolist() == [True, False, True]
    rows = [(Sampling(1.0, 3, 0.5, seed), 1) for seed in range(3)]
    for made in (tokens, torch_sampling.choose(logits, sampling_fields(rows))):
        assert bool(((made >= 0) & (made < 7)).all())


def test_a_row_without_any_finite_logit_is_told():
    assert torch_sampling.greedy(torch.full((1, 5), -math.inf))[1].tolist() == [False]


def test_margins_are_the_difference_of_the_two_largest():
    logits = torch.tensor([[1.0, 4.0, 2.5], [3.0, 3.0, 0.0]])
    assert torch_sampling.margins(logits).tolist() == [1.5, 0.0]


def test_no_rows_make_no_tokens():
    assert chosen(np.empty((0, 5), np.float32), []) == []
