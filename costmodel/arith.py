"""The few operations that differ between Python numbers and arrays, so that formulas do not.

Every formula of the cost model is plain arithmetic over these; numpy arrays pass through by their
own methods, and this module never imports numpy.
"""

from __future__ import annotations

from typing import Any

from ..models.formats import ceil_div as ceil_div


def least(a: Any, b: Any) -> Any:
    """Smaller of two, element by element for arrays."""
    if hasattr(a, "clip"):
        return a.clip(None, b)
    if hasattr(b, "clip"):
        return b.clip(None, a)
    return min(a, b)


def most(a: Any, b: Any) -> Any:
    """Larger of two, element by element for arrays."""
    if hasattr(a, "clip"):
        return a.clip(b, None)
    if hasattr(b, "clip"):
        return b.clip(a, None)
    return max(a, b)
