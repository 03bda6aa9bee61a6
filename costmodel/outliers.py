"""Activations with outliers: what a product Y = X Wᵀ loses in integers, and what two schemes do about it.

LLM.int8() multiplies the columns of X that hold an outlier in 16 bit (arXiv 2208.07339, section 3.2);
SmoothQuant divides X by s column by column and multiplies W by it, which leaves Y as it is and makes X easier
to quantise (arXiv 2211.10438). X is quantised by row (token), W by row (output channel), symmetric,
±(2^(n-1) - 1). All of it is arithmetic on arrays: X [tokens, inner], W [outer, inner].
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import InputError
from .arith import kit
from .quantization import NO_WIDTH, Scheme, quantise

Array = Any

THRESHOLD = 6.0
"""Magnitude from which LLM.int8() calls a value an outlier."""
ALPHA = 0.5
"""SmoothQuant's share of the difficulty that moves to the weights."""
MAX_PRODUCTS = 1 << 37


class Product(NamedTuple):
    """Y computed one way: its error as a share of |Y| (Frobenius norms) and at the worst value."""

    name: str
    relative_error: float
    max_abs_error: float


class Products(NamedTuple):
    """`outlier_columns` of `inner` hold a value beyond the threshold; `smoothing_error` is what dividing and
    multiplying by s alone changes in Y (rounding of floats); `ways` the products."""

    inner: int
    outlier_columns: int
    smoothing_error: float
    ways: tuple[Product, ...]

    @property
    def outlier_share(self) -> float:
        return self.outlier_columns / self.inner


def smoothing(x_peak: Array, w_peak: Array, alpha: float) -> Array:
    """s = max|X|^α / max|W|^(1-α) of each column; 1 where either is all zeros."""
    k = kit(x_peak, w_peak)
    empty = k.least(x_peak, w_peak) < NO_WIDTH
    x_peak, w_peak = k.where(empty, 1.0, x_peak), k.where(empty, 1.0, w_peak)
    return x_peak**alpha / w_peak ** (1 - alpha)


def products(x: Array, w: Array, bits: int, threshold: float = THRESHOLD, alpha: float = ALPHA) -> Products:
    """X Wᵀ exactly, in integers of `bits` bits, with outliers apart, and smoothed.

    16 bit is taken as exact. Raises InputError where the shapes do not go together, are too large, or the
    threshold or α is out of bounds.
    """
    if x.shape[1] != w.shape[1]:
        raise InputError(
            f"activations [{x.shape[0]:,}, {x.shape[1]:,}] and weights [{w.shape[0]:,}, {w.shape[1]:,}] "
            "do not go together: both have the inner dimension last"
        )
    if x.shape[0] * w.size > MAX_PRODUCTS:
        raise InputError(
            f"{x.shape[0] * w.size:,} products are more than {MAX_PRODUCTS:,}; give fewer tokens"
        )
    if not 0 <= alpha <= 1:
        raise InputError(f"alpha is between 0 (all difficulty stays with X) and 1, not {alpha:g}")
    if not threshold > 0:
        raise InputError(f"the threshold of an outlier is above 0, not {threshold:g}")
    scheme = Scheme(bits, symmetric=True, codes="restricted").checked()
    exact = x @ w.T
    size = _norm(exact)

    def judged(name: str, got: Array) -> Product:
        errors = abs(got - exact)
        return Product(name, _norm(errors) / size if size else 0.0, float(errors.max()))

    peaks = abs(x).max(axis=0)
    out = peaks >= threshold
    calm = kit(x).where(out, 0.0, x)
    smooth = smoothing(peaks, abs(w).max(axis=0), alpha)
    easy, harder = x / smooth, w * smooth
    whole = quantise(w, scheme).read
    return Products(
        x.shape[1],
        int(out.sum()),
        judged("", easy @ harder.T).relative_error,
        (
            judged(f"int{bits} weights alone", x @ whole.T),
            judged(f"int{bits} weights and activations", quantise(x, scheme).read @ whole.T),
            judged("llm-int8", quantise(calm, scheme).read @ whole.T + (x - calm) @ w.T),
            judged("smoothquant", quantise(easy, scheme).read @ quantise(harder, scheme).read.T),
        ),
    )


def _norm(values: Array) -> float:
    return float((values**2).sum() ** 0.5)
