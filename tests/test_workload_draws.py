"""Length distributions, arrival processes and seeded draws: bounds, moments, and the same again."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musebench.core.errors import InputError
from musebench.workload.arrivals import AtOnce, Constant, Gamma, Poisson, Recorded, Times
from musebench.workload.draws import NumpyDraws, PythonDraws, generator
from musebench.workload.lengths import Empirical, Fixed, LogNormal, Uniform, Zipf

MANY = 40_000


def rng(seed: int = 0) -> np.random.Generator:
    return generator(seed, "test")


def pairs(fewest: int = 0, most: int = 5000):
    return st.tuples(st.integers(fewest, most), st.integers(fewest, most)).map(sorted)


LENGTHS = st.one_of(
    st.integers(0, 5000).map(Fixed),
    pairs().map(lambda p: Uniform(*p)),
    st.builds(
        lambda median, sigma, bounds: LogNormal(median, sigma, *bounds),
        st.floats(0.01, 1e6), st.floats(0, 10), pairs(),
    ),
    st.builds(
        lambda exponent, bounds: Zipf(exponent, max=bounds[1], min=bounds[0]),
        st.floats(0, 100), pairs(1),
    ),
    st.lists(st.integers(0, 5000), min_size=1).map(lambda values: Empirical(tuple(values))),
    st.lists(st.tuples(st.integers(0, 50), st.floats(0.001, 1e3)), min_size=1).map(
        lambda rows: Empirical(tuple(v for v, _ in rows), tuple(w for _, w in rows))
    ),
)  # fmt: skip

PROCESSES = st.one_of(
    st.just(AtOnce()),
    st.floats(1e-9, 1e12).map(Constant),
    st.floats(1e-9, 1e12).map(Poisson),
    st.builds(Gamma, st.floats(1e-9, 1e12), st.floats(0.01, 100)),
)


@given(LENGTHS, st.integers(0, 300), st.integers(0, 2**40))
def test_lengths_are_whole_within_bounds_and_repeat(lengths, count, seed):
    drawn = lengths.draw(count, rng(seed))
    low, high = lengths.bounds
    assert drawn.dtype == np.int64
    assert drawn.shape == (count,)
    assert ((drawn >= low) & (drawn <= high)).all()
    assert (drawn == lengths.draw(count, rng(seed))).all()


def test_uniform_reaches_both_ends_evenly():
    drawn = Uniform(3, 6).draw(MANY, rng())
    counts = np.bincount(drawn)[3:]
    assert counts.shape == (4,)
    assert np.abs(counts / MANY - 0.25).max() < 0.01


def test_lognormal_has_its_median_and_spread():
    drawn = LogNormal(1000.0, 0.5).draw(MANY, rng())
    assert np.median(drawn) == pytest.approx(1000, rel=0.02)
    assert np.log(drawn).std() == pytest.approx(0.5, rel=0.02)
    assert drawn.mean() == pytest.approx(1000 * np.exp(0.125), rel=0.02)


def test_lognormal_clamps_instead_of_drawing_again():
    inside = LogNormal(100.0, 1.0).draw(500, rng())
    clamped = LogNormal(100.0, 1.0, 50, 200).draw(500, rng())
    assert (clamped == np.clip(inside, 50, 200)).all()


def test_lognormal_without_spread_is_its_median():
    assert set(LogNormal(7.4, 0.0).draw(50, rng())) == {7}


@pytest.mark.parametrize(("exponent", "low", "high"), [(0.0, 1, 10), (1.0, 1, 10), (1.5, 5, 60)])
def test_zipf_probabilities_follow_the_power_law(exponent, low, high):
    numbers = np.arange(low, high + 1)
    wanted = numbers**-exponent / (numbers**-exponent).sum()
    counts = np.bincount(Zipf(exponent, high, low).draw(MANY, rng()), minlength=high + 1)[low:]
    assert np.abs(counts / MANY - wanted).max() < 0.01


def test_empirical_weights_are_shares_and_zero_never_comes():
    drawn = Empirical((5, 7, 9), (3.0, 1.0, 0.0)).draw(MANY, rng())
    assert set(drawn) == {5, 7}
    assert (drawn == 5).mean() == pytest.approx(0.75, abs=0.01)


@given(PROCESSES, st.integers(0, 300), st.integers(0, 2**40))
def test_processes_start_at_zero_never_go_back_and_repeat(process, count, seed):
    times = process.times(count, rng(seed), None)
    assert times.shape == (count,)
    assert np.isfinite(times).all()
    assert (np.diff(times) >= 0).all()
    assert not count or times[0] == 0
    assert (times == process.times(count, rng(seed), None)).all()


@pytest.mark.parametrize(
    ("process", "rate", "cv"),
    [(Constant(4), 4, 0), (Poisson(4), 4, 1), (Gamma(4, 3), 4, 3), (Gamma(0.5, 0.3), 0.5, 0.3)],
)
def test_gaps_have_the_rate_and_variation_that_was_asked_for(process, rate, cv):
    gaps = np.diff(process.times(MANY, rng(), None))
    assert gaps.mean() == pytest.approx(1 / rate, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05, abs=1e-6)


def test_given_times_must_be_as_many_as_the_requests():
    assert Times((0.0, 2.0, 1.0)).times(3, rng(), None).tolist() == [0.0, 2.0, 1.0]
    with pytest.raises(InputError, match="2 times for 3 requests"):
        Times((0.0, 1.0)).times(3, rng(), None)


RECORDED = np.array([0.0, 1.0, 1.0, 4.0])


def test_recorded_times_are_kept_sped_up_or_scaled_to_a_rate():
    assert Recorded().times(4, rng(), RECORDED).tolist() == RECORDED.tolist()
    assert Recorded(speedup=2).times(4, rng(), RECORDED).tolist() == [0, 0.5, 0.5, 2]
    scaled = Recorded(rate=6).times(4, rng(), RECORDED)
    assert 3 / scaled[-1] == pytest.approx(6)
    assert scaled / scaled[-1] == pytest.approx(RECORDED / 4)


def test_recorded_times_that_have_no_rate_are_refused():
    with pytest.raises(InputError, match="no rate to scale"):
        Recorded(rate=6).times(3, rng(), np.zeros(3))
    with pytest.raises(InputError, match="use at_once"):
        Recorded().times(3, rng(), None)
    with pytest.raises(InputError, match="exclude each other"):
        Recorded(speedup=1.0, rate=1.0)
    with pytest.raises(InputError, match="too large"):
        Recorded(speedup=1e-300).times(2, rng(), np.array([0.0, 1e200]))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Uniform(5, 4), "low 5 is more than high 4"),
        (lambda: LogNormal(5.0, 1.0, 9, 3), "min 9 is more than max 3"),
        (lambda: Zipf(1.0, 2**22), "different lengths"),
        (lambda: Empirical(()), "no values"),
        (lambda: Empirical((1, 2), (1.0,)), "1 weights for 2 values"),
        (lambda: Empirical((1, 2), (0.0, 0.0)), "sum is 0"),
    ],
)
def test_impossible_distributions_are_refused(make, text):
    with pytest.raises(InputError, match=text):
        make()


def test_sections_and_seeds_have_streams_of_their_own():
    def first(*key):
        return generator(*key).integers(0, 2**62)

    keys = [(0, "a"), (0, "b"), (1, "a"), (0, "a", 1), (0, "a", 2)]
    assert len({first(*key) for key in keys}) == len(keys)
    assert first(3, "a", 5) == first(3, "a", 5)


@given(st.integers(0, 2**32), st.integers(1, 50), st.integers(1, 60000), pairs(1, 40), pairs(0, 40))
@settings(max_examples=40)
def test_python_draws_are_what_the_documentation_says(seed, count, vocab, prompt, output):
    draw = random.Random(seed)
    prompts = [[draw.randrange(vocab) for _ in range(draw.randint(*prompt))] for _ in range(count)]
    outputs = [draw.randint(*output) for _ in range(count)]
    made, lengths = PythonDraws(seed).requests(count, Uniform(*prompt), Uniform(*output), vocab, True)
    assert [list(ids) for ids in made] == prompts
    assert lengths == outputs


@pytest.mark.parametrize("draws", [PythonDraws, NumpyDraws])
def test_lengths_do_not_depend_on_whether_ids_are_kept(draws):
    asked = (20, Uniform(1, 30), Uniform(0, 30), 49152)
    prompts, outputs = draws(5).requests(*asked, True)
    bare, same = draws(5).requests(*asked, False)
    assert [len(ids) for ids in prompts] == [len(ids) for ids in bare]
    assert outputs == same
    assert all(isinstance(ids, range) for ids in bare)


def test_numpy_draws_keep_prompts_when_outputs_change():
    prompts, _ = NumpyDraws(5).requests(9, Uniform(1, 30), Uniform(0, 30), 100, True)
    others, outputs = NumpyDraws(5).requests(9, Uniform(1, 30), Fixed(4), 100, True)
    assert prompts == others
    assert outputs == [4] * 9


def test_drawn_ids_are_spread_over_the_vocabulary():
    (ids,), _ = NumpyDraws(0).requests(1, Fixed(MANY), Fixed(1), 10, True)
    assert np.abs(np.bincount(ids) / MANY - 0.1).max() < 0.01


def test_more_ids_than_memory_should_hold_are_refused_before_they_are_drawn():
    with pytest.raises(InputError, match="at most 268,435,456"):
        NumpyDraws(0).requests(32, Fixed(1 << 24), Fixed(1), 10, True)


def test_python_draws_refuse_lengths_that_only_numpy_draws():
    with pytest.raises(InputError, match="not zipf; use draws 'numpy'"):
        PythonDraws(0).requests(1, Zipf(1.0, 5), Fixed(1), 10, True)
