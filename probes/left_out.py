"""Why rows of a file are left out, counted."""

from __future__ import annotations

from collections import Counter

MOST_REASONS = 50


def leave_out(excluded: Counter[str], reason: str, rows: int = 1) -> None:
    """Count `rows` under `reason`; a file whose rows all name something else gets a common one at the end."""
    known = reason in excluded or len(excluded) < MOST_REASONS
    excluded[reason if known else "for other reasons"] += rows
