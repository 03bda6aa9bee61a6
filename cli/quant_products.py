"""`infercost quant --tensor W --activations X`: outliers, and what three ways of multiplying lose."""

from __future__ import annotations

from typing import Any

from ..costmodel.outliers import ALPHA, THRESHOLD, products
from .inputs import document
from .output.report import Report, Table
from .tensors import Rows, as_array
from .text import count, number, percent

CONVENTIONS = {
    "relative_error": "|Y' - Y| / |Y| in Frobenius norms, Y = X W^T; 16 bit is taken as exact",
    "quantised": "X by row (token), W by row (output channel), symmetric, codes up to 2^(n-1) - 1 either way",
    "outlier_columns": "columns of X with a value of at least the threshold: llm-int8 has them in 16 bit",
    "smoothing_error": "what X diag(s)^-1 and W diag(s) change in Y before they are quantised",
}
SOURCES = {"llm-int8": "arXiv 2208.07339", "smoothquant": "arXiv 2211.10438"}


def products_report(x: Rows, w: Rows, bits: int, threshold: float | None, alpha: float | None) -> Report:
    """The error of each way, the least of them first said."""
    threshold = THRESHOLD if threshold is None else threshold
    alpha = ALPHA if alpha is None else alpha
    x, w = as_array(x), as_array(w)
    found = products(x, w, bits, threshold, alpha)
    table = Table(("product", "error of Y", "largest error"), "<>>")
    for way in found.ways:
        table.rows.append((way.name, percent_of(way.relative_error), number(way.max_abs_error)))
    best = min(found.ways[1:], key=lambda way: way.relative_error)
    answer = [
        f"{best.name} loses least with activations in {bits} bit: {percent_of(best.relative_error)} of Y; "
        f"{count(found.outlier_columns)} of {count(found.inner)} columns "
        f"({percent(found.outlier_share)}) hold outliers"
    ]
    notes = [
        f"X [{x.shape[0]:,}, {x.shape[1]:,}], W [{w.shape[0]:,}, {w.shape[1]:,}]; an outlier is "
        f"{threshold:g} or more (--threshold), alpha {alpha:g} (--alpha)",
        f"smoothing alone changes {found.smoothing_error:.1e} of Y: rounding of floats",
    ]
    point: dict[str, Any] = {
        "inputs": {
            "tokens": x.shape[0],
            "inner": x.shape[1],
            "outer": w.shape[0],
            "bits": bits,
            "threshold": threshold,
            "alpha": alpha,
        },
        "outlier_columns": found.outlier_columns,
        "outlier_share": found.outlier_share,
        "smoothing_error": found.smoothing_error,
        "products": [way._asdict() for way in found.ways],
    }
    made = document("quant", {"command": "quant"}, CONVENTIONS, SOURCES, [point], False)
    quiet = [repr(best.relative_error)]
    return Report(made, answer, [table], notes, records=point["products"], quiet=quiet)


def percent_of(value: float) -> str:
    """A small share with the digits it has: `0.0123 %`."""
    return f"{number(100 * value)} %"
