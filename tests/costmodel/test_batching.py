"""Lengths and batches: closed forms against sums over the distribution itself, the textbook's limits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infercost import InputError
from infercost.costmodel.batching import Lengths, harmonic

MEANS = st.integers(1, 400)
BATCHES = st.integers(1, 300)


def chances(kind: str, mean: int) -> list[float]:
    """P(G = 1), P(G = 2), ... of the distribution by its definition, as far as it matters."""
    if kind == "fixed":
        return [0.0] * (mean - 1) + [1.0]
    if kind == "uniform":
        return [1 / (2 * mean - 1)] * (2 * mean - 1)
    return [(1 - 1 / mean) ** k / mean for k in range(40 * mean + 1)]


@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(["fixed", "exponential", "uniform"]), mean=MEANS, batch=BATCHES)
def test_moments_and_the_longest(kind: str, mean: int, batch: int) -> None:
    lengths, below, longest, first, pairs = Lengths(kind, 100, mean), 0.0, 0.0, 0.0, 0.0
    for out, chance in enumerate(chances(kind, mean), 1):
        upto = min(1.0, below + chance)
        longest += out * (upto**batch - below**batch)
        first, pairs, below = first + out * chance, pairs + out * (out - 1) / 2 * chance, upto
    assert lengths.gen == pytest.approx(first, rel=1e-9)
    assert lengths.longest(batch) == pytest.approx(longest, rel=2e-5)
    assert mean <= lengths.longest(batch) * (1 + 1e-12)
    assert 0 < lengths.utilisation(batch) <= 1 + 1e-12
    if mean > 1:
        assert lengths.mean_context == pytest.approx(100 + pairs / (first - 1), rel=1e-9)


@pytest.mark.parametrize("batch", [1, 2, 8, 32, 64, 1024])
def test_the_textbook_forms_are_the_limit_of_long_outputs(batch: int) -> None:
    exact = math.fsum(1 / i for i in range(1, batch + 1))
    assert Lengths("exponential", 1, 10**6).utilisation(batch) == pytest.approx(1 / exact, rel=1e-5)
    assert Lengths("exponential", 1, 10**6).limit(batch) == pytest.approx(1 / exact, rel=1e-12)
    uniform = Lengths("uniform", 1, 10**6)
    assert uniform.utilisation(batch) == pytest.approx((batch + 1) / (2 * batch), rel=1e-5)
    assert Lengths("fixed", 1, 100).utilisation(batch) == 1


def test_harmonic_numbers_go_on_where_the_sum_ends() -> None:
    assert harmonic(1000) == pytest.approx(math.fsum(1 / i for i in range(1, 1001)), rel=1e-14)
    assert harmonic(1001) == pytest.approx(harmonic(1000) + 1 / 1001, rel=1e-12)


@settings(max_examples=50, deadline=None)
@given(outs=st.lists(st.integers(1, 1000), min_size=1, max_size=30), batch=st.integers(1, 50))
def test_a_trace_is_its_own_distribution(outs: list[int], batch: int) -> None:
    pairs = tuple((10 * out, out) for out in outs)
    mean = sum(outs) / len(outs)
    lengths = Lengths("trace", 10 * mean, mean, pairs)
    ranked, n = sorted(outs), len(outs)
    longest = sum(((i + 1) ** batch - i**batch) / n**batch * out for i, out in enumerate(ranked))
    assert lengths.longest(batch) == pytest.approx(longest, rel=1e-9)
    assert lengths.limit(batch) is None
    if mean > 1:
        contexts = [10 * g + i for g in outs for i in range(1, g)]
        assert lengths.mean_context == pytest.approx(sum(contexts) / len(contexts), rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(kind=st.sampled_from(["fixed", "exponential", "uniform"]), mean=MEANS)
def test_draws_follow_the_distribution(kind: str, mean: int) -> None:
    """P(out(u) <= k) over even chances is the cumulative distribution."""
    lengths, draws = Lengths(kind, 1, mean), 4000
    outs = [lengths.out((i + 0.5) / draws) for i in range(draws)]
    assert min(outs) >= 1
    assert outs == sorted(outs)
    cumulative = 0.0
    for out, chance in enumerate(chances(kind, mean)[: 3 * mean], 1):
        cumulative += chance
        assert sum(1 for each in outs if each <= out) / draws == pytest.approx(cumulative, abs=2 / draws)


def test_what_is_no_length() -> None:
    with pytest.raises(InputError, match="gen must be between"):
        Lengths("fixed", 5, 0).checked()
