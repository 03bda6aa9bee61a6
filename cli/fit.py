"""`infercost fit`: does it fit, how long a context, how many at once, how many GPUs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .. import InfercostError, InputError
from ..costmodel.memory import (
    Given,
    Load,
)
from ..costmodel.setting import Setting
from ..costmodel.sharding import Parallel
from ..models.catalogue import load_model
from . import options as o
from .engine_flags import CONCATENATING, Flags, read_by, refuse_unread
from .fit_answer import answer_of, as_row, point_of
from .fit_screen import draw_memory, screen, several
from .groups import grouped
from .inputs import (
    WhatIf,
    document,
    each_of,
    encoder_positions,
    gpus_of,
    grid,
    lengths,
    models,
    one_value,
    sources_of,
    whole_context,
)
from .output.report import Sink, emit
from .pictures.file import check_plot
from .runs import run_of
from .sizes import byte_size, token_list
from .text import size

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

MOST_POINTS = 1000
CONVENTIONS = {
    "budget_bytes": "share of the card's capacity (what a program can have, else what the driver reports, "
    "else the label); the rest is left for context, NCCL, CUDA graphs and fragments. With --engine by its "
    "rule: vllm a share of the total, tensorrt-llm a share of what is free beside everything else, sglang a "
    "share for weights and cache, lmdeploy a share of what the weights leave",
    "terms": "of the fullest rank: weights, the cache of all sequences at --seq tokens, the widest moment "
    "of a prefill step of at most inputs.chunk tokens (encoders: whole sequences, as many as that holds). "
    "With --engine vllm of its trial run: a full step, its scores as they are sampled from, experts' "
    "workspaces, padded weights",
    "max_seq": "most tokens of each of --batch sequences; null where any length fits",
    "max_batch": "most whole sequences of --seq tokens; null where any number fits",
    "max_concurrency": "what weights and activations leave, over the cache of one sequence",
    "gpus_needed": "fewest ranks: tensor parallelism by powers of two as far as it divides, then pipelining",
    "ep": "without --tp each rank has sequences of its own: --batch and what follows from it are of one rank",
    "engine": "hf: the cache grows by concatenation, the old one beside the new (transformers up to 4.35); "
    "the others: blocks, groups and pools as they cut them, their own reserves as terms",
    "logits_bytes": "scores of one step of --batch sequences on a rank, in the activations' type",
    "smallest_share": "least share of the engine's rule at which it fits",
}


class DoesNotFitError(InfercostError):
    """`--require` and a bill beyond the budget."""

    exit_code = 1


@app.command()
@grouped
def fit(
    ctx: typer.Context,
    *,
    model: o.Model = None,
    gpu: o.Gpu = "a100",
    seq: Annotated[
        str | None,
        typer.Option(
            "--seq",
            "-s",
            "--context",
            "--ctx-size",
            "--max-model-len",
            help="Tokens of each sequence; 2k,32k sweeps; without it the model's whole context.",
        ),
    ] = None,
    batch: o.Batch = "1",
    share: Annotated[
        float | None,
        typer.Option(
            "--share",
            "--gpu-memory-utilization",
            "--mem-fraction-static",
            "--free-gpu-memory-fraction",
            help="Share of the card that may be taken (0.9), by the engine's rule: of the total or of what "
            "is free.",
        ),
    ] = None,
    chunk: o.BatchedTokens = None,
    tp: o.Tp = 1,
    pp: o.Pp = 1,
    ep: o.Ep = 1,
    weights: o.Weights = None,
    kv_format: o.Kv = None,
    encoder_seq: o.EncoderSeq = None,
    flags: Flags,
    cuda_context: Annotated[
        str | None, typer.Option("--cuda-context", help="CUDA context on a rank (default: the engine's).")
    ] = None,
    nccl: Annotated[str | None, typer.Option("--nccl", help="NCCL's buffers on a rank.")] = None,
    graphs: Annotated[str | None, typer.Option("--graphs", help="CUDA graphs on a rank.")] = None,
    draft: Annotated[str | None, typer.Option("--draft", help="A draft model held beside it.")] = None,
    weight_bytes: Annotated[
        str | None, typer.Option("--weight-bytes", help="Size of the weights, where it is known: 18GiB.")
    ] = None,
    non_kv: Annotated[
        str | None,
        typer.Option("--non-kv", help="All that is no cache on a rank, where it was measured: 20GiB."),
    ] = None,
    capacity: o.Capacity = None,
    actual: Annotated[
        str | None,
        typer.Option("--actual", help="Bytes that were seen (18.9GB, 17GiB): beside the estimate."),
    ] = None,
    plot: o.Plot = None,
    require: Annotated[bool, typer.Option("--require", help="Exit 1 where it does not fit.")] = False,
    what_if: WhatIf,
    sink: Sink,
) -> None:
    """Does it fit: the memory bill, the longest context, the most sequences, the fewest GPUs.

    \b
    infercost fit --model llama-3-8b --gpu rtx4090
    infercost fit --model llama-3-70b --gpu h100 --seq 32k --batch 4
    infercost fit --model llama-3-8b --gpu rtx4090 --seq 128k --kv fp8
    infercost fit --model gpt-oss-120b --gpu h100 --engine vllm --max-model-len 128k
    infercost fit --model llama-3-8b --gpu rtx4090 --engine llama.cpp --weights q4_k_m --seq 32k
    infercost fit --model deepseek-v3 --gpu h200 --tp 8 --seq 64k
    infercost fit --model llama-3-70b --gpu all --seq 8k
    infercost fit --model llama-3-8b --gpu h100 --seq 32k --batch 8 --plot memory.svg
    """
    sink.chosen()
    check_plot(plot)
    if share is not None and not 0 < share <= 1:
        raise InputError(f"--share is a part of the card, above 0 and up to 1, not {share:g}")
    flags = flags.checked()
    refuse_unread(ctx, flags.engine, read_by)
    given = Given(
        *(
            _size(text, option)
            for text, option in (
                (weight_bytes, "--weight-bytes"),
                (non_kv, "--non-kv"),
                (cuda_context, "--cuda-context"),
                (nccl, "--nccl"),
                (graphs, "--graphs"),
                (capacity, "--capacity"),
                (flags.budget, "--kv-budget"),
            )
        )
    )._replace(blocks=flags.blocks)
    drafting = None if draft is None else load_model(one_value(draft, "--draft", "fit"))
    seen = None if actual is None else byte_size(actual, "--actual")
    parallel = Parallel(tp, ep, pp)
    chosen = models(model, what_if, "fit")
    gpus = gpus_of(gpu)
    recipes = each_of(weights, "--weights")
    caches = each_of(kv_format, "--kv")
    asked: list[int | None] = [None] if seq is None else [*lengths(seq, "fit")]
    answers = []
    for one, device, given_length, many, recipe, cache in grid(
        chosen, gpus, asked, token_list(batch, "--batch"), recipes, caches, most=MOST_POINTS
    ):
        length = whole_context(one) if given_length is None else given_length
        run = run_of(one, recipe, cache)
        setting = Setting(one, run, device, parallel).checked()
        encoder = encoder_positions(one, encoder_seq, length)
        follows = one.encoder is not None and encoder_seq is None and not one.encoder.positions
        load = Load(
            length,
            many,
            share,
            flags.chunk_tokens(device),
            encoder,
            flags.engine == CONCATENATING,
            follows,
            reserve=flags.reserve(device),
            given=given,
            draft=drafting,
        )
        answers.append(answer_of(load, setting))
    points = [point_of(answer) for answer in answers]
    listed = len(points) > 1
    if listed and seen is not None:
        raise InputError("--actual is what one run took: give one of each option")
    inputs: dict[str, Any] = {
        "command": "fit",
        "what_if": what_if.given(),
        "share": share,
        "chunk": chunk and flags.chunk_tokens(None),
        "engine": flags.engine,
        "engine_version": flags.memory.version if flags.memory else None,
        "given": {name: value for name, value in given._asdict().items() if value is not None},
        "draft": drafting.name if drafting else None,
        "actual_bytes": seen,
    }
    sources = sources_of(gpus, chosen)
    final = several(answers, points) if listed else screen(answers[0], points[0], seen, seq is None)
    if seq is None:
        final.notes.insert(0, "no --seq: the model's whole context, as engines take it")
    final.document = document("fit", inputs, CONVENTIONS, sources, points, listed, chosen)
    final.records = [as_row(point) for point in points]
    final.quiet = ["inf" if a.concurrency is None else repr(a.concurrency) for a in answers]
    if plot is not None:
        draw_memory(plot, answers, points)
    emit(final, sink)
    if require and not all(point["fits"] for point in points):
        worst = min(answers, key=lambda answer: answer.free_bytes)
        raise DoesNotFitError(
            f"{worst.setting.model.name} does not fit {worst.setting.gpu.name}: "
            f"{size(-worst.free_bytes)} too much"
        )


def _size(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    return 0 if text.strip() in ("0", "0GiB", "0B") else byte_size(text, option)
