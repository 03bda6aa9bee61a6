"""A canvas of braille dots: 2 x 4 to a character, and the log-log roofline drawn on it."""

from __future__ import annotations

import math
import textwrap
from typing import NamedTuple

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


class Canvas:
    """`columns` x `rows` characters; dots are addressed from the top left."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.width, self.height = columns * 2, rows * 4
        self._cells = [[0] * columns for _ in range(rows)]
        self._marks: dict[tuple[int, int], str] = {}

    def dot(self, x: float, y: float) -> None:
        column, row = round(x), round(y)
        if 0 <= column < self.width and 0 <= row < self.height:
            self._cells[row // 4][column // 2] |= DOTS[row % 4][column % 2]

    def line(self, x0: float, y0: float, x1: float, y1: float, dash: int = 1) -> None:
        """A straight line, every `dash`-th dot of it."""
        steps = max(1, math.ceil(max(abs(x1 - x0), abs(y1 - y0))))
        for i in range(0, steps + 1, dash):
            self.dot(x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps)

    def mark(self, x: float, y: float, letter: str) -> None:
        """A character in place of the cell that holds the dot."""
        column = min(max(round(x) // 2, 0), self.columns - 1)
        row = min(max(round(y) // 4, 0), self.rows - 1)
        self._marks[(row, column)] = letter

    def lines(self) -> list[str]:
        return [
            "".join(
                self._marks.get((r, c)) or (chr(0x2800 + cell) if cell else " ") for c, cell in enumerate(row)
            )
            for r, row in enumerate(self._cells)
        ]


class Mark(NamedTuple):
    """A point under the roof: what it is called, FLOP per byte, FLOP per second."""

    name: str
    intensity: float
    flops_per_s: float


def merge(marks: list[Mark]) -> list[Mark]:
    """Points that fall on one spot become one, named after all of them."""
    spots: dict[tuple[int, int], Mark] = {}
    for mark in marks:
        spot = (round(8 * math.log10(mark.intensity)), round(8 * math.log10(mark.flops_per_s)))
        old = spots.get(spot)
        spots[spot] = mark if old is None else old._replace(name=f"{old.name}, {mark.name}")
    return sorted(spots.values(), key=lambda mark: mark.intensity)


def roofline_picture(
    peak: float,
    bandwidth: float,
    ridges: dict[str, float],
    marks: list[Mark],
    columns: int = 64,
    rows: int = 16,
) -> str:
    """The roof of one device on log-log axes, its ridges dashed, operations as letters.

    `peak` FLOP/s, `bandwidth` bytes/s, `ridges` FLOP per byte by name. The letters' names stand
    below the picture.
    """
    spots = merge([mark for mark in marks if mark.intensity > 0 and mark.flops_per_s > 0])
    low = min([ridges[name] / 300 for name in ridges] + [s.intensity / 2 for s in spots])
    high = max([ridges[name] * 30 for name in ridges] + [s.intensity * 2 for s in spots])
    x0, x1 = math.floor(math.log10(low)), math.ceil(math.log10(high))
    y1 = math.ceil(math.log10(peak * 1.2))
    y0 = min(math.floor(math.log10(bandwidth * 10.0**x0)), y1 - 2)
    canvas = Canvas(columns, rows)

    def at(intensity: float, flops: float) -> tuple[float, float]:
        x = (math.log10(intensity) - x0) / (x1 - x0) * (canvas.width - 1)
        y = (y1 - math.log10(flops)) / (y1 - y0) * (canvas.height - 1)
        return x, y

    knee = peak / bandwidth
    canvas.line(*at(10.0**x0, bandwidth * 10.0**x0), *at(knee, peak))
    canvas.line(*at(knee, peak), *at(10.0**x1, peak))
    for value in ridges.values():
        x, top = at(value, peak)
        # From the bottom up, so that the dashes of both ridges stand on the same rows.
        canvas.line(x, canvas.height - 1, x, top, dash=4)
    letters = [chr(ord("A") + i) if i < 26 else "*" for i in range(len(spots))]
    for letter, spot in zip(letters, spots, strict=True):
        canvas.mark(*at(spot.intensity, spot.flops_per_s), letter)
    return "\n".join(_framed(canvas, (x0, x1), (y0, y1), letters, spots))


def _framed(
    canvas: Canvas, x: tuple[int, int], y: tuple[int, int], letters: list[str], spots: list[Mark]
) -> list[str]:
    """Axes: a label at each decade, the names of the letters below."""
    labels = {
        round((y[1] - decade) / (y[1] - y[0]) * (canvas.height - 1)) // 4: _power(decade, "FLOP/s")
        for decade in range(y[0], y[1] + 1)
    }
    margin = max(len(label) for label in labels.values())
    out = [f"{labels.get(i, ''):>{margin}} ┤{line}" for i, line in enumerate(canvas.lines())]
    axis, names = ["─"] * canvas.columns, [" "] * (canvas.columns + 8)
    for decade in range(x[0], x[1] + 1):
        column = round((decade - x[0]) / (x[1] - x[0]) * (canvas.width - 1)) // 2
        axis[column] = "┴"
        text = f"{10.0**decade:g}" if -4 < decade < 5 else f"1e{decade}"
        start = max(0, column - len(text) // 2)
        names[start : start + len(text)] = list(text)
    out.append(f"{'':>{margin}} └{''.join(axis)}")
    out.append(f"{'':>{margin}}  {''.join(names).rstrip()}")
    out.append(f"{'':>{margin}}  {'FLOP/byte':>{canvas.columns}}")
    for letter, spot in zip(letters, spots, strict=True):
        out += textwrap.wrap(f"{letter} {spot.name}", margin + canvas.columns, subsequent_indent="  ")
    return out


def _power(decade: int, unit: str) -> str:
    prefixes = {9: "G", 12: "T", 15: "P", 18: "E", 6: "M"}
    base = decade - decade % 3
    return f"{10 ** (decade - base)} {prefixes.get(base, '?')}{unit}"
