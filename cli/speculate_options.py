"""What the screens of `infercost speculate` share: the options as given, and settings made of them."""

from __future__ import annotations

import math
from typing import Annotated, Any, NamedTuple

import typer

from .. import InputError
from ..costmodel.setting import Setting
from ..costmodel.sharding import Parallel
from ..hardware.spec import Gpu
from ..models.spec import Model
from . import options as o
from .calibrations import clock_of
from .runs import run_of
from .sizes import tokens, words

DEFAULT_SEQ = "1k"
ALWAYS = ("gpu", "batch", "calibration")
"""Options that have a value whatever is asked."""


class Asked(NamedTuple):
    """The options of one call; None where one was not given."""

    model: o.Model = None
    draft: Annotated[
        str | None,
        typer.Option(
            "--draft",
            "-d",
            help="What drafts: a model, mtp or eagle (one layer like the target's last), lookup (nothing).",
            autocompletion=o.complete_model,
        ),
    ] = None
    alpha: Annotated[
        str | None,
        typer.Option("--alpha", help="Probability that a drafted token is accepted; 0.6,0.8 sweeps."),
    ] = None
    accepted: Annotated[
        float | None,
        typer.Option(
            "--accepted", help="Tokens that a round yields, where they were measured (for --alpha)."
        ),
    ] = None
    gamma: Annotated[
        str | None,
        typer.Option("--gamma", help="Tokens drafted a round; 2,4,8 sweeps (default: the best of 1 to 16)."),
    ] = None
    gpu: o.Gpu = "a100"
    batch: o.Batch = "1"
    seq: o.Seq = None
    tp: Annotated[
        str | None,
        typer.Option("--tp", help="Tensor-parallel ranks; of a cascade, one for all models or one of each."),
    ] = None
    draft_tp: Annotated[
        str | None, typer.Option("--draft-tp", help="Ranks of a draft model (default: as --tp).")
    ] = None
    weights: o.Weights = None
    draft_weights: Annotated[
        str | None, typer.Option("--draft-weights", help="Weight format or recipe of the draft model.")
    ] = None
    kv_format: o.Kv = None
    medusa: Annotated[
        str | None,
        typer.Option(
            "--medusa",
            help="Heads by how often each guesses right: 0.75,0.5; its next guesses too: 0.75/0.1,0.5/0.2.",
        ),
    ] = None
    tree: Annotated[
        str | None, typer.Option("--tree", help="Tokens of the verified tree, its root counted.")
    ] = None
    draft_cost: Annotated[
        float | None,
        typer.Option(
            "--draft-cost", "--c", help="Without a model: a draft pass, in steps of the target (0)."
        ),
    ] = None
    verify_cost: Annotated[
        float | None,
        typer.Option(
            "--verify-cost", "--v", help="Without a model: a verify pass, in steps of the target (1)."
        ),
    ] = None
    host_us_per_layer: Annotated[
        float | None,
        typer.Option(
            "--host-us-per-layer",
            help="Microseconds the host takes to launch a layer, draft and target (0: CUDA graphs; "
            "PyTorch without them takes about 450).",
        ),
    ] = None
    walk: Annotated[
        str | None,
        typer.Option(
            "--walk", help="Rounds as they went: accepted tokens of each, 2,0,1,3; no model needed."
        ),
    ] = None
    every: Annotated[
        str | None, typer.Option("--every", help="Early exit: a head is asked after every so many layers.")
    ] = None
    exit_prob: Annotated[
        float | None,
        typer.Option("--exit-prob", help="Early exit: probability that a token leaves at a check."),
    ] = None
    exits: Annotated[
        str | None,
        typer.Option("--exits", help="Early exit: shares of tokens that leave after layers, 8:0.2,16:0.3."),
    ] = None
    cascade: Annotated[
        str | None,
        typer.Option("--cascade", help="Models from cheap to dear, or what an answer of each costs: 1,10."),
    ] = None
    accept: Annotated[
        str | None,
        typer.Option("--accept", help="Cascade: share of answers taken of each model but the last."),
    ] = None
    scorer: Annotated[
        float | None,
        typer.Option("--scorer", help="Cascade: cost of judging an answer, as those of --cascade."),
    ] = None
    prompt: Annotated[str | None, typer.Option("--prompt", help="Cascade: prompt tokens (1k).")] = None
    gen: Annotated[str | None, typer.Option("--gen", help="Cascade: tokens out (256).")] = None
    price: Annotated[
        float | None,
        typer.Option("--price", help="Cascade: dollars per GPU and hour (default: the sheet's, dated)."),
    ] = None
    rows: Annotated[
        str | None,
        typer.Option("--rows", help="CSV of measured speed-ups with accepted lengths: errors by method."),
    ] = None
    calibration: o.CalibrationOption = "auto"

    def given(self) -> dict[str, Any]:
        """What was given beyond the options that always have a value."""
        return {k: v for k, v in self._asdict().items() if v is not None and k not in ALWAYS}

    def setting(self, model: Model, gpu: Gpu, ranks: int | None = None) -> Setting:
        """`model` on `gpu`, by --weights, --kv, --tp (or `ranks`) and --calibration."""
        run = run_of(model, self.weights, self.kv_format)
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
