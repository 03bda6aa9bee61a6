"""Predicted against measured times on log-log axes, the diagonal through them."""

from __future__ import annotations

from typing import Any

from .chart import Chart, Line, decades, seconds_name


def measured_chart(title: str, counts: Any, span: tuple[float, float]) -> Chart | None:
    """`counts[predicted, measured]` over log10 seconds within `span`, cropped to what is there; None where
    nothing is."""
    low, high = span
    step = (high - low) / len(counts)
    specks = tuple(
        (10 ** (low + step * (measured + 0.5)), 10 ** (low + step * (predicted + 0.5)))
        for predicted, measured in zip(*counts.nonzero(), strict=True)
    )
    if not specks:
        return None
    values = [value for spot in specks for value in spot]
    x, y = decades("measured", values, seconds_name), decades("predicted", values, seconds_name)
    about = f"Predicted against measured times of {int(counts.sum()):,} rows; on the diagonal they agree."
    line = Line("predicted = measured", ((x.low, y.low), (x.high, y.high)), -1, dashed=True)
    return Chart(title, about, x, y, (line,), specks=specks, rows=20)
