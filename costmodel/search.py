"""Bisection over counts."""

from __future__ import annotations

from collections.abc import Callable


def most_within(holds: Callable[[int], bool], limit: int) -> int:
    """The largest count up to `limit` for which `holds`, which is true up to it and false beyond; 0: none."""
    low, high = 0, limit + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
