"""A chart in braille: monochrome, or coloured for a terminal."""

from __future__ import annotations

import textwrap
from itertools import pairwise

from ..braille import Canvas
from ..text import clean
from .chart import Axis, Chart, letters

COLUMNS = 64
STAGGER = 6
"""Dots between the digits of one line and the next."""
COLOURS = (34, 33, 32, 35, 36, 31)
"""ANSI foregrounds of the tones: blue, yellow, green, magenta, cyan, red."""


def picture(chart: Chart, columns: int = COLUMNS) -> str:
    """`chart` between its axes, below it the names of its letters and, where there are several lines, of the
    digits near their ends; no wider than `columns` and the labels of the vertical axis, 16 at most."""
    return "\n".join(_drawn(chart, columns, False))


def coloured(chart: Chart, columns: int = COLUMNS) -> str:
    """The same with the tones as ANSI colours."""
    return "\n".join(_drawn(chart, columns, True))


def _drawn(chart: Chart, columns: int, colour: bool) -> list[str]:
    canvas = Canvas(columns, chart.rows)

    def at(spot: tuple[float, float]) -> tuple[float, float]:
        x, y = chart.x.at(spot[0]), 1 - chart.y.at(spot[1])
        return x * (canvas.width - 1), y * (canvas.height - 1)

    for rule in chart.rules:
        if rule.along == "x":
            x, _ = at((rule.value, chart.y.low))
            top = 0.0 if rule.upto is None else at((rule.value, rule.upto))[1]
            # From the bottom up, so that the dashes of both ridges stand on the same rows.
            canvas.line(x, canvas.height - 1, x, top, dash=4)
        else:
            _, y = at((chart.x.low, rule.value))
            canvas.line(0, y, canvas.width - 1, y, dash=4)
    for spot in chart.specks:
        canvas.dot(*at(spot))
    legend = []
    taken: set[str] = set()
    for i, line in enumerate(chart.lines, 1):
        tone = _code(line.tone)
        for a, b in pairwise(map(at, line.spots)):
            canvas.line(*a, *b, dash=3 if line.dashed else 2 if line.dots else 1, tone=tone)
        letter = ""
        if line.dots:
            letter = next((ch for ch in line.name if ch.isalnum() and ch not in taken), "*")
            taken.add(letter)
            for spot in line.spots:
                canvas.mark(*at(spot), letter, tone)
        elif len(chart.lines) > 1:
            letter = str(i)
            canvas.mark(*_near_the_end(at(line.spots[-2]), at(line.spots[-1]), STAGGER * i), letter, tone)
        if letter:
            legend.append((letter, clean(line.name), tone))
    for letter, point in zip(letters(len(chart.points)), chart.points, strict=True):
        canvas.mark(*at((point.x, point.y)), letter, _code(point.tone))
        legend.append((letter, clean(point.name), _code(point.tone)))
    margin = max(len(name) for _, name in chart.y.ticks)
    rows = {round((1 - chart.y.at(value)) * (canvas.height - 1)) // 4: name for value, name in chart.y.ticks}
    out = [chart.y.label] if chart.y.label else []
    out += [f"{rows.get(i, ''):>{margin}} ┤{line}" for i, line in enumerate(canvas.lines(colour))]
    out += _below(chart.x, columns, margin)
    for sign, name, tone in legend:
        first, *rest = textwrap.wrap(f"{sign} {name}", margin + columns, subsequent_indent="  ") or [sign]
        out.append(f"\x1b[{tone}m{sign}\x1b[0m{first[1:]}" if colour and tone else first)
        out += rest
    return [line.rstrip() for line in out]


def _near_the_end(start: tuple[float, float], end: tuple[float, float], dots: float) -> tuple[float, float]:
    """So many dots before the end of a stretch, at most halfway: lines on top of each other are all named."""
    back = min(0.5, dots / max(end[0] - start[0], 1.0))
    return end[0] + back * (start[0] - end[0]), end[1] + back * (start[1] - end[1])


def _below(axis: Axis, columns: int, margin: int) -> list[str]:
    """The horizontal axis: a notch at each tick, and their names as far as there is room."""
    rule, names, free = ["─"] * columns, [" "] * (columns + 8), 0
    for value, name in axis.ticks:
        column = round(axis.at(value) * (2 * columns - 1)) // 2
        rule[column] = "┴"
        start = max(0, column - len(name) // 2)
        if start >= free and start + len(name) <= len(names):
            names[start : start + len(name)] = list(name)
            free = start + len(name) + 1
    indent = " " * margin
    return [
        f"{indent} └{''.join(rule)}",
        f"{indent}  {''.join(names).rstrip()}",
        f"{indent}  {axis.label:>{columns}}",
    ]


def _code(tone: int) -> int:
    return 0 if tone < 0 else COLOURS[tone % len(COLOURS)]
