"""`infercost request`: what one request takes, from prompt to last token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer

from .. import InputError
from ..costmodel.arith import SplitError
from ..costmodel.disaggregated import Prefiller
from ..costmodel.kv import cache_bill
from ..costmodel.memory import Memory, peak_memory, request_memory, within_room
from ..costmodel.offload import Offload
from ..costmodel.request import Dollars, Request, dollars, energy_j
from ..costmodel.setting import Cost, Setting, step_cost, summed
from ..costmodel.sharding import Parallel
from ..costmodel.step import Run, Step
from ..hardware.catalogue import load_gpu
from ..hardware.engine import load_engine
from ..models.recipes import find_recipe
from . import options as o
from .calibrations import clock_of
from .groups import grouped
from .inputs import (
    WhatIf,
    choice,
    document,
    encoder_positions,
    gpus_of,
    grid,
    inferred_notes,
    kv_formats,
    limit_notes,
    model_source,
    models,
    reads_through_encoder,
    without_constant,
)
from .output.report import Report, Sink, Table, emit
from .pace import pace
from .pictures.file import check_plot
from .placed import placed, placed_table, three
from .price import checked_price, price_json, price_notes, price_of, usd_per_hour
from .room import FITS, TOO_MUCH, too_much
from .sizes import token_list, tokens, words
from .text import count, percent, plain, plural, seconds, si, size, size_both
from .timeline import Block, blocks, picture
from .unused import given, refuse_strangers

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

MAX_REQUESTS = 200
MAX_STEPS = 1 << 20
MOST_LINES = 12
CHUNK = 1 << 14
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
    "prefill in chunks of 8,192 tokens; without what an engine reserves",
    "fits": FITS,
    "energy_j": "board power x devices x expected time, shared by the requests: at most this much for each",
    "timeline": "cache_bytes of all sequences over the whole model, copies on several ranks counted once",
    "usd": "price x devices x expected time, shared by the requests of the batch; input pays the prefill, "
    "output the decode",
    "tp, pp, ep": "a request passes the pipeline stages in turn; ep without tp: --batch is of each rank",
}


class Answer(NamedTuple):
    """One request on one setting, evaluated; `filling`: memory of the GPUs that prefill apart."""

    setting: Setting
    request: Request
    phase: str
    ttft: Cost | None
    decoding: Cost | None
    memory: Memory
    usd: Dollars | None
    blocks: list[Block]
    no_cache: Cost | None
    prefiller: Prefiller | None = None
    filling: Memory | None = None

    @property
    def whole(self) -> Cost:
        """Prefill, transfer and decode."""
        cost = summed([(cost, 1) for cost in (self.ttft, self.decoding) if cost])
        return self.prefiller.delayed(cost, self.request) if self.prefiller else cost

    @property
    def fits(self) -> bool | None:
        """None where the sheet has no capacity."""
        own = within_room(self.memory.total, self.setting.gpu.capacity_bytes)
        if own is False or self.filling is None or self.prefiller is None:
            return own
        apart = within_room(self.filling.total, self.prefiller.setting.gpu.capacity_bytes)
        return apart if own or apart is False else None

    @property
    def energy_j(self) -> float | None:
        """At most so much for each request; None where a sheet names no power."""
        if self.prefiller and self.ttft:
            return self.prefiller.energy_j(self.setting, self.request, self.ttft, self.decoding)
        return energy_j(self.setting, self.request, self.whole.best)

    @property
    def tpot(self) -> dict[str, float | None]:
        if self.decoding is None:
            return {"bound": None, "floor": None, "expected": None}
        return self.decoding.times(1 / self.request.decode_steps)


@app.command()
@grouped
def request(
    ctx: typer.Context,
    *,
    model: o.Model = None,
    gpu: o.Gpu = "a100",
    prompt: Annotated[
        str | None, typer.Option("--prompt", "--seq", "-s", help="Prompt tokens; 1k,4k sweeps.")
    ] = None,
    gen: Annotated[str, typer.Option("--gen", "--out", help="Tokens out; 100,1k sweeps.")] = "256",
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
    recipes = [None] if weights is None else words(weights, "--weights")
    caches = [None] if kv_format is None else words(kv_format, "--kv")
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
        run = Run(
            recipe=None if recipe is None else find_recipe(recipe),
            kv=kv_formats(cache, one)[0],
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
        answers.append(_answer(setting, asked, phase, no_cache, price, other))
    points = [_point(answer, price) for answer in answers]
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
    named = [*gpus, apart] if apart else gpus
    sources = {g.name: g.source for g in named} | {k: v for m in chosen for k, v in model_source(m).items()}
    if ran is not None:
        if len(answers) > 1:
            raise InputError("--measured is one run: give one of each option")
        points[0]["measured"] = placed(answers[0].setting, ran)
    listed = len(points) > 1
    final = _sweep(answers, points, price) if listed else _screen(answers[0], points[0], price)
    final.document = document("request", inputs, CONVENTIONS, sources, points, listed, chosen)
    final.records = [_flat(point) for point in points]
    if plot is not None:
        _draw(plot, answers, points)
    final.quiet = [repr(answer.whole.best) for answer in answers]
    emit(final, sink)


def _answer(
    setting: Setting,
    asked: Request,
    phase: str,
    no_cache: bool,
    price: float | None,
    prefiller: Prefiller | None = None,
) -> Answer:
    """Prefill, every decode step, and what follows from them."""
    if phase == "prefill":
        asked = asked._replace(gen=1)
    if phase == "decode":
        if asked.prompt < 2:
            raise InputError("--phase decode at a context of 1: the new token needs one before it")
        asked = asked._replace(prompt=asked.prompt - 1, gen=2)
    asked.checked()
    first_on = prefiller.setting if prefiller else setting
    ttft = None if phase == "decode" else step_cost(first_on, asked.prefill())
    first = asked.prompt + 1
    steps = steps_at(setting, asked, range(first, first + asked.decode_steps), recount=False)
    decoding = summed(steps) if steps else None
    rate = usd_per_hour(setting.gpu, price)
    usd = None if rate is None else dollars(setting, asked, ttft, decoding, rate)
    if usd and prefiller and ttft:
        usd = prefiller.dollars(setting, asked, ttft, decoding, price)
    if ttft:
        memory = request_memory(setting, asked)
    else:
        memory = peak_memory(setting, asked.held_tokens, asked.batch, asked.decode(first), asked.encoder)
    passes = None
    if no_cache:
        passes = summed(steps_at(setting, asked, range(asked.prompt, asked.prompt + asked.gen), recount=True))

    def held(context: int) -> int:
        return cache_bill(setting.model, context, asked.batch, setting.run.kv, asked.encoder).logical_bytes

    drawn = blocks(asked, ttft.best if ttft else 0.0, steps, held)
    filling = request_memory(prefiller.setting, asked._replace(gen=1)) if prefiller else None
    return Answer(setting, asked, phase, ttft, decoding, memory, usd, drawn, passes, prefiller, filling)


def phases_of(setting: Setting, asked: Request) -> tuple[Cost, Cost | None]:
    """The prefill, and all decode steps together (None where the prefill's token is the only one)."""
    contexts = range(asked.prompt + 1, asked.prompt + 1 + asked.decode_steps)
    steps = steps_at(setting, asked, contexts, recount=False)
    return step_cost(setting, asked.prefill()), summed(steps) if steps else None


MANY_SEQUENCES = 1 << 20
"""From here on a step may be more than arrays can count; below, no model is so large."""
MOST_COUNTED = 1 << 62


def steps_at(setting: Setting, asked: Request, contexts: range, recount: bool) -> list[tuple[Cost, int]]:
    """Steps at all of `contexts`, as arrays of bounded length, each with how many it is of."""
    import numpy as np

    make = asked.recount if recount else asked.decode
    if contexts and asked.batch > MANY_SEQUENCES:
        last = step_cost(setting, make(contexts[-1]))
        if max(last.matmul_flops, last.moved_bytes) > MOST_COUNTED:
            raise InputError(
                f"a step of {asked.batch:,} sequences is {float(last.matmul_flops):.3g} FLOPs, more than "
                "64-bit counts hold; ask for a smaller batch"
            )
    out = []
    for start in range(contexts.start, contexts.stop, CHUNK):
        part = np.arange(start, min(start + CHUNK, contexts.stop), dtype=np.int64)
        out += _agreeing(setting, make, part)
    return out


def _agreeing(setting: Setting, make: Callable[[Any], Step], contexts: Any) -> list[tuple[Cost, int]]:
    """Steps at an array of contexts, halved until all steps of an array take the same kernels."""
    try:
        return [(step_cost(setting, make(contexts)), len(contexts))]
    except SplitError:
        parts = (contexts[: len(contexts) // 2], contexts[len(contexts) // 2 :])
        return [found for part in parts for found in _agreeing(setting, make, part)]


def _point(answer: Answer, price: float | None) -> dict[str, Any]:
    setting, asked, whole = answer.setting, answer.request, answer.whole
    gpu, passes = setting.gpu, answer.no_cache
    confidence = whole.confidence
    single = asked.prompt + 1 if answer.phase == "decode" else asked.prompt
    nothing: dict[str, float | None] = {"bound": None, "floor": None, "expected": None}
    steps = asked.decode_steps
    return {
        "inputs": {
            "model": setting.model.name,
            "gpu": gpu.name,
            "prompt": single,
            "gen": asked.gen if answer.ttft else None,
            "batch": asked.batch,
            "cached": asked.cached,
            "encoder_seq": asked.encoder or None,
            "weights": setting.recipe.name,
            "kv": setting.run.kv.name,
            "tp": setting.parallel.tp,
            "pp": setting.parallel.pp,
            "ep": setting.parallel.ep,
            "cp": setting.parallel.cp,
            "prefill_gpu": answer.prefiller.setting.gpu.name if answer.prefiller else None,
            "prefill_tp": answer.prefiller.setting.parallel.tp if answer.prefiller else None,
        },
        "ttft_s": answer.ttft.times() if answer.ttft else nothing,
        "tpot_s": answer.tpot,
        "kv_transfer_s": answer.prefiller.transfer_s(asked) if answer.prefiller else None,
        "e2e_s": whole.times(),
        "confidence": {**confidence._asdict(), "text": str(confidence)} if confidence else None,
        "decode_steps": steps,
        "token_passes": asked.token_passes() if answer.ttft else steps,
        "output_tokens_per_s": asked.batch
        * setting.replicas
        * (asked.gen if answer.ttft else 1)
        / whole.best,
        "mfu": whole.mfu,
        "mbu": whole.mbu,
        "phases": {
            name: {
                "matmul_flops": cost.matmul_flops,
                "bytes": cost.moved_bytes,
                "weight_bytes": cost.weight_bytes,
                "mfu": cost.mfu,
                "mbu": cost.mbu,
                "host_link_share": float(cost.host_link_s / cost.best),
                "s": cost.times(),
            }
            for name, cost in (("prefill", answer.ttft), ("decode", answer.decoding))
            if cost
        },
        "devices": setting.devices,
        "peak_memory_bytes": answer.memory.total,
        "memory": {f"{name}_bytes": value for name, value in answer.memory._asdict().items()},
        "fits": answer.fits,
        "energy_j": answer.energy_j,
        "usd": answer.usd.request if answer.usd else None,
        "usd_per_million": (
            {k: v for k, v in answer.usd._asdict().items() if k != "request"} if answer.usd else None
        ),
        "price": price_json(price_of(gpu, price)),
        "no_cache": passes and {"token_passes": asked.token_passes(cache=False), "e2e_s": passes.times()},
        "timeline": [block._asdict() for block in answer.blocks],
    }


def _draw(path: str, answers: list[Answer], points: list[dict[str, Any]]) -> None:
    """A time line of every request."""
    from .pictures.file import draw
    from .pictures.serving import timeline_chart

    if len(answers) > MOST_LINES:
        raise InputError(f"--plot: at most {MOST_LINES} time lines, not {len(answers)}")
    charts = []
    for answer, point in zip(answers, points, strict=True):
        got, setting = point["inputs"], answer.setting
        name, where = setting.model.title or setting.model.name, setting.gpu.title
        lengths = f"{count(got['prompt'])} tokens in" + (f", {count(got['gen'])} out" if got["gen"] else "")
        many = f"{plural(got['batch'], 'request')}, " if got["batch"] > 1 else ""
        charts.append(timeline_chart(f"Time line: {name} on {where}, {many}{lengths}", point["timeline"]))
    draw(path, charts)


def _screen(answer: Answer, point: dict[str, Any], price: float | None) -> Report:
    setting, asked, whole = answer.setting, answer.request, answer.whole
    gpu, got = setting.gpu, point["inputs"]
    many = f"{plural(asked.batch, 'request')} of" if asked.batch > 1 else ""
    on = f"{setting.devices} x {gpu.title}" if setting.devices > 1 else gpu.title
    if answer.phase == "decode":
        what = f"one decode step at {count(got['prompt'])} tokens"
    else:
        read = f", {count(asked.encoder)} encoder positions" if asked.encoder else ""
        what = f"{plural(asked.prompt, 'token')} in{read}, {count(asked.gen)} out"
    sure = f" {whole.confidence}" if whole.confidence else " (floor)"
    name = setting.model.title or setting.model.name
    beyond = ", but it does not fit" if point["fits"] is False else ""
    lines = [f"{name}, {many + ' ' if many else ''}{what}, on {on}: {seconds(whole.best)}{sure}{beyond}"]
    lines.append(pace(point))
    table = Table(("", "bound", "floor", "expected", "MFU", "MBU"), "<>>>>>")
    if answer.ttft:
        table.rows.append(
            (
                "time to first token",
                *three(answer.ttft.times()),
                percent(answer.ttft.mfu),
                percent(answer.ttft.mbu),
            )
        )
    if answer.prefiller:
        over = seconds(answer.prefiller.transfer_s(asked))
        table.rows.append(("cache to the decoding GPUs", over, over, over, "-", "-"))
    if answer.decoding:
        label = f"per output token (x {count(asked.decode_steps)})"
        mfu, mbu = percent(answer.decoding.mfu), percent(answer.decoding.mbu)
        table.rows.append((label, *three(answer.tpot), mfu, mbu))
    if answer.ttft:
        table.rows.append(("end to end", *three(whole.times()), percent(whole.mfu), percent(whole.mbu)))
    if answer.no_cache:
        table.rows.append(("end to end, no KV cache", *three(answer.no_cache.times()), "-", "-"))
    tables = [table, _bill(answer)]
    if "measured" in point:
        tables.insert(1, placed_table(point["measured"]))
    notes = limit_notes([(setting.model, asked.held_tokens)]) + inferred_notes(setting.model)
    notes.append(
        f"weights {got['weights']}, KV {got['kv']}; "
        + (
            f"expected as requests of {setting.engine.title} took, host included"
            if setting.engine and whole.expected is not None
            else "kernels only, one after the other: an engine hides part of their starts and its host takes "
            "time of its own (--engine)"
        )
    )
    if asked.batch > 1 and answer.ttft:
        notes.append(
            f"the {count(asked.batch)} prompts are computed together, then all decode: `infercost serve` has "
            "requests that come and go"
        )
    if answer.prefiller:
        there = answer.prefiller.setting
        notes.append(f"prefill on {there.devices} x {there.gpu.title}, which are paid for their own time")
    if setting.offload:
        notes.append(_offload_note(setting.offload))
    if setting.replicas > 1:
        notes.append(
            f"each of the {setting.replicas} ranks has so many requests of its own (--ep without --tp)"
        )
    if answer.no_cache:
        saved = asked.token_passes(cache=False) / asked.token_passes()
        notes.append(
            f"without a KV cache {count(asked.token_passes(cache=False))} tokens pass the model, with it "
            f"{count(asked.token_passes())}: {saved:,.0f} times fewer"
        )
    notes += price_notes([gpu, answer.prefiller.setting.gpu] if answer.prefiller else [gpu], price)
    if point["fits"] is False:
        for held, card in (
            (answer.memory, gpu),
            (answer.filling, answer.prefiller and answer.prefiller.setting.gpu),
        ):
            if held and card and within_room(held.total, card.capacity_bytes) is False:
                notes.append(
                    f"does not fit {card.name}: {too_much(held.total, card)}; times are as if it did"
                )
    return Report({}, lines, tables, notes, picture=picture(answer.blocks, setting.devices))


def _offload_note(left: Offload) -> str:
    parts = [f"weights of {plural(left.layers, 'layer')}"] if left.layers else []
    parts += ["the cache"] if left.cache else []
    return (
        f"{' and '.join(parts)} in the host's memory, over {left.link_bytes_per_s / 1e9:g} GB/s in every step"
    )


def _bill(answer: Answer) -> Table:
    table = Table(("bill", "", ""), "<><")
    memory, usd = answer.memory, answer.usd
    rank = "fullest rank" if answer.setting.devices > 1 else "peak memory"
    parts = f"weights {size(memory.weights)}, KV {size(memory.cache)}, activations {size(memory.activations)}"
    table.rows.append((rank, size_both(memory.total), parts))
    joules = answer.energy_j
    if joules is not None:
        table.rows.append(("energy, at most", si(joules, "J"), "a request, at the board's full power"))
    if usd:
        kinds = (("input", usd.input), ("cached input", usd.cached_input), ("output", usd.output))
        rates = [f"{kind} {each:,.3g}" for kind, each in kinds if each is not None]
        table.rows.append(
            ("dollars", plain(usd.request), f"a request; per million tokens: {', '.join(rates)}")
        )
    return table


def _sweep(answers: list[Answer], points: list[dict[str, Any]], price: float | None) -> Report:
    columns = ("model", "gpu", "prompt", "gen", "batch", "weights", "KV", "TTFT", "TPOT", "end to end", "±")
    table = Table((*columns, "memory", "dollars"), "<<>>><<>>>>>>")
    for answer, point in zip(answers, points, strict=True):
        got = point["inputs"]
        key = "expected" if answer.whole.expected is not None else "floor"
        sure = answer.whole.confidence
        table.rows.append(
            (
                got["model"],
                got["gpu"],
                count(got["prompt"]),
                "-" if got["gen"] is None else count(got["gen"]),
                count(got["batch"]),
                got["weights"],
                got["kv"],
                seconds(point["ttft_s"][key]),
                seconds(point["tpot_s"][key]),
                seconds(point["e2e_s"][key]),
                f"{sure.error:.0%}" if sure else "-",
                size(point["peak_memory_bytes"]) + ("" if point["fits"] is not False else " !"),
                f"{point['usd']:.3g}" if point["usd"] is not None else "-",
            )
        )
    table, notes = without_constant(table, columns[:7])
    if any(point["fits"] is False for point in points):
        notes.append(TOO_MUCH)
    notes += list(
        dict.fromkeys(n for a in answers for n in limit_notes([(a.setting.model, a.request.held_tokens)]))
    )
    notes += price_notes((a.setting.gpu for a in answers), price)
    kinds = "expected times" if answers[0].whole.expected is not None else "floors"
    engine = answers[0].setting.engine
    host = f"as {engine.title} took" if engine else "of kernels, host time not in them"
    return Report({}, [f"{plural(len(points), 'request')}: {kinds} {host}"], [table], notes)


def _flat(point: dict[str, Any]) -> dict[str, Any]:
    """A request as one CSV row: a column for each part of a mapping."""
    out = dict(point["inputs"])
    for key, value in point.items():
        if key in ("inputs", "phases", "timeline", "price", "no_cache", "measured"):
            continue
        if key == "confidence":
            out[key] = value["text"] if value else None
        elif isinstance(value, dict):
            out |= {f"{key}.{name}" if key != "memory" else name: part for name, part in value.items()}
        else:
            out[key] = value
    return out
