"""What a topic has to say: a formula, its letters, its value, and what it changes in the bill."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ...costmodel.op import Number
from ...costmodel.setting import Cost
from ..text import count, number, params, seconds, si, size_both
from .asked import Case

LETTER = re.compile(r"(?<![\w.])[^\W\d_](?:[\w.]*\w)?")
"""A letter of a formula, which may be a word (`mlp`, `attention.qk`); functions (`max`) are no letters."""


class Letter(NamedTuple):
    """A letter of the formula, its value in `unit`, and what it stands for."""

    name: str
    value: Number
    meaning: str
    unit: str = ""


class Line(NamedTuple):
    """A line of the bill, without the topic and with it (or of two cases that `Explained.sides` names)."""

    what: str
    unit: str
    before: Number
    after: Number


class Explained(NamedTuple):
    """A topic evaluated.

    `formula` is arithmetic on `letters` that makes `value`; `source` where it is from; `differs` where a
    textbook and reality part; `bill` what it changes, between two `sides`; `price` what it costs in return;
    `commands` go on from here. `scope`: whether the figures are of a request on a GPU, a model, a gpu, or of
    nothing that was asked about.
    """

    case: Case
    formula: str
    letters: tuple[Letter, ...]
    value: Number
    unit: str
    source: str
    bill: tuple[Line, ...] = ()
    sides: tuple[str, str] = ("without", "with")
    differs: str = ""
    price: str = ""
    commands: tuple[str, ...] = ()
    scope: str = "request"

    @property
    def filled(self) -> str:
        """The formula with numbers for its letters."""
        values = {letter.name: plain(letter.value) for letter in self.letters}
        return LETTER.sub(lambda found: values.get(found[0], found[0]), self.formula)


def plain(value: Number) -> str:
    """A number inside a formula: whole ones of up to 12 digits as they are, others to six digits."""
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer() and abs(value) < 1e9):
        return count(int(value)) if abs(value) < 1e12 else f"{value:.6g}"
    return f"{value:.6g}"


def shown(value: Number, unit: str) -> str:
    """A number with its unit, as it is read anywhere else on a screen."""
    match unit:
        case "bytes":
            return size_both(value)
        case "s":
            return seconds(value)
        case "FLOP":
            return si(value, "FLOP") if value else "0"
        case "FLOP/s" | "B/s" | "tokens/s":
            return si(value, unit)
        case "parameters":
            return params(value)
        case "share":
            return f"{100 * value:.4g} %"
        case "$":
            return f"{value:.4g} dollars"
    text = count(int(value)) if float(value).is_integer() and abs(value) < 1e12 else number(value)
    return f"{text} {unit}".rstrip()


def summed(letters: tuple[Letter, ...]) -> str:
    """The formula of a sum of letters."""
    return " + ".join(letter.name for letter in letters)


def times(name: str, before: Cost, after: Cost) -> list[Line]:
    """A step's bound and, where there is one, its expected time."""
    lines = [Line(f"{name}, bound", "s", before.bound, after.bound)]
    if before.expected is not None and after.expected is not None:
        lines.append(Line(f"{name}, expected", "s", before.expected, after.expected))
    return lines


def three_times(cost: Cost) -> str:
    """A step's bound, floor and expected time in one phrase."""
    said = f"bound {seconds(cost.bound)}, floor {seconds(cost.floor)} kernel by kernel"
    if cost.expected is None:
        return f"{said}; nothing is expected without a calibration"
    return f"{said}, expected {seconds(cost.expected)} ({cost.confidence})"


def as_json(line: Line) -> dict[str, Any]:
    ratio = line.after / line.before if line.before else None
    return {**line._asdict(), "ratio": ratio}
