"""Bounds on what may be asked, past any real use and far from overflow."""

from __future__ import annotations

from typing import Any

from .. import InputError

MAX_TOKENS = 1 << 40
"""Most tokens of a length, or sequences of a batch."""
MAX_ARRAY_PAIRS = 1 << 44
"""Most sequences x tokens^2 of an array of steps: counts of an array are 64-bit integers, and attention
multiplies this by twice its heads and widths (some 2^18)."""


def positive_counts(**values: Any) -> None:
    """Refuse counts that are not between 1 and `MAX_TOKENS`; of an array, every one of them."""
    for name, value in values.items():
        ends = (value.min(), value.max()) if hasattr(value, "ndim") else (value, value)
        for end in ends:
            if not 1 <= end <= MAX_TOKENS:
                raise InputError(f"{name} must be between 1 and {MAX_TOKENS:,}, not {end:,}")


def array_fits(sequences: Any, tokens: Any) -> None:
    """Refuse arrays whose counts would not fit 64 bits; Python's integers have no such bound."""
    if hasattr(sequences, "ndim") or hasattr(tokens, "ndim"):
        most = (sequences * (tokens * 1.0) ** 2).max()
        if most > MAX_ARRAY_PAIRS:
            raise InputError(
                f"an array of steps of up to {most:.3g} sequences x tokens^2 does not fit 64-bit counts "
                f"({MAX_ARRAY_PAIRS:.3g}); evaluate the largest one by one"
            )
