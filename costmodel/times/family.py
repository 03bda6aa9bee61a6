"""What a family of kernels is to the time model: its parameters, their ranges, and which are fitted.

A family has more parameters than may be fitted at once; a *form* names the eight (at most) that
are, the others keep the value `fixed` here for every GPU. Seconds come out of a family's function;
parameters carry their unit in the name, and what has none is a share of a datasheet rate, so that
it means the same on another GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Params = Mapping[str, Any]
"""Parameters by name: numbers, or arrays where a fit varies them."""

MOST_FITTED = 8
US = 1e-6
NS = 1e-9


class Parameter(NamedTuple):
    """One constant of a family: where a fit starts, its range, and its value in a form without it.

    `ridge`: weight of a pull towards the start, for constants that few rows do not pin down. One that
    does not travel belongs to the box a GPU stood in, and is not lent to another.
    """

    start: float
    low: float
    high: float
    fixed: float
    meaning: str
    ridge: float = 0.0
    travels: bool = True


class Family(NamedTuple):
    """`forms`: by name, the parameters a fit may move; the fit keeps the form with the least cost.

    `loss` and `scale`: how a fit weighs rows that are far off (scipy's names; log errors).
    """

    name: str
    parameters: Mapping[str, Parameter]
    forms: Mapping[str, tuple[str, ...]]
    loss: str = "soft_l1"
    scale: float = 0.1

    def complete(self, given: Params) -> dict[str, Any]:
        """`given`, and the fixed value of every parameter it does not name."""
        return {name: given.get(name, each.fixed) for name, each in self.parameters.items()}

    def lent(self, given: Params) -> dict[str, Any]:
        """The same for another GPU: without what belongs to the box."""
        return self.complete({name: v for name, v in given.items() if self.parameters[name].travels})


def forms(**texts: str) -> dict[str, tuple[str, ...]]:
    """Forms from lists of names in one string; none has more than `MOST_FITTED`."""
    out = {name: tuple(text.split()) for name, text in texts.items()}
    assert all(len(names) <= MOST_FITTED for names in out.values())
    return out


def cold_share(working_set: Any, l2_bytes: Any, sharpness: int, l2_gain: Any) -> Any:
    """Time of moving bytes of a replayed working set, as a share of what it takes from cold memory.

    Smoothly from 1 (set far larger than L2) to 1 / (1 + l2_gain) (set far smaller). 1 with no gain.
    """
    hit = 1 / (1 + (working_set / l2_bytes) ** sharpness)
    return 1 - hit + hit / (1 + l2_gain)


def switched(size: Any, power: int) -> Any:
    """0 well below 1, 1 well above: how much of a switch between protocols is made."""
    grown = size**power
    return 1 - 1 / (1 + grown)
