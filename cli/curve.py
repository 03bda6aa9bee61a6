"""Throughput against latency as braille lines on log-log axes, a letter at every point."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

from .braille import Canvas
from .text import seconds, si

COLUMNS, ROWS = 60, 12


class Spot(NamedTuple):
    """A point of the curve `name`: seconds of a whole request, output tokens per second and device."""

    name: str
    latency_s: float
    tokens_per_s: float


def curve(spots: list[Spot]) -> str:
    """One line for each name with three spots or more, through them in the order given; "" where there is
    none."""
    names = [spot.name for spot in spots]
    spots = [spot for spot in spots if names.count(spot.name) > 2]
    xs = [math.log10(spot.latency_s) for spot in spots]
    ys = [math.log10(spot.tokens_per_s) for spot in spots]
    if len(set(xs)) < 2 or len(set(ys)) < 2:
        return ""
    canvas = Canvas(COLUMNS, ROWS)
    (x0, x1), (y0, y1) = (min(xs), max(xs)), (min(ys), max(ys))

    def at(x: float, y: float) -> tuple[float, float]:
        return (x - x0) / (x1 - x0) * (canvas.width - 1), (y1 - y) / (y1 - y0) * (canvas.height - 1)

    letters: dict[str, str] = {}
    for name in dict.fromkeys(spot.name for spot in spots):
        free = (ch for ch in name if ch not in letters.values())
        letters[name] = next(free, "*")
        mine = [at(x, y) for spot, x, y in zip(spots, xs, ys, strict=True) if spot.name == name]
        for a, b in pairwise(mine):
            canvas.line(*a, *b, dash=2)
        for place in mine:
            canvas.mark(*place, letters[name])
    top, bottom = si(10**y1, "tok/s"), si(10**y0, "tok/s")
    margin = max(len(top), len(bottom))
    labels = {0: top, ROWS - 1: bottom}
    lines = [f"{labels.get(i, ''):>{margin}} ┤{line.rstrip()}" for i, line in enumerate(canvas.lines())]
    left, right = seconds(10**x0), f"{seconds(10**x1)} end to end"
    lines.append(f"{'':>{margin}} └{'─' * COLUMNS}")
    lines.append(f"{'':>{margin}}  {left}{right:>{COLUMNS - len(left)}}")
    legend = ", ".join(f"{letter} {name}" for name, letter in letters.items())
    lines.append(f"{'':>{margin}}  {legend}; tokens/s of each GPU")
    return "\n".join(lines)
