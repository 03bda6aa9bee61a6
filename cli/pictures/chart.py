"""What a picture shows, in the units of its data: axes, and what stands between them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from ..text import count, si

Spot = tuple[float, float]
BINARY = {10: "Ki", 20: "Mi", 30: "Gi", 40: "Ti", 50: "Pi", 60: "Ei"}


class Axis(NamedTuple):
    """From `low` to `high`, logarithmic or linear; `ticks` are values and what is written at them."""

    label: str
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = True

    def at(self, value: float) -> float:
        """The share of the axis below `value`: 0 at its low end, 1 at the high one."""
        if self.log:
            low, high = math.log(self.low), math.log(self.high)
            return (math.log(max(value, self.low * 1e-9)) - low) / (high - low)
        return (value - self.low) / (self.high - self.low)


class Line(NamedTuple):
    """Through `spots`; `dots` marks each of them, `filled` colours what is between it and the line before it
    (the first: the axis)."""

    name: str
    spots: tuple[Spot, ...]
    tone: int = 0
    dashed: bool = False
    dots: bool = False
    filled: bool = False


class Point(NamedTuple):
    """A spot that the legend names under a letter; `hollow`: it was measured, not computed."""

    name: str
    x: float
    y: float
    tone: int = 0
    hollow: bool = False


class Rule(NamedTuple):
    """A dashed line across the picture at `value` of the axis `along`, with its name beside it; `upto`: it
    ends there on the other axis."""

    along: str
    value: float
    name: str
    upto: float | None = None


class Bar(NamedTuple):
    """A rectangle between two spots, its name in or beside it."""

    name: str
    low: Spot
    high: Spot
    tone: int = 0


class Chart(NamedTuple):
    """A picture: `about` says in a sentence what it shows, for those who cannot see it."""

    title: str
    about: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...] = ()
    points: tuple[Point, ...] = ()
    rules: tuple[Rule, ...] = ()
    bars: tuple[Bar, ...] = ()
    specks: tuple[Spot, ...] = ()
    rows: int = 16
    """Lines of the terminal, and so the shape everywhere."""


def decades(label: str, values: list[float], name: Callable[[float], str], whole: bool = True) -> Axis:
    """A logarithmic axis over `values`, a tick at each power of ten (with `whole` it begins and ends at one),
    the ends besides where fewer than two are inside."""
    low, high = min(values), max(values)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    last = max(last, first + 1)
    if whole:
        low, high = 10.0**first, 10.0**last
    else:
        low, high = low / 1.2, high * 1.2
    ticks = [10.0**power for power in range(first, last + 1) if low <= 10.0**power <= high]
    if len(ticks) < 3:
        steps = [part * 10.0**power for power in range(first, last + 1) for part in (1, 2, 5)]
        ticks = [value for value in steps if low <= value <= high]
    if len(ticks) < 2:
        ticks = [min(values), max(values)]
    return Axis(label, low, high, tuple((value, name(value)) for value in ticks))


def doublings(label: str, values: list[float], name: Callable[[float], str]) -> Axis:
    """A logarithmic axis with ticks at powers of two, at most eight of them."""
    first, last = math.floor(math.log2(min(values))), math.ceil(math.log2(max(values)))
    last = max(last, first + 1)
    step = max(1, -(-(last - first) // 8))
    ticks = tuple((2.0**power, name(2.0**power)) for power in range(first, last + 1, step))
    return Axis(label, 2.0**first, 2.0**last, ticks)


def upwards(label: str, most: float, name: Callable[[float], str], binary: bool = False) -> Axis:
    """A linear axis from 0 to a little above `most` with four to eight round ticks."""
    most = most or 1.0
    base = 2.0 ** (math.floor(math.log2(most)) // 10 * 10) if binary else 1.0
    rough = most / base / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = base * power * next(part for part in (1, 2, 5, 10) if part * power >= rough)
    ticks = tuple((i * step, name(i * step)) for i in range(int(most * 1.05 / step) + 1))
    return Axis(label, 0.0, most * 1.08, ticks, log=False)


def tokens_name(value: float) -> str:
    """`512`, `32k`, `1M`: powers of two as they are typed."""
    whole = round(value)
    for factor, letter in ((1 << 20, "M"), (1 << 10, "k")):
        if whole >= factor and whole % factor == 0:
            return f"{whole // factor:,}{letter}"
    return count(whole)


def bytes_name(value: float) -> str:
    """`40 GiB`, `512 MiB`: a tick's bytes in as few digits as it takes."""
    power = min(max(int(math.log2(value)) // 10 * 10, 0), 60) if value >= 1 else 0
    return f"{value / 2.0**power:.4g} {BINARY.get(power, '')}B" if value else "0"


def rate_name(unit: str) -> Callable[[float], str]:
    """Round values with a decimal prefix: `10 TFLOP/s`."""

    def name(value: float) -> str:
        text = si(value, unit).split(" ", 1)
        short = f"{float(text[0].replace(',', '')):g}"
        return f"{short} {text[1]}" if len(text) > 1 else short

    return name


def seconds_name(value: float) -> str:
    """`100 ms`, `2 s`: a tick's seconds."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= scale * 0.999:
            return f"{value / scale:.3g} {unit}"
    return f"{value * 1e9:.3g} ns" if value else "0"


def count_name(value: float) -> str:
    """`5,000`, `0.5`: a tick that counts."""
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def plain_name(value: float) -> str:
    """`0.01`, `100`, `1e6`: a tick without a unit."""
    return f"{value:g}" if 1e-4 <= value < 1e5 else f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-")


def letters(many: int) -> list[str]:
    """A letter for each of the legend's points, in order; `*` from the 53rd on."""
    return [chr(ord("A") + i) if i < 26 else chr(ord("a") + i - 26) if i < 52 else "*" for i in range(many)]
