"""`infercost request`: what one request takes, from prompt to last token."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .. import InputError
from ..costmodel.disaggregated import Prefiller
from ..costmodel.offload import Offload
from ..costmodel.request import Request
from ..costmodel.setting import Setting
from ..costmodel.sharding import Parallel
from ..hardware.catalogue import load_gpu
from ..hardware.engine import load_engine
from . import options as o
from .calibrations import clock_of
from .flat import flat
from .groups import grouped
from .inputs import (
    WhatIf,
    choice,
    document,
    each_of,
    encoder_positions,
    gpus_of,
    grid,
    models,
    reads_through_encoder,
    sources_of,
)
from .output.report import Sink, emit
from .pictures.file import check_plot
from .placed import placed
from .price import checked_price
from .request_answer import answer_of
from .request_json import point_of
from .request_screen import draw_timelines, screen, several
from .room import FITS
from .runs import run_of
from .sizes import token_list, tokens
from .steps import MAX_STEPS
from .unused import given, refuse_strangers

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

MAX_REQUESTS = 200
NOT_IN_CSV = ("phases", "timeline", "price", "no_cache", "measured")
CONVENTIONS = {
    "ttft_s": "the prefill of what is not cached; the first token comes out of it",
    "tpot_s": "mean of the G - 1 decode steps, the i-th at a context of prompt + i tokens",
    "e2e_s": "the prefill and every decode step, kernels and collectives one after the other; the host's "
    "time between launches is in the expected times with --engine; queueing and tokenising are not in it",
    "bound": "max(matmul FLOPs / peak, compulsory bytes / bandwidth) of each step",
    "floor": "sum over kernels of max(matmul / peak, vector / fp32 peak, bytes / bandwidth), and collectives "
    "at the rate of their link",
    "expected": "the kernel-time model with the GPU's calibration, with --engine as that engine's measured "
    "requests took (hardware/engines/); null with --calibration none",
    "kv_transfer_s": "with --prefill-gpu: the prompt's cache over --transfer, between prefill and decode",
    "offload": "weights and cache in the host's memory cross --host-link in every step, beside the kernels",
    "mfu": "matrix FLOPs over what the devices could do in the expected time (else in the floor)",
    "mbu": "weights read and cache touched, over what the devices could move in that time",
    "peak_memory_bytes": "fullest rank: weights, cache of prompt + gen - 1 tokens, widest moment of a "
    "prefill in chunks of 8,192 tokens (with --engine: its own); without what an engine reserves",
    "fits": FITS,
    "energy_j": "board power x devices x expected time, shared by the requests: at most this much for each",
    "timeline": "cache_bytes of all sequences over the whole model, copies on several ranks counted once",
    "usd": "price x devices x expected time, shared by the requests of the batch; input pays the prefill, "
    "output the decode",
    "tp, pp, ep": "a request passes the pipeline stages in turn; ep without tp: --batch is of each rank",
}


@app.command()
@grouped
def request(
    ctx: typer.Context,
    *,
    model: o.Model = None,
    gpu: o.Gpu = "a100",
    prompt: o.Prompt = None,
    gen: o.Gen = "256",
    batch: o.Batch = "1",
    cached: Annotated[
        str | None, typer.Option("--cached", help="Prompt tokens that a prefix cache holds already.")
    ] = None,
    phase: Annotated[
        str,
        typer.Option(
            "--phase", help="both, prefill (no decode steps), or decode (one step at --seq tokens)."
        ),
    ] = "both",
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Beside it, the same request with no KV cache at all.")
    ] = False,
    tp: o.Tp = 1,
    pp: o.Pp = 1,
    ep: o.Ep = 1,
    cp: o.Cp = 1,
    engine: o.Times = None,
    offload_layers: o.OffloadLayers = 0,
    offload_kv: o.OffloadCache = False,
    host_link: o.HostLink = None,
    prefill_gpu: Annotated[
        str | None,
        typer.Option("--prefill-gpu", help="Prefill on GPUs of its own (disaggregated): which."),
    ] = None,
    prefill_tp: Annotated[
        int | None, typer.Option("--prefill-tp", help="Ranks of the prefill (default: --tp).")
    ] = None,
    transfer: Annotated[
        float | None,
        typer.Option(
            "--transfer", help="GB/s between prefill and decode GPUs, a rank (default 50: 400 Gb/s)."
        ),
    ] = None,
    measured: Annotated[
        str | None,
        typer.Option(
            "--measured",
            help="A run beside it: JSON of vllm bench or genai-perf, JSON or CSV of llama-bench.",
        ),
    ] = None,
    weights: o.Weights = None,
    kv_format: o.Kv = None,
    attention: o.AttentionKernel = "flash",
    mla: o.Mla = "auto",
    fusion: o.Fusion = "engine",
    full_attention: o.FullAttention = False,
    skew: o.Skew = 0.0,
    encoder_seq: o.EncoderSeq = None,
    price: o.Price = None,
    calibration: o.CalibrationOption = "auto",
    plot: o.Plot = None,
    what_if: WhatIf,
    sink: Sink,
) -> None:
    """One request: time to first token, per token, end to end; memory, energy, dollars.

    \b
    infercost request --model llama-3-8b --gpu h100 --prompt 2k --gen 256
    infercost request --model llama-3-70b --gpu h100 --tp 4 --prompt 8k --cached 6k --batch 16
    infercost request --model llama-7b --prompt 2048 --gen 256 --no-cache
    infercost request --model deepseek-v3 --gpu h200 --tp 8 --prompt 1k,4k,16k --csv
    infercost request --model llama-3-8b --gpu rtx4090 --engine llama.cpp --weights q4_k_m --prompt 512
    infercost request --model llama-3-8b --gpu h100 --prompt 8k --gen 512 --plot timeline.svg
    infercost request --model llama-3-70b --gpu h20 --tp 4 --prefill-gpu h100 --prompt 8k
    infercost request --model llama-3-8b --gpu rtx4090 --engine llama.cpp --measured llama-bench.json
    """
    sink.chosen()
    check_plot(plot)
    choice(phase, ("both", "prefill", "decode"), "--phase")
    ran = None
    if measured is not None:
        from ..probes.measured_run import measured_run

        ran = measured_run(measured)
    if prompt is None and ran is not None:
        prompt = str(max((one.prompt for one in ran.seen), default=1) or 1)
        if "--gen" not in given(ctx):
            gen = str(max((one.gen for one in ran.seen), default=2) or 2)
        if "--batch" not in given(ctx):
            batch = str(max((one.batch for one in ran.seen), default=1))
    if prompt is None:
        raise InputError("request needs --prompt: how many tokens, such as --prompt 2k")
    if phase == "decode" and (cached is not None or no_cache):
        raise InputError(
            "--phase decode is one step at --seq tokens: --cached and --no-cache are of a prompt"
        )
    checked_price(price)
    parallel = Parallel(tp, ep, pp, cp)
    profile = None if engine is None else load_engine(engine)
    left = None
    if offload_layers or offload_kv:
        left = Offload(offload_layers, offload_kv, (32.0 if host_link is None else host_link) * 1e9)
    elif host_link is not None:
        raise InputError("--host-link is of what stays on the host: give --offload-layers or --offload-kv")
    if transfer is not None and prefill_gpu is None:
        raise InputError("--transfer is between two sets of GPUs: give --prefill-gpu")
    transfer = 50.0 if transfer is None else transfer
    if not 1e-3 <= transfer <= 1e5:
        raise InputError(f"--transfer is GB/s between 0.001 and 100,000, not {transfer:g}")
    apart = None if prefill_gpu is None else load_gpu(prefill_gpu)
    if apart is None and prefill_tp is not None:
        raise InputError("--prefill-tp is of a prefill on GPUs of its own: give --prefill-gpu")
    if apart is not None and (pp > 1 or ep > 1 or cp > 1 or phase != "both"):
        raise InputError("--prefill-gpu goes with --tp alone, and with both phases")
    chosen = models(model, what_if, "request")
    refuse_strangers(ctx, chosen)
    gpus = gpus_of(gpu)
    recipes = each_of(weights, "--weights")
    caches = each_of(kv_format, "--kv")
    lengths, outs, batches = (
        token_list(prompt, "--prompt"),
        token_list(gen, "--gen"),
        token_list(batch, "--batch"),
    )
    hit = 0 if cached is None else tokens(cached, "--cached")
    answers = []
    for one, device, length, out, many, recipe, cache in grid(
        chosen, gpus, lengths, outs, batches, recipes, caches, most=MAX_REQUESTS
    ):
        if out > MAX_STEPS:
            raise InputError(f"--gen {out:,}: at most {MAX_STEPS:,} tokens out are added up")
        run = run_of(
            one,
            recipe,
            cache,
            attention=attention,
            mla=mla,
            fusion=fusion,
            full_attention=full_attention,
            skew=skew,
        )
        setting = Setting(one, run, device, parallel, clock_of(calibration, device), profile, left).checked()
        positions = encoder_positions(one, encoder_seq, length)
        begun = 1 if reads_through_encoder(one, encoder_seq) and phase != "decode" else length
        asked = Request(begun, out, many, hit, positions)
        other = None
        if apart is not None:
            ranks = Parallel(tp=tp if prefill_tp is None else prefill_tp)
            other = Prefiller(
                setting._replace(gpu=apart, parallel=ranks, clock=clock_of(calibration, apart), offload=None),
                transfer * 1e9,
            )
        answers.append(answer_of(setting, asked, phase, no_cache, price, other))
    points = [point_of(answer, price) for answer in answers]
    inputs: dict[str, Any] = {
        "command": "request",
        "what_if": what_if.given(),
        "phase": phase,
        "attention": attention,
        "mla": mla,
        "fusion": fusion,
        "full_attention": full_attention,
        "skew": skew,
        "calibration": calibration,
        "engine": profile.name if profile else None,
        "offload": left._asdict() if left else None,
        "transfer_bytes_per_s": transfer * 1e9 if apart else None,
    }
    sources = sources_of([*gpus, apart] if apart else gpus, chosen)
    if ran is not None:
        if len(answers) > 1:
            raise InputError("--measured is one run: give one of each option")
        points[0]["measured"] = placed(answers[0].setting, ran)
    listed = len(points) > 1
    final = several(answers, points, price) if listed else screen(answers[0], points[0], price)
    final.document = document("request", inputs, CONVENTIONS, sources, points, listed, chosen)
    final.records = [flat(point, NOT_IN_CSV) for point in points]
    if plot is not None:
        draw_timelines(plot, answers, points)
    final.quiet = [repr(answer.whole.best) for answer in answers]
    emit(final, sink)
