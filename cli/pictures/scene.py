"""A chart laid out on paper: strokes, boxes, dots and words in pixels, the same for every medium.

Words are given their place so that none covers another, a mark or, where there is room, a line.
"""

from __future__ import annotations

import textwrap
from itertools import pairwise
from typing import NamedTuple

from .chart import Bar, Chart, Line, Point, Rule, letters

WIDE, NARROW = 760, 380
SIZE, TITLE = 12.0, 15.0
ROW = 20.0
"""Pixels of height to a line of the terminal's picture."""
GAP = 8.0
FEW, FEW_WIDTH, MANY_WIDTH = 500, 5.0, 2.6
"""Specks are wide while they are few."""
MOST_CHARACTERS = 2000
"""Of one line of words: a longer one is cut."""

Place = tuple[float, float]


class Stroke(NamedTuple):
    """A line through `spots`."""

    spots: tuple[Place, ...]
    tone: str
    width: float = 1.0
    dashed: bool = False


class Fill(NamedTuple):
    """A pale area."""

    spots: tuple[Place, ...]
    tone: str


class Box(NamedTuple):
    """A rectangle; `hint` is said where a pointer rests on it."""

    x: float
    y: float
    width: float
    height: float
    tone: str
    hint: str = ""


class Dot(NamedTuple):
    """A disc, or a ring where it is hollow."""

    x: float
    y: float
    radius: float
    tone: str
    hollow: bool = False
    hint: str = ""


class Specks(NamedTuple):
    """Many small dots of one tone."""

    spots: tuple[Place, ...]
    tone: str
    width: float


class Words(NamedTuple):
    """One line of text, (`x`, `y`) on its baseline at its start, middle or end."""

    x: float
    y: float
    text: str
    tone: str = "ink"
    size: float = SIZE
    anchor: str = "start"
    bold: bool = False

    @property
    def box(self) -> tuple[float, float, float, float]:
        """What it covers, by an estimate that is rather too wide: left, top, right, bottom."""
        wide = width_of(self.text, self.size)
        left = self.x - {"start": 0.0, "middle": 0.5, "end": 1.0}[self.anchor] * wide
        return left, self.y - 0.8 * self.size, left + wide, self.y + 0.25 * self.size


Shape = Stroke | Fill | Box | Dot | Specks | Words


class Scene(NamedTuple):
    """Shapes on a sheet of paper."""

    width: float
    height: float
    title: str
    about: str
    shapes: tuple[Shape, ...]


def width_of(text: str, size: float) -> float:
    """Pixels of `text`, at most, in a plain sans serif."""
    return 0.62 * size * len(text)


def stacked(scenes: list[Scene]) -> Scene:
    """One below the other on one sheet."""
    if len(scenes) == 1:
        return scenes[0]
    shapes: list[Shape] = []
    top = 0.0
    for scene in scenes:
        shapes += [_lower(shape, top) for shape in scene.shapes]
        top += scene.height
    titles, abouts = (" ".join(getattr(s, name) for s in scenes) for name in ("title", "about"))
    return Scene(max(scene.width for scene in scenes), top, titles, abouts, tuple(shapes))


def _lower(shape: Shape, by: float) -> Shape:
    if isinstance(shape, (Stroke, Fill, Specks)):
        return shape._replace(spots=tuple((x, y + by) for x, y in shape.spots))
    return shape._replace(y=shape.y + by)


def laid_out(chart: Chart, width: float = WIDE) -> Scene:
    """`chart` on a sheet of `width` pixels, as high as it takes."""
    return _Layout(chart, width).scene()


class _Layout:
    """The sheet while it fills: what is drawn already, and what words may not cover."""

    def __init__(self, chart: Chart, width: float) -> None:
        self.chart, self.width = chart, width
        self.shapes: list[Shape] = []
        self.covered: list[tuple[float, float, float, float]] = []
        self.crossed: list[tuple[float, float, float, float]] = []
        margin = max((width_of(name, SIZE) for _, name in chart.y.ticks), default=0.0)
        self.left, self.right = margin + 2 * GAP, width - 2 * GAP
        self.top = self._head()
        self.bottom = self.top + ROW * chart.rows

    def scene(self) -> Scene:
        chart = self.chart
        self._axes()
        below: Line | None = None
        for line in chart.lines:
            self._line(line, below)
            below = line
        for bar in chart.bars:
            self._bar(bar)
        if chart.specks:
            width = FEW_WIDTH if len(chart.specks) < FEW else MANY_WIDTH
            self.shapes.append(Specks(tuple(self.at(spot) for spot in chart.specks), "s0", width))
        for point in chart.points:
            x, y = self.at((point.x, point.y))
            self.covered.append((x - 5, y - 5, x + 5, y + 5))
        for rule in chart.rules:
            self._rule(rule)
        signs = letters(len(chart.points))
        for sign, point in zip(signs, chart.points, strict=True):
            self._point(sign, point)
        low = self._legend(signs)
        return Scene(self.width, low + GAP, chart.title, chart.about, tuple(self.shapes))

    def at(self, spot: Place) -> Place:
        chart = self.chart
        x = self.left + min(max(chart.x.at(spot[0]), 0.0), 1.0) * (self.right - self.left)
        return x, self.bottom - min(max(chart.y.at(spot[1]), 0.0), 1.0) * (self.bottom - self.top)

    def _head(self) -> float:
        """The title, and a swatch with the name of each line and kind of bar; where they end."""
        y = GAP
        for text in _wrapped(self.chart.title, self.width - 4 * GAP, TITLE):
            y += TITLE + 4
            self.shapes.append(Words(2 * GAP, y, text, size=TITLE, bold=True))
        y += GAP
        named: dict[str, tuple[int, bool]] = {}
        if len(self.chart.lines) > 1 or any(line.dots for line in self.chart.lines):
            named |= {line.name: (line.tone, line.dashed) for line in self.chart.lines}
        named |= {bar.name: (bar.tone, False) for bar in self.chart.bars}
        x = 2 * GAP
        for i, (name, (tone, dashed)) in enumerate(named.items()):
            name = _wrapped(name, self.width - 6 * GAP, SIZE)[0]
            wide = 24 + width_of(name, SIZE)
            if i == 0 or x + wide > self.width - GAP:
                x, y = 2 * GAP, y + SIZE + 6
            self.shapes.append(Stroke(((x, y - 4), (x + 18, y - 4)), _tone(tone), 3.0, dashed))
            self.shapes.append(Words(x + 24, y, name, "muted"))
            x += wide + 2 * GAP
        if self.chart.y.label:
            y += SIZE + 6
            self.shapes.append(Words(2 * GAP, y, self.chart.y.label, "muted"))
        return y + 2 * GAP

    def _axes(self) -> None:
        x_axis, y_axis = self.chart.x, self.chart.y
        for value, name in y_axis.ticks:
            _, y = self.at((x_axis.low, value))
            self.shapes.append(Stroke(((self.left, y), (self.right, y)), "grid"))
            self.shapes.append(Words(self.left - GAP, y + 4, name, "muted", anchor="end"))
        free = 0.0
        for value, name in x_axis.ticks:
            x, _ = self.at((value, y_axis.low))
            half = width_of(name, SIZE) / 2
            middle = min(max(x, half + 2), self.width - half - 2)
            self.shapes.append(Stroke(((x, self.top), (x, self.bottom)), "grid"))
            if middle - half >= free:
                self.shapes.append(Words(middle, self.bottom + 18, name, "muted", anchor="middle"))
                free = middle + half + GAP
        self.shapes.append(Stroke(((self.left, self.bottom), (self.right, self.bottom)), "muted"))
        self.shapes.append(Words(self.right, self.bottom + 34, x_axis.label, "muted", anchor="end"))

    def _line(self, line: Line, below: Line | None) -> None:
        spots = tuple(self.at(spot) for spot in line.spots)
        if line.filled:
            base = (self.at(s) for s in below.spots) if below else ((x, self.bottom) for x, _ in spots)
            self.shapes.append(Fill((*spots, *reversed(tuple(base))), _tone(line.tone)))
        self.shapes.append(Stroke(spots, _tone(line.tone), 2.0, line.dashed))
        self.shapes += [Dot(x, y, 3.5, _tone(line.tone), hint=line.name) for x, y in spots if line.dots]
        for (x0, y0), (x1, y1) in pairwise(spots):
            steps = max(1, int(max(abs(x1 - x0), abs(y1 - y0)) // 6))
            for i in range(steps + 1):
                x, y = x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps
                self.crossed.append((x - 2, y - 2, x + 2, y + 2))

    def _bar(self, bar: Bar) -> None:
        (x0, y0), (x1, y1) = self.at(bar.low), self.at(bar.high)
        self.shapes.append(Box(x0, y1, x1 - x0, y0 - y1, _tone(bar.tone), bar.name))
        if width_of(bar.name, SIZE) + GAP <= x1 - x0:
            self.shapes.append(Words((x0 + x1) / 2, (y0 + y1) / 2 + 4, bar.name, "onbar", anchor="middle"))

    def _rule(self, rule: Rule) -> None:
        if rule.along == "x":
            x, _ = self.at((rule.value, self.chart.y.low))
            top = self.top if rule.upto is None else self.at((rule.value, rule.upto))[1]
            spots = ((x, self.bottom), (x, top))
            places = [
                (x + side * 5, y, anchor)
                for y in (self.bottom - 6, self.bottom - 22, self.bottom - 38, self.bottom - 54)
                for side, anchor in ((-1, "end"), (1, "start"))
            ]
        else:
            _, y = self.at((self.chart.x.low, rule.value))
            spots = ((self.left, y), (self.right, y))
            places = [
                (x, at, anchor)
                for at in (y - 5, y + 14)
                for x, anchor in ((self.right - 4, "end"), (self.left + 4, "start"))
            ]
        self.shapes.append(Stroke(spots, "muted", 1.2, True))
        if rule.name:
            self._best([Words(x, y, rule.name, "ink", anchor=anchor) for x, y, anchor in places])

    def _point(self, sign: str, point: Point) -> None:
        x, y = self.at((point.x, point.y))
        tone = _tone(point.tone)
        self.shapes.append(Dot(x, y, 4.5, tone, point.hollow, f"{sign} {point.name}"))
        around = [
            Words(x + dx, y + dy + 4, sign, tone, anchor=anchor, bold=True)
            for reach in (9.0, 16.0, 24.0, 34.0)
            for dx, dy, anchor in (
                (0.0, reach + 2, "middle"),
                (reach, 0.0, "start"),
                (0.0, -reach - 2, "middle"),
                (-reach, 0.0, "end"),
                (reach * 0.7, reach * 0.8, "start"),
                (-reach * 0.7, -reach * 0.8, "end"),
                (reach * 0.7, -reach * 0.8, "start"),
                (-reach * 0.7, reach * 0.8, "end"),
            )
        ]
        put = self._best(around)
        if put is not None and abs(put.x - x) + abs(put.y - 4 - y) > 15:
            self.shapes.append(Stroke(((x, y), (put.x, put.y - 4)), "muted", 0.8))

    def _best(self, candidates: list[Words]) -> Words | None:
        """Put the first of `candidates` that covers nothing, or the one that crosses fewest lines; none where
        each would cover words or marks (the legend has the name all the same)."""
        inside = [each for each in candidates if self._inside(each)]
        free = [each for each in inside if not any(_meets(each.box, other) for other in self.covered)]
        chosen = min(free, key=lambda each: sum(_meets(each.box, c) for c in self.crossed), default=None)
        if chosen is not None:
            self.shapes.append(chosen)
            left, top, right, bottom = chosen.box
            self.covered.append((left - 2, top, right + 2, bottom))
        return chosen

    def _inside(self, words: Words) -> bool:
        left, top, right, bottom = words.box
        return left >= 2 and right <= self.width - 2 and top >= self.top - 16 and bottom <= self.bottom

    def _legend(self, signs: list[str]) -> float:
        """The names of the lettered points below the picture; where they end."""
        y = self.bottom + 38
        for sign, point in zip(signs, self.chart.points, strict=True):
            rows = _wrapped(point.name, self.right - 5 * GAP, SIZE)
            for i, text in enumerate(rows):
                y += SIZE + 5
                if i == 0:
                    self.shapes.append(Words(2 * GAP, y, sign, _tone(point.tone), bold=True))
                self.shapes.append(Words(4.5 * GAP, y, text, "muted"))
        return y


def _tone(tone: int) -> str:
    return "ink" if tone < 0 else f"s{tone % 6}"


def _meets(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _wrapped(text: str, room: float, size: float) -> list[str]:
    """Lines of `text` that fit into `room` pixels; at least one."""
    most = max(8, int(room / width_of("x", size)))
    return textwrap.wrap(text[:MOST_CHARACTERS], most) or [""]
