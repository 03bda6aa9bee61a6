"""What the screens of `infercost speculate` share: the options as given, and settings made of them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from .. import InputError
from ..costmodel.setting import Setting
from ..costmodel.sharding import Parallel
from ..costmodel.step import Run
from ..hardware.spec import Gpu
from ..models.recipes import find_recipe
from ..models.spec import Model
from .calibrations import clock_of
from .inputs import kv_formats
from .sizes import tokens, words

DEFAULT_SEQ = "1k"
ALWAYS = ("gpu", "batch", "calibration")
"""Options that have a value whatever is asked."""


class Asked(NamedTuple):
    """The options of one call; None where one was not given."""

    gpu: str
    batch: str
    calibration: str
    model: str | None = None
    draft: str | None = None
    alpha: str | None = None
    accepted: float | None = None
    gamma: str | None = None
    seq: str | None = None
    tp: str | None = None
    draft_tp: str | None = None
    weights: str | None = None
    draft_weights: str | None = None
    kv_format: str | None = None
    medusa: str | None = None
    tree: str | None = None
    draft_cost: float | None = None
    verify_cost: float | None = None
    host_us_per_layer: float | None = None
    walk: str | None = None
    every: str | None = None
    exit_prob: float | None = None
    exits: str | None = None
    cascade: str | None = None
    accept: str | None = None
    scorer: float | None = None
    prompt: str | None = None
    gen: str | None = None
    price: float | None = None
    rows: str | None = None

    def given(self) -> dict[str, Any]:
        """What was given beyond the options that always have a value."""
        return {k: v for k, v in self._asdict().items() if v is not None and k not in ALWAYS}

    def setting(self, model: Model, gpu: Gpu, ranks: int | None = None) -> Setting:
        """`model` on `gpu`, by --weights, --kv, --tp (or `ranks`) and --calibration."""
        recipe = None if self.weights is None else find_recipe(self.weights)
        run = Run(recipe=recipe, kv=kv_formats(self.kv_format, model)[0])
        parallel = Parallel(self.ranks() if ranks is None else ranks)
        return Setting(model, run, gpu, parallel, clock_of(self.calibration, gpu))

    def ranks(self) -> int:
        return 1 if self.tp is None else tokens(self.tp, "--tp")


def number(text: str, option: str, low: float, high: float) -> float:
    """A plain number between two ends. Raises InputError naming the option."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    return between(value, option, low, high, text)


def between(value: float, option: str, low: float, high: float, text: str | None = None) -> float:
    """`value`, if it is between the two ends."""
    if not low <= value <= high:
        raise InputError(
            f"{option} is between {low:g} and {high:g}, not {text[:40] if text else f'{value:g}'}"
        )
    return value


def numbers(text: str, option: str, low: float, high: float) -> list[float]:
    """One number or several between commas."""
    return [number(part, option, low, high) for part in words(text, option)]


def ratios(asked: Asked) -> tuple[float, float]:
    """--draft-cost and --verify-cost, or a free draft and a verify pass like a step."""
    draft = 0.0 if asked.draft_cost is None else between(asked.draft_cost, "--draft-cost", 0, 1e6)
    verify = 1.0 if asked.verify_cost is None else between(asked.verify_cost, "--verify-cost", 1e-6, 1e6)
    return draft, verify
