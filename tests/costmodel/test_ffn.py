"""Expected distinct experts: the closed form, brute force over routings, skew and limits."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infercost.costmodel.ffn import expected_distinct, inclusion_chances


def test_listed_cases() -> None:
    """CASE-089 and CASE-090: 128 experts, top 8."""
    assert expected_distinct(128, 8, 16) == pytest.approx(82.42251130217052, rel=1e-12)
    assert expected_distinct(128, 8, 8) * 16 / 128 == pytest.approx(6.4524884186685085, rel=1e-12)


@pytest.mark.parametrize(("total", "top_k", "tokens"), [(4, 2, 2), (5, 1, 3), (4, 3, 2), (3, 2, 3)])
def test_against_every_routing(total: int, top_k: int, tokens: int) -> None:
    """The mean over all equally likely choices of top_k experts by each token."""
    choices = list(itertools.combinations(range(total), top_k))
    routings = list(itertools.product(choices, repeat=tokens))
    mean = sum(len(set().union(*routing)) for routing in routings) / len(routings)
    assert expected_distinct(total, top_k, tokens) == pytest.approx(mean)


@given(st.integers(1, 256), st.data(), st.integers(1, 500), st.floats(0.01, 3))
def test_skew_touches_fewer(total: int, data: st.DataObject, tokens: int, skew: float) -> None:
    top_k = data.draw(st.integers(1, total))
    even, uneven = expected_distinct(total, top_k, tokens), expected_distinct(total, top_k, tokens, skew)
    assert top_k - 1e-6 <= uneven <= even + 1e-6 <= total + 2e-6


@given(st.integers(1, 256), st.data(), st.floats(0.01, 3))
def test_chances_sum_to_top_k(total: int, data: st.DataObject, skew: float) -> None:
    top_k = data.draw(st.integers(1, total))
    chances = inclusion_chances(total, top_k, skew)
    assert sum(chances) == pytest.approx(top_k)
    assert all(0 <= chance <= 1 + 1e-12 for chance in chances)
    assert chances == sorted(chances, reverse=True)
