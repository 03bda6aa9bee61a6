"""Errors of predicted against measured times in bounded memory, however many rows there are.

A histogram of log(predicted / measured) in steps of 0.1 % holds everything a table shows: quantiles
of the error to a tenth of a percent, the bias, and (summed exactly beside it) the mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np

STEP = 0.001
REACH = 7.0
"""Ratios beyond e^7 (a thousandfold) count as that far off."""
BINS = round(2 * REACH / STEP) + 1
_RATIOS = np.expm1(np.linspace(-REACH, REACH, BINS))
_ORDER = np.argsort(np.abs(_RATIOS), kind="stable")


class Errors:
    """What is known of one set of rows; sets are merged with `+=`."""

    def __init__(self) -> None:
        self.rows, self.total = 0, 0.0
        self.counts = np.zeros(BINS, dtype=np.int64)

    def add(self, predicted: Any, measured: Any) -> None:
        ratio = np.asarray(predicted / measured, dtype=float)
        self.rows += ratio.size
        self.total += float(np.abs(ratio - 1).sum())
        place = np.rint((np.log(ratio) + REACH) / STEP).clip(0, BINS - 1).astype(np.int64)
        self.counts += np.bincount(place, minlength=BINS)

    def __iadd__(self, other: Errors) -> Errors:
        self.rows, self.total = self.rows + other.rows, self.total + other.total
        self.counts += other.counts
        return self

    @property
    def mape(self) -> float:
        """Mean of |predicted / measured - 1|."""
        return self.total / self.rows

    def quantile(self, share: float) -> float:
        """The `share` quantile of |predicted / measured - 1|, to a tenth of a percent."""
        below = np.cumsum(self.counts[_ORDER])
        return float(abs(_RATIOS[_ORDER[int(np.searchsorted(below, share * self.rows))]]))

    @property
    def bias(self) -> float:
        """Median of predicted / measured - 1: above zero where most predictions are too long."""
        place = int(np.searchsorted(np.cumsum(self.counts), 0.5 * self.rows))
        return float(_RATIOS[place])


GRADES = (("A", 0.05), ("B", 0.10), ("C", 0.20), ("D", 0.40))


def grade(median_ape: float) -> str:
    """A letter for a median error: A to 5 %, B to 10 %, C to 20 %, D to 40 %, else E."""
    return next((letter for letter, most in GRADES if median_ape <= most), "E")
