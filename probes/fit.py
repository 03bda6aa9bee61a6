"""Fitting a family's constants to measured times: deterministic, robust, on log(predicted / measured).

The least-squares solver is scipy's (extra `fit`). Parameters move in log space within their ranges;
the Jacobian is one evaluation of the formula over a column of perturbed parameters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import InputError
from ..costmodel.times.family import Family
from ..hardware.calibration import Spread

Predict = Callable[[dict[str, Any]], Any]
"""Seconds of every row for complete parameters, which are numbers or columns of them."""

STEP = 1e-4
MOST_EVALUATIONS = 60
FOLDS = 5
SEED = "infercost:"
"""Folds are the SHA-256 of this and the shape family's name, modulo their number: the protocol."""


class Fitted(NamedTuple):
    form: str
    params: dict[str, float]
    cost: float


def solver() -> Any:
    """scipy.optimize.least_squares, or the line that says how to install it."""
    try:
        from scipy.optimize import least_squares
    except ImportError:
        raise InputError('fitting needs scipy; install it with: pip install "infercost[fit]"') from None
    return least_squares


def fit(
    family: Family,
    predict: Predict,
    time_s: Any,
    forms: Sequence[str],
    keep: Any = slice(None),
    start: Mapping[str, float] | None = None,
) -> Fitted:
    """The form and constants of least cost over the rows that `keep` selects.

    `start`: constants to begin at (a sibling's) instead of the family's own.
    """
    tried = (_fit_form(family, predict, time_s, form, keep, start or {}) for form in forms)
    return min(tried, key=lambda one: one.cost)


def _fit_form(
    family: Family, predict: Predict, time_s: Any, form: str, keep: Any, start: Mapping[str, float]
) -> Fitted:
    names = family.forms[form]
    ranges = [family.parameters[name] for name in names]
    low = np.log([each.low for each in ranges])
    high = np.log([each.high for each in ranges])
    begin = [start.get(name, each.start) for name, each in zip(names, ranges, strict=True)]
    centre = np.log(np.maximum(begin, 1e-12))
    first = np.clip(centre, low + 1e-6, high - 1e-6)
    logs = np.log(time_s[keep])
    ridge = np.array([each.ridge for each in ranges])
    pulled = ridge > 0

    def seconds(x: Any) -> Any:
        values = dict(zip(names, np.exp(x).T[..., None] if x.ndim > 1 else np.exp(x), strict=True))
        return predict(family.complete(values))

    def residual(x: Any) -> Any:
        off = np.log(seconds(x)[..., keep]) - logs
        return np.concatenate([off, (ridge * (x - centre))[pulled]])

    def jacobian(x: Any) -> Any:
        step = np.where(x + STEP <= high, STEP, -STEP)
        moved = np.vstack([x, x + np.diag(step)])
        table = np.log(seconds(moved)[..., keep])
        slopes = ((table[1:] - table[0]) / step[:, None]).T
        return np.concatenate([slopes, np.diag(ridge)[pulled]])

    found = solver()(
        residual,
        first,
        jac=jacobian,
        bounds=(low, high),
        loss=family.loss,
        f_scale=family.scale,
        max_nfev=MOST_EVALUATIONS,
    )
    params = {name: float(f"{value:.5g}") for name, value in zip(names, np.exp(found.x), strict=True)}
    return Fitted(form, params, float(found.cost))


def fold_of(shape_family: str, folds: int = FOLDS) -> int:
    """The fold a shape family belongs to, the same on every machine."""
    return int(hashlib.sha256((SEED + shape_family).encode()).hexdigest(), 16) % folds


def spread(predicted: Any, time_s: Any) -> Spread:
    """Mean, median and 90th percentile of |predicted / measured - 1|."""
    ape = np.abs(np.asarray(predicted) / np.asarray(time_s) - 1)
    figures = (float(ape.mean()), float(np.median(ape)), float(np.quantile(ape, 0.9)))
    return Spread(*(round(each, 4) for each in figures))
