"""`infercost speculate`: fewer passes of the large model, by drafts, by early exits, or by cascades."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Annotated

import typer

from .. import InputError
from . import options as o
from .groups import grouped
from .output.report import Report, Sink, emit
from .speculate_options import Asked

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

SETTING = ("model", "tp", "weights", "kv_format")
ACCEPTANCE = ("alpha", "accepted", "gamma")
MODES: dict[str, tuple[tuple[str, ...], str, tuple[str, ...]]] = {
    "walk": (("walk",), "speculate_walk", ("gamma", "draft_cost", "verify_cost")),
    "cascade": (
        ("cascade",),
        "speculate_cascade",
        ("accept", "scorer", "prompt", "gen", "price", "tp", "weights", "kv_format"),
    ),
    "early_exit": (("every", "exit_prob", "exits"), "speculate_exit", (*SETTING, "seq")),
    "rows": (("rows",), "speculate_rows", ("host_us_per_layer",)),
    "speculate": (
        (),
        "speculate_rounds",
        (
            *SETTING,
            *ACCEPTANCE,
            "seq",
            "draft",
            "draft_weights",
            "draft_tp",
            "medusa",
            "tree",
            "draft_cost",
            "verify_cost",
            "host_us_per_layer",
        ),
    ),
}
"""By mode: the options that ask for it, where it is written, and what else it takes."""


@app.command()
@grouped
def speculate(
    *,
    model: o.Model = None,
    draft: Annotated[
        str | None,
        typer.Option(
            "--draft",
            "-d",
            help="What drafts: a model, mtp or eagle (one layer like the target's last), lookup (nothing).",
            autocompletion=o.complete_model,
        ),
    ] = None,
    alpha: Annotated[
        str | None,
        typer.Option("--alpha", help="Probability that a drafted token is accepted; 0.6,0.8 sweeps."),
    ] = None,
    accepted: Annotated[
        float | None,
        typer.Option(
            "--accepted", help="Tokens that a round yields, where they were measured (for --alpha)."
        ),
    ] = None,
    gamma: Annotated[
        str | None,
        typer.Option("--gamma", help="Tokens drafted a round; 2,4,8 sweeps (default: the best of 1 to 16)."),
    ] = None,
    gpu: o.Gpu = "a100",
    batch: o.Batch = "1",
    seq: o.Seq = None,
    tp: Annotated[
        str | None,
        typer.Option("--tp", help="Tensor-parallel ranks; of a cascade, one for all models or one of each."),
    ] = None,
    draft_tp: Annotated[
        str | None, typer.Option("--draft-tp", help="Ranks of a draft model (default: as --tp).")
    ] = None,
    weights: o.Weights = None,
    draft_weights: Annotated[
        str | None, typer.Option("--draft-weights", help="Weight format or recipe of the draft model.")
    ] = None,
    kv_format: o.Kv = None,
    medusa: Annotated[
        str | None,
        typer.Option(
            "--medusa",
            help="Heads by how often each guesses right: 0.75,0.5; its next guesses too: 0.75/0.1,0.5/0.2.",
        ),
    ] = None,
    tree: Annotated[
        str | None, typer.Option("--tree", help="Tokens of the verified tree, its root counted.")
    ] = None,
    draft_cost: Annotated[
        float | None,
        typer.Option(
            "--draft-cost", "--c", help="Without a model: a draft pass, in steps of the target (0)."
        ),
    ] = None,
    verify_cost: Annotated[
        float | None,
        typer.Option(
            "--verify-cost", "--v", help="Without a model: a verify pass, in steps of the target (1)."
        ),
    ] = None,
    host_us_per_layer: Annotated[
        float | None,
        typer.Option(
            "--host-us-per-layer",
            help="Microseconds the host takes to launch a layer, draft and target (0: CUDA graphs; "
            "PyTorch without them takes about 450).",
        ),
    ] = None,
    walk: Annotated[
        str | None,
        typer.Option(
            "--walk", help="Rounds as they went: accepted tokens of each, 2,0,1,3; no model needed."
        ),
    ] = None,
    every: Annotated[
        str | None, typer.Option("--every", help="Early exit: a head is asked after every so many layers.")
    ] = None,
    exit_prob: Annotated[
        float | None,
        typer.Option("--exit-prob", help="Early exit: probability that a token leaves at a check."),
    ] = None,
    exits: Annotated[
        str | None,
        typer.Option("--exits", help="Early exit: shares of tokens that leave after layers, 8:0.2,16:0.3."),
    ] = None,
    cascade: Annotated[
        str | None,
        typer.Option("--cascade", help="Models from cheap to dear, or what an answer of each costs: 1,10."),
    ] = None,
    accept: Annotated[
        str | None,
        typer.Option("--accept", help="Cascade: share of answers taken of each model but the last."),
    ] = None,
    scorer: Annotated[
        float | None,
        typer.Option("--scorer", help="Cascade: cost of judging an answer, as those of --cascade."),
    ] = None,
    prompt: Annotated[str | None, typer.Option("--prompt", help="Cascade: prompt tokens (1k).")] = None,
    gen: Annotated[str | None, typer.Option("--gen", help="Cascade: tokens out (256).")] = None,
    price: Annotated[
        float | None,
        typer.Option("--price", help="Cascade: dollars per GPU and hour (default: the sheet's, dated)."),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option("--rows", help="CSV of measured speed-ups with accepted lengths: errors by method."),
    ] = None,
    calibration: o.CalibrationOption = "auto",
    sink: Sink,
) -> None:
    """Fewer passes of a large model: drafts, Medusa heads, MTP, early exit, cascades, and what they gain.

    \b
    infercost speculate --model llama-3-70b --draft llama-3-8b --alpha 0.7 --gpu h100 --tp 4
    infercost speculate --model deepseek-v3 --draft mtp --accepted 1.85 --gamma 1 --gpu h200 --tp 8
    infercost speculate --model llama-7b --medusa 0.75,0.5 --tree 26 --batch 1,8,32
    infercost speculate --alpha 0.667 --gamma 3 --draft-cost 0.05
    infercost speculate --walk 2,0,1,3
    infercost speculate --model llama-7b --every 4 --exit-prob 0.1
    infercost speculate --cascade llama-3-8b,llama-3-70b --accept 0.6 --gpu h100 --tp 1,4
    infercost speculate --rows measured.csv
    """
    sink.chosen()
    asked = Asked(
        model=model,
        draft=draft,
        alpha=alpha,
        accepted=accepted,
        gamma=gamma,
        gpu=gpu,
        batch=batch,
        seq=seq,
        tp=tp,
        draft_tp=draft_tp,
        weights=weights,
        draft_weights=draft_weights,
        kv_format=kv_format,
        medusa=medusa,
        tree=tree,
        draft_cost=draft_cost,
        verify_cost=verify_cost,
        host_us_per_layer=host_us_per_layer,
        walk=walk,
        every=every,
        exit_prob=exit_prob,
        exits=exits,
        cascade=cascade,
        accept=accept,
        scorer=scorer,
        prompt=prompt,
        gen=gen,
        price=price,
        rows=rows,
        calibration=calibration,
    )
    emit(report_of(asked), sink)


def report_of(asked: Asked) -> Report:
    """The report of the one thing asked for. Raises InputError for options that do not go together."""
    given = asked.given()
    mode = next((name for name, (marks, _, _) in MODES.items() if set(marks) & set(given)), "speculate")
    marks, module, others = MODES[mode]
    stray = [name for name in given if name not in (*marks, *others)]
    if stray:
        with_what = next((mark for mark in marks if mark in given), "")
        place = f"does not go with {_option(with_what)}" if with_what else _belongs(stray[0])
        raise InputError(f"{_option(stray[0])} {place}")
    report: Callable[[Asked], Report] = getattr(import_module(f"{__package__}.{module}"), f"{mode}_report")
    return report(asked)


def _option(name: str) -> str:
    return "--kv" if name == "kv_format" else f"--{name.replace('_', '-')}"


def _belongs(name: str) -> str:
    owners = [_option(marks[0]) for marks, _, others in MODES.values() if marks and name in others]
    return f"belongs to {' or '.join(owners)}, which is not asked for"
