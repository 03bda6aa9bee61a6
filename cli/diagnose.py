"""`infercost diagnose`: what binds a deployment, and every lever ranked by what it would gain."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import typer

from .. import InputError
from ..costmodel.batching import Lengths
from ..costmodel.deployment import Deployment
from ..costmodel.diagnosis import OBJECTIVES, Diagnosis, Effect, diagnose, ranked
from ..costmodel.levers import RESOURCES
from ..costmodel.memory import SHARE
from ..costmodel.serving import CHUNK, POLICIES, Workload
from ..costmodel.setting import Setting
from ..costmodel.sharding import Parallel
from ..hardware.catalogue import load_gpu
from ..hardware.engine import load_engine
from . import options as o
from .calibrations import clock_of
from .diagnose_command import deployed
from .diagnose_json import flat, point_of
from .diagnose_screen import screen, sweep
from .groups import grouped
from .inputs import (
    WhatIf,
    choice,
    document,
    each_of,
    encoder_positions,
    grid,
    length_kind,
    models,
    sources_of,
)
from .lever_values import Named, Refused, every_effect, named_levers, together
from .output.report import Sink, emit
from .price import checked_price, usd_per_hour
from .room import FITS
from .runs import run_of
from .sizes import token_list, tokens, words
from .unused import refuse_strangers

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

MAX_POINTS = 50
MAX_GEN = 1 << 24
CONVENTIONS = {
    "before, after": "two evaluations of whole deployments, gain their difference; ttft_s, tpot_s and "
    "usd_per_million_output are those of serve's steady states (expected, or floors with --calibration none; "
    "the host's time is in them with --engine alone), decode steps at their mean context",
    "memory_bytes": "fullest rank: weights, the cache of the whole batch in whole blocks, the widest moment",
    "usd_per_million_output": "price x all devices x time over the tokens out, which pay the prompts too",
    "shares": "of a phase's time by what its operations wait for: arithmetic where their products take "
    "longest at the peak, else their bytes by class; "
    + "; ".join(f"{name}: {text}" for name, text in RESOURCES.items()),
    "verdict": "what the largest share of a phase's time goes to; intensity_verdict: where the intensity of "
    "its step stands to the ridge",
    "intensity": "matrix FLOPs over compulsory bytes of the phase's step",
    "objective": "--for, else memory where it does not fit, else the phase that takes most of a request",
    "order": "by the share saved of the objective's figure; what does not fit comes last",
    "fits": FITS,
    "command": "serve, or diagnose --with: its figures are those after the lever",
    "price": "what a lever costs beside money: none, quality, training, hardware, latency, an assumption",
}


class Terms(NamedTuple):
    """What is asked of every point."""

    objective: str | None
    with_: list[Named]
    against: list[Named]
    calibration: str


class Answer(NamedTuple):
    """One deployment, those that --with (a step for each lever) and --vs make of it, and the levers on the
    last of --with, ranked; `asked`: the options that make it."""

    asked: dict[str, str]
    base: Diagnosis
    steps: list[tuple[str, Diagnosis]]
    other: Diagnosis | None
    against: str
    objective: str
    effects: list[Effect]
    refused: list[Refused]

    @property
    def chosen(self) -> Diagnosis:
        """The deployment that is diagnosed: with the levers of --with."""
        return self.steps[-1][1] if self.steps else self.base


@app.command("diagnose")
@grouped
def diagnose_command(
    ctx: typer.Context,
    *,
    model: o.Model = None,
    gpu: o.Gpu = "a100",
    prompt: o.Prompt = None,
    gen: o.Gen = "256",
    batch: o.Batch = "1",
    objective: Annotated[
        str | None,
        typer.Option("--for", help="Rank by ttft, tpot, memory or usd (default: what binds)."),
    ] = None,
    with_: Annotated[
        str | None,
        typer.Option("--with", help="Levers to apply, one after the other: int4,gqa=8,flash,spec=0.7/4."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option("--vs", help="Other levers on the same base, beside --with (or the base): fp8,tp=2."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every lever and value, also those that do not apply.")
    ] = False,
    top: Annotated[int, typer.Option("--top", help="Levers to show.")] = 6,
    cached: Annotated[
        str | None, typer.Option("--cached", help="First prompt tokens that a prefix cache holds.")
    ] = None,
    policy: Annotated[
        str, typer.Option("--policy", help="static, continuous, chunked or disaggregated.")
    ] = "continuous",
    chunk: Annotated[
        str | None, typer.Option("--chunk", help="Prompt tokens of a step of --policy chunked (512).")
    ] = None,
    lengths: Annotated[
        str, typer.Option("--lengths", help="Lengths out: fixed, exponential or uniform around --gen.")
    ] = "fixed",
    max_len: Annotated[
        str | None,
        typer.Option("--max-len", help="A contiguous cache that reserves so many tokens (default: paged)."),
    ] = None,
    tp: o.Tp = 1,
    pp: o.Pp = 1,
    ep: o.Ep = 1,
    cp: o.Cp = 1,
    engine: o.Times = None,
    weights: o.Weights = None,
    kv_format: o.Kv = None,
    attention: o.AttentionKernel = "flash",
    mla: o.Mla = "auto",
    fusion: o.Fusion = "engine",
    skew: o.Skew = 0.0,
    encoder_seq: o.EncoderSeq = None,
    price: o.Price = None,
    calibration: o.CalibrationOption = "auto",
    what_if: WhatIf,
    sink: Sink,
) -> None:
    """What binds prefill, decode and memory, and every lever ranked by what it would gain.

    \b
    infercost diagnose --model llama-3-8b --gpu h100 --prompt 2k --gen 256
    infercost diagnose --model llama-3-70b --gpu h100 --tp 4 --prompt 8k --batch 16 --for usd
    infercost diagnose --model llama-7b --prompt 2k --with int4,gqa=8,spec=0.7/4
    infercost diagnose --model llama-3-70b --gpu h100 --prompt 4k --with int4 --vs fp8,tp=2
    infercost diagnose --model llama-7b --prompt 2k --attention eager --fusion none --all
    """
    sink.chosen()
    if prompt is None:
        raise InputError("diagnose needs --prompt: how many tokens, such as --prompt 2k")
    if objective is not None:
        choice(objective, tuple(OBJECTIVES), "--for")
    choice(policy, POLICIES, "--policy")
    if chunk is not None and policy != "chunked":
        raise InputError("--chunk belongs to --policy chunked; as a lever it is --with chunked=512")
    lengths = length_kind(lengths)
    checked_price(price)
    if top < 1:
        raise InputError(f"--top is how many levers to show, at least 1, not {top}")
    terms = Terms(
        objective,
        [] if with_ is None else named_levers(with_, "--with", calibration),
        [] if against is None else named_levers(against, "--vs", calibration),
        calibration,
    )
    chosen = models(model, what_if, "diagnose")
    refuse_strangers(ctx, chosen)
    given = words(model or "", "--model")
    parts = words(gpu, "--gpu")
    gpus = [load_gpu(name) for name in parts]
    recipes = each_of(weights, "--weights")
    caches = each_of(kv_format, "--kv")
    axes = (token_list(prompt, "--prompt"), token_list(gen, "--gen"), token_list(batch, "--batch"))
    hit = 0 if cached is None else tokens(cached, "--cached")
    profile = None if engine is None else load_engine(engine)
    answers = []
    for named, (part, device), length, out, many, recipe, cache in grid(
        zip(given, chosen, strict=True),
        zip(parts, gpus, strict=True),
        *axes,
        recipes,
        caches,
        most=MAX_POINTS,
    ):
        if out > MAX_GEN:
            raise InputError(f"--gen {out:,}: at most {MAX_GEN:,} tokens out")
        word, one = named
        run = run_of(
            one,
            recipe,
            cache,
            attention=attention,
            mla=mla,
            fusion=fusion,
            skew=skew,
        )
        clock = clock_of(calibration, device)
        setting = Setting(one, run, device, Parallel(tp, ep, pp, cp), clock, profile).checked()
        plan = Deployment(
            setting,
            Workload(Lengths(lengths, length, out), hit, encoder_positions(one, encoder_seq, length)),
            many,
            policy,
            CHUNK if chunk is None else tokens(chunk, "--chunk"),
            usd_per_hour(device, price),
            None if max_len is None else tokens(max_len, "--max-len"),
        )
        own = {
            "--model": word,
            "--gpu": part,
            "--prompt": str(length),
            "--gen": str(out),
            "--batch": str(many),
            "--weights": recipe,
            "--kv": cache,
        }
        asked = {name: text for name, text in own.items() if text is not None}
        beside = {name: text for name, text in deployed(ctx).items() if name not in own}
        answers.append(_answer(asked | beside, plan, terms))
    points = [point_of(answer) for answer in answers]
    inputs: dict[str, Any] = {
        "command": "diagnose",
        "what_if": what_if.given(),
        "policy": policy,
        "chunk": answers[0].base.plan.chunk if policy == "chunked" else None,
        "lengths": lengths,
        "cached": hit,
        "max_len": answers[0].base.plan.reserved,
        "with": [one.name for one in terms.with_],
        "vs": [one.name for one in terms.against],
        "attention": attention,
        "mla": mla,
        "fusion": fusion,
        "skew": skew,
        "share": SHARE,
        "engine": profile.name if profile else None,
        "calibration": calibration,
    }
    sources = sources_of(gpus, chosen)
    listed = len(points) > 1
    final = sweep(answers, points) if listed else screen(answers[0], every, top)
    final.document = document("diagnose", inputs, CONVENTIONS, sources, points, listed, chosen)
    final.records = [row for point in points for row in flat(point)]
    final.quiet = [repr(_best_saving(answer)) for answer in answers]
    emit(final, sink)


def _answer(asked: dict[str, str], plan: Deployment, terms: Terms) -> Answer:
    base = diagnose(plan)
    steps = list(together(plan, terms.with_, "--with"))
    other = None
    for _, found in together(plan, terms.against, "--vs"):
        other = found
    chosen = steps[-1][1] if steps else base
    objective = terms.objective or chosen.objective
    if getattr(chosen.figures, OBJECTIVES[objective]) is None:
        way = "give --price" if objective == "usd" else "give --gen 2 or more"
        raise InputError(f"--for {objective}: there is no such figure here; {way}")
    effects, refused = every_effect(chosen, asked["--model"], terms.calibration)
    against = ",".join(one.name for one in terms.against)
    return Answer(asked, base, steps, other, against, objective, ranked(effects, objective), refused)


def _best_saving(answer: Answer) -> float:
    """Share of the objective's figure that the best lever saves; 0 where none does."""
    figure = OBJECTIVES[answer.objective]
    return max([0.0, *(one.saved(figure) or 0.0 for one in answer.effects if one.fits is not False)])
