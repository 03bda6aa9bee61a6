"""Bounds on what may be asked, past any real use and far from overflow."""

from __future__ import annotations

from .. import InputError

MAX_TOKENS = 1 << 40
"""Most tokens of a length, or sequences of a batch."""


def positive_counts(**values: int) -> None:
    """Refuse counts that are not between 1 and `MAX_TOKENS`."""
    for name, value in values.items():
        if not 1 <= value <= MAX_TOKENS:
            raise InputError(f"{name} must be between 1 and {MAX_TOKENS:,}, not {value:,}")
