"""The few operations that differ between Python numbers and arrays, so that formulas do not.

Every formula of the cost model is plain arithmetic over these. Arrays exist only where someone else
imported numpy: this module never does.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from .. import InputError
from ..models.dimensions import ceil_div as ceil_div
from ..models.dimensions import least as least
from ..models.dimensions import rounded_up as rounded_up


class SplitError(InputError):
    """Elements of an array of steps that go different ways: halves of it may agree."""


class Kit(NamedTuple):
    """Elementwise operations of one kind of number; `nearest` takes halves to the even integer."""

    ceil: Callable[[Any], Any]
    floor: Callable[[Any], Any]
    least: Callable[[Any, Any], Any]
    most: Callable[[Any, Any], Any]
    where: Callable[[Any, Any, Any], Any]
    log2: Callable[[Any], Any]
    nearest: Callable[[Any], Any]


def _pick(condition: Any, yes: Any, no: Any) -> Any:
    return yes if condition else no


SCALARS = Kit(math.ceil, math.floor, min, max, _pick, math.log2, round)


def kit(*values: Any) -> Kit:
    """The operations for `values`: numpy's where one of them is an array, Python's otherwise."""
    if any(hasattr(value, "ndim") for value in values):
        np: Any = sys.modules["numpy"]
        return Kit(np.ceil, np.floor, np.minimum, np.maximum, np.where, np.log2, np.rint)
    return SCALARS


def some(value: Any) -> bool:
    """Whether `value`, or any element of it, is not zero."""
    return bool(value.any()) if hasattr(value, "ndim") else bool(value)


def mean(value: Any) -> float:
    """The mean of an array, or the number itself."""
    return float(value.mean()) if hasattr(value, "ndim") else float(value)


def alike(condition: Any, what: str) -> bool:
    """`condition`, which must be the same for every element of an array.

    Raises SplitError where it is not: an array of steps goes one way or the other.
    """
    if hasattr(condition, "ndim") and condition.any() != condition.all():
        raise SplitError(f"an array of steps must agree on {what}: split it")
    return some(condition)


def most(a: Any, b: Any) -> Any:
    """Larger of two, element by element for arrays."""
    return kit(a, b).most(a, b)


def power_norm(a: Any, b: Any, p: Any) -> Any:
    """(a^p + b^p)^(1/p): their sum at p = 1, their maximum as p grows; never below the larger.

    How much two things that can overlap do overlap. Scaled by the larger, so no power overflows.
    """
    k = kit(a, b, p)
    high = k.most(a, b)
    return high * (1 + (k.least(a, b) / high) ** p) ** (1 / p)
