"""`infercost compress`: what pruning and distillation save, and what they cost first."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .. import InputError
from ..costmodel.compression import Kept
from ..costmodel.request import Request
from ..costmodel.setting import Setting
from ..costmodel.sharding import Parallel
from ..hardware.catalogue import load_gpu
from ..hardware.spec import Gpu
from . import options as o
from . import training as t
from .calibrations import clock_of
from .groups import grouped
from .inputs import (
    WhatIf,
    document,
    each_of,
    encoder_positions,
    grid,
    models,
    sources_of,
)
from .output.report import Sink, emit
from .pruning import answer_of, point_of
from .pruning_screen import row, screen, sweep
from .runs import run_of
from .sizes import token_list, words
from .steps import MAX_STEPS
from .unused import refuse, refuse_all_but
from .zeros import CONVENTIONS as ZERO_CONVENTIONS
from .zeros import DENSE, Zeros, bare, zeros_of

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

MAX_POINTS = 200
PRUNED = ("--keep-layers", "--keep-heads", "--keep-kv-heads", "--keep-ffn", "--keep-experts", "--keep-hidden")
NOT_DISTILLED = (*PRUNED, "--to", "--sparsity", "--storage", "--kernel", "--pretrain-tokens")
DISTILLED = ("--distil", "--student", "--examples", "--api-price", "--vocab", "--top-k")
CONVENTIONS = {
    "before, after": "the same request on both: a prefill of prompt tokens and gen - 1 decode steps",
    "weight_bytes": "resident while it runs; stored_bytes: in the file",
    "ratios": "after / before",
    "matmul_flops": "of one rank of each pipeline stage",
    "repaid_after_requests": "training dollars over dollars saved a request",
    **ZERO_CONVENTIONS,
    **t.CONVENTIONS,
}


@app.command()
@grouped
def compress(
    ctx: typer.Context,
    *,
    model: o.Model = None,
    gpu: o.Gpu = "a100",
    keep_layers: Annotated[int | None, typer.Option("--keep-layers", help="Layers that stay.")] = None,
    keep_heads: Annotated[
        int | None, typer.Option("--keep-heads", help="Query heads that stay (K and V of MHA with them).")
    ] = None,
    keep_kv_heads: Annotated[int | None, typer.Option("--keep-kv-heads", help="KV heads that stay.")] = None,
    keep_ffn: Annotated[
        int | None, typer.Option("--keep-ffn", help="Channels of every dense MLP that stay.")
    ] = None,
    keep_experts: Annotated[
        int | None, typer.Option("--keep-experts", help="Routed experts of a layer that stay.")
    ] = None,
    keep_hidden: Annotated[
        int | None, typer.Option("--keep-hidden", help="Channels of the residual stream that stay.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", "--structured", help="What is left: a model of any form, or a size (2.7b)."),
    ] = None,
    sparsity: Annotated[
        str | None, typer.Option("--sparsity", help="Share of the weights that is zero: 0.6; 0.5,0.6 sweeps.")
    ] = None,
    stored: Annotated[
        str | None,
        typer.Option(
            "--storage", "--pattern", help="How zeros are stored: dense, bitmap, csr16, csr32, 2:4."
        ),
    ] = None,
    kernel: Annotated[
        bool | None,
        typer.Option(
            "--kernel/--no-kernel",
            help="A kernel reads what is stored (default: 2:4 on a GPU that has units for it).",
        ),
    ] = None,
    distil: Annotated[bool, typer.Option("--distil", help="Distil --teacher into --student.")] = False,
    teacher: Annotated[
        str | None, typer.Option("--teacher", help="Model or size (70b); beside pruning: it teaches.")
    ] = None,
    student: Annotated[
        str | None, typer.Option("--student", help="Model or size (7b); default --model.")
    ] = None,
    retrain_tokens: Annotated[
        str | None,
        typer.Option("--retrain-tokens", "--tokens", help="Tokens trained on afterwards: 50e9, 50B."),
    ] = None,
    pretrain_tokens: Annotated[
        str | None, typer.Option("--pretrain-tokens", help="Tokens --model was trained on, to compare: 2T.")
    ] = None,
    examples: Annotated[
        str | None,
        typer.Option("--examples", help="Black box: the teacher writes --gen tokens for so many prompts."),
    ] = None,
    api_price: Annotated[
        str | None,
        typer.Option(
            "--api-price", help="Dollars per million tokens in and out of a teacher behind an API: 2,8."
        ),
    ] = None,
    vocab: Annotated[
        int | None, typer.Option("--vocab", help="Words of a soft label (default: the models').")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option("--top-k", help="Soft labels keep the likeliest so many.")
    ] = None,
    mfu: Annotated[float, typer.Option("--mfu", help="Share of the peak that training reaches.")] = 0.4,
    price: o.Price = None,
    prompt: Annotated[
        str, typer.Option("--prompt", "--seq", "-s", help="Prompt tokens; 1k,4k sweeps.")
    ] = "1k",
    gen: o.Gen = "256",
    batch: o.Batch = "1",
    tp: o.Tp = 1,
    pp: o.Pp = 1,
    ep: o.Ep = 1,
    weights: o.Weights = None,
    kv_format: o.Kv = None,
    calibration: o.CalibrationOption = "auto",
    sink: Sink,
) -> None:
    """What pruning and distillation save, and what they cost first: bytes, FLOPs, time, dollars.

    \b
    infercost compress --model llama-2-7b --keep-hidden 2560 --keep-heads 20 --keep-ffn 6912
    infercost compress --model llama-2-7b --to 2.7b --retrain-tokens 50B --pretrain-tokens 2T
    infercost compress --model llama-3-8b --gpu h100 --storage 2:4
    infercost compress --model llama-3-70b --sparsity 0.6 --storage bitmap --kernel
    infercost compress --sparsity 0.5,0.6,0.9
    infercost compress --distil --teacher llama-3-70b --student llama-3-8b --tokens 10B
    infercost compress --distil --teacher llama-3-70b --student 8b --examples 100k --prompt 300 --gen 500
    """
    sink.chosen()
    kept = Kept(keep_layers, keep_heads, keep_kv_heads, keep_ffn, keep_experts, keep_hidden)
    tokens = t.token_count(retrain_tokens, "--retrain-tokens")
    pretrained = t.token_count(pretrain_tokens, "--pretrain-tokens")
    gpus = [load_gpu(name) for name in words(gpu, "--gpu")]
    parallel = Parallel(tp, ep, pp)
    zeros = zeros_of(sparsity, stored)
    if distil:
        refuse(ctx, "--distil", NOT_DISTILLED, "a student has a form of its own")
        from .distil import Lesson, distilled

        lesson = Lesson(teacher, student or model, tokens, examples, api_price, vocab, top_k)
        how = (prompt, gen, batch, weights, kv_format, calibration)
        emit(distilled(lesson, _single(gpus), parallel, mfu, price, *how), sink)
        return
    refuse(ctx, "", DISTILLED, "give --distil")
    if not (kept.given() or to or zeros):
        raise InputError(
            "compress needs what to do: --keep-... or --to (structured), --sparsity or --storage "
            "(unstructured), or --distil"
        )
    if to and (kept.given() or zeros):
        raise InputError(
            "--to says all that is left; it does not go with --keep-..., --sparsity or --storage"
        )
    if kernel is not None and not any(each.sparse for each in zeros):
        raise InputError("--kernel and --no-kernel are of --storage bitmap, csr16, csr32 or 2:4")
    if not model and zeros and not kept.given():
        why = "storage alone is of no model; give --model for its bytes, times and dollars"
        refuse_all_but(ctx, "", ("--sparsity", "--storage"), why)
        emit(bare(zeros), sink)
        return
    chosen = models(model, WhatIf(), "compress")
    target = t.sized(to, "--to") if to else None
    taught = t.sized(teacher, "--teacher") if teacher else None
    if tokens is None and (taught or pretrained):
        raise InputError("--teacher and --pretrain-tokens are of a re-training: give --retrain-tokens")
    axes = (
        chosen,
        gpus,
        token_list(prompt, "--prompt"),
        token_list(gen, "--gen"),
        token_list(batch, "--batch"),
        each_of(weights, "--weights"),
        each_of(kv_format, "--kv"),
        zeros or [Zeros(0.0, DENSE)],
    )
    answers = []
    for one, device, length, out, many, recipe, cache, share in grid(*axes, most=MAX_POINTS):
        if out > MAX_STEPS:
            raise InputError(f"--gen {out:,}: at most {MAX_STEPS:,} tokens out are added up")
        run = run_of(one, recipe, cache)
        setting = Setting(one, run, device, parallel, clock_of(calibration, device)).checked()
        asked = Request(length, out, many, 0, encoder_positions(one, None, length)).checked()
        terms = t.Terms(device, mfu, price).checked()
        answers.append(answer_of(setting, asked, kept, target, share, kernel, terms, tokens, taught))
    points = [point_of(answer, pretrained) for answer in answers]
    listed = len(points) > 1
    inputs: dict[str, Any] = {
        "command": "compress",
        "kept": kept.given(),
        "to": target.name if target else None,
        "kernel": kernel,
        "teacher": taught.name if taught else None,
        "retrain_tokens": tokens,
        "pretrain_tokens": pretrained,
        "mfu": mfu,
        "calibration": calibration,
    }
    named = [*chosen, *(each.model for each in (target, taught) if each and each.model)]
    sources = sources_of(gpus, named)
    final = sweep(answers, points) if listed else screen(answers[0], points[0])
    final.document = document("compress", inputs, CONVENTIONS, sources, points, listed, named)
    final.records = [row(point) for point in points]
    final.quiet = [repr(point["after"]["stored_bytes"]) for point in points]
    emit(final, sink)


def _single(gpus: list[Gpu]) -> Gpu:
    if len(gpus) > 1:
        raise InputError("--distil takes one GPU at a time")
    return gpus[0]
