"""Sizes of layers that make sense, rounding them up, the smaller of two, and what a rank holds."""

from __future__ import annotations

import sys
from typing import Any

from .. import InputError

MAX_DIMENSION = 1 << 24
"""No width, head count or expert count of a real model comes near this; larger is a mistake."""


def ceil_div(value: int, by: int) -> int:
    return -(-value // by)


def rounded_up(value: int, to: int) -> int:
    """The least multiple of `to` that is no less."""
    return ceil_div(value, to) * to


def least(a: Any, b: Any) -> Any:
    """Smaller of two, element by element for arrays (of a numpy that someone else imported)."""
    if hasattr(a, "ndim") or hasattr(b, "ndim"):
        return sys.modules["numpy"].minimum(a, b)
    return min(a, b)


def divided(value: int, ranks: int, what: str) -> int:
    """What each of `ranks` holds. Raises InputError where it does not divide."""
    if value % ranks:
        raise InputError(f"{what} {value} does not divide over {ranks} ranks")
    return value // ranks


def kv_heads_per_rank(kv_heads: int, tp: int) -> int:
    """KV heads a rank stores: kv_heads / tp, and one (a copy) where tp is larger. Source: vLLM."""
    if kv_heads % tp and tp % kv_heads:
        raise InputError(f"tp {tp} neither divides {kv_heads} KV heads nor is a multiple of them")
    return max(1, kv_heads // tp)


def positive(owner: str, **values: int | None) -> None:
    """Refuse sizes that are not between 1 and `MAX_DIMENSION`; None passes."""
    for name, value in values.items():
        if value is not None and not 1 <= value <= MAX_DIMENSION:
            raise InputError(f"{owner}: {name} must be between 1 and {MAX_DIMENSION:,}, not {value}")
