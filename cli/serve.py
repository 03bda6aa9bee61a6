"""`infercost serve`: requests that keep coming, at any batch, by any schedule, and what they cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import InputError
from ..costmodel.batching import Lengths
from ..costmodel.kv import BLOCK_TOKENS
from ..costmodel.memory import SHARE
from ..costmodel.serving import CHUNK, POLICIES, Workload, usd_per_million
from ..costmodel.setting import Setting
from ..costmodel.sharding import Parallel
from ..hardware.catalogue import load_gpu
from ..hardware.engine import load_engine
from ..hardware.spec import Gpu
from ..models.spec import Model
from . import options as o
from .calibrations import clock_of
from .groups import grouped
from .inputs import (
    WhatIf,
    choice,
    document,
    each_of,
    encoder_positions,
    gpus_of,
    grid,
    length_kind,
    models,
    sources_of,
)
from .output.report import Report, Sink, emit
from .pictures.file import check_plot, draw
from .pictures.serving import serve_charts
from .price import checked_price, price_of
from .runs import run_of
from .serve_json import as_json
from .serve_screen import report
from .serve_study import DEFAULT_BATCHES, Asked, study
from .sizes import duration, quantity, token_list, tokens, words

if TYPE_CHECKING:
    from ..costmodel.simulation import Job
from .flat import flat
from .unused import refuse, refuse_all_but, refuse_strangers

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

MAX_POINTS = 1000
MAX_REQUESTS = 200_000
MAX_SIMULATED = 1_000_000
MAX_GEN = 1 << 24
POLICY_READS = {"chunked": ("--slack",), "disaggregated": ("--link",)}
"""Options that one schedule alone reads."""
CONVENTIONS = {
    "points": "steady states in closed form, every slot taken; steps timed at the mean context of the "
    "running sequences: expected times, or floors with --calibration none; the host's time is in them with "
    "--engine alone",
    "ttft_s": "waiting for a slot (queue_s), then the prefill; of static batching all prompts together",
    "tpot_s": "mean between a request's tokens, other requests' prefills in it; gap_s: the longest usual one",
    "policy": "static: a batch runs until its longest is done; continuous: a free slot is refilled at once, "
    "a prompt in a step of its own; chunked: pieces of prompts ride with the decodes; disaggregated: prompts "
    "are computed on devices of their own, which are in devices and dollars",
    "used": "share of slot steps that yield a token; static: E[length] / E[longest], a ratio of means",
    "usd_per_million_output": "price x all devices x time over the tokens out, which pay the prompts too",
    "verdict": "compute over compulsory memory time of the step that decodes",
    "fits": "weights, activations, every sequence at a mean request's end in whole blocks, within --share",
    "best": "most output tokens per device and second of what fits and keeps --ttft and --tpot",
    "at_rate": "with --rate: whole units, each at most 80 % busy, that serve it for least; running: the "
    "fewest sequences at once in each that keep up, whose times those are, no queue in them; idle time is "
    "paid for too",
    "knee": "most throughput over latency (Kleinrock): of decode alone, where the cache takes as long as the "
    "weights",
    "simulation": "of static, continuous and chunked: discrete events, no preemption; step times from a "
    "table of computed ones, linear between; used with half its 95 % interval where batches are independent",
}


@app.command()
@grouped
def serve(
    ctx: typer.Context,
    *,
    model: o.Model = None,
    gpu: o.Gpu = "a100",
    prompt: Annotated[str | None, typer.Option("--prompt", "--seq", "-s", help="Prompt tokens.")] = None,
    gen: Annotated[str | None, typer.Option("--gen", "--out", help="Mean tokens out (default 256).")] = None,
    kind: Annotated[
        str | None,
        typer.Option("--lengths", "--dist", help="Lengths out: fixed, exponential or uniform around --gen."),
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option("--trace", help="CSV of requests (arrival, prompt, output): lengths, and a simulation."),
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option("--batch", "-b", help="Slots: 1,8,64 sweeps (default: powers of two that fit)."),
    ] = None,
    concurrency: Annotated[
        str | None,
        typer.Option(
            "--concurrency", "--users", help="Users who each wait for their answer; 1,64,512 sweeps."
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option("--policy", help="static, continuous, chunked, disaggregated, or several of them."),
    ] = None,
    chunk: Annotated[
        str | None,
        typer.Option("--chunk", help="Prompt tokens of a step (512); asks for --policy chunked."),
    ] = None,
    shared: Annotated[
        str | None,
        typer.Option("--shared-prefix", help="First prompt tokens that all requests share, cached."),
    ] = None,
    ttft: o.Ttft = None,
    tpot: o.Tpot = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", help="Requests per second: how many devices; a simulation's arrivals."),
    ] = None,
    simulate: Annotated[
        bool,
        typer.Option("--simulate", help="Beside the closed form, simulate the best point of each policy."),
    ] = False,
    requests: Annotated[int, typer.Option("--requests", help="Requests to simulate.")] = 10_000,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the lengths and arrivals.")] = 0,
    slack: Annotated[
        float, typer.Option("--slack", help="How much longer a chunk may make a decode step (0.1: 10 %).")
    ] = 0.1,
    block: Annotated[str, typer.Option("--block", help="Tokens in a block of a paged cache.")] = str(
        BLOCK_TOKENS
    ),
    max_len: Annotated[
        str | None,
        typer.Option("--max-len", help="Tokens a contiguous cache reserves (default: the model's context)."),
    ] = None,
    link: Annotated[
        float | None,
        typer.Option("--link", help="GB/s one way from a device that prefills (default: the sheet's link)."),
    ] = None,
    engine: o.Times = None,
    price: o.Price = None,
    actual: Annotated[
        str | None,
        typer.Option("--actual", help="Output tokens/s that were seen, of all devices: what they cost."),
    ] = None,
    share: Annotated[
        float,
        typer.Option(
            "--share",
            "--gpu-memory-utilization",
            help="Share of the card that weights, cache and activations may take.",
        ),
    ] = SHARE,
    plot: o.Plot = None,
    tp: o.Tp = 1,
    ep: o.Ep = 1,
    weights: o.Weights = None,
    kv_format: o.Kv = None,
    skew: o.Skew = 0.0,
    encoder_seq: o.EncoderSeq = None,
    calibration: o.CalibrationOption = "auto",
    what_if: WhatIf,
    sink: Sink,
) -> None:
    """Many requests: throughput against latency, limits, dollars per million tokens, the schedules.

    \b
    infercost serve --model llama-3-8b --gpu h100 --prompt 512 --gen 128
    infercost serve --model llama-3-70b --gpu h100 --tp 4 --prompt 2k --gen 256 --ttft 1s --tpot 50ms
    infercost serve --model llama-7b --prompt 512 --gen 128 --lengths exponential --policy static,continuous
    infercost serve --model llama-3-8b --gpu h100 --prompt 8k --chunk 512 --batch 32
    infercost serve --model llama-3-8b --gpu h100 --trace requests.csv --policy continuous,chunked
    infercost serve --model llama-3-8b --gpu h100 --prompt 2k --tpot 20ms --plot curve.svg
    infercost serve --model llama-3-8b --gpu all --prompt 2k --tpot 20ms
    infercost serve --actual 12000 --tp 8 --price 2.50
    """
    sink.chosen()
    check_plot(plot)
    checked_price(price)
    _in_range("--rate", "requests per second", rate, 1e-6, 1e9)
    _in_range("--link", "GB/s", link, 1e-3, 1e6)
    _in_range("--slack", "a share of a decode step", slack, 0, 100)
    if not 0 < share <= 1:
        raise InputError(f"--share is a part of the card, above 0 and up to 1, not {share:g}")
    parallel = Parallel(tp, ep)
    profile = None if engine is None else load_engine(engine)
    seen = None if actual is None else quantity(actual, "--actual", 1e15)
    if seen is not None and not model:
        reads = ("--actual", "--tp", "--ep", "--price" if price is not None else "--gpu")
        refuse_all_but(ctx, "--actual", reads, "the rest is of a model: give --model")
        emit(_measured(seen, parallel, gpu, price), sink)
        return
    if not 1 <= requests <= MAX_REQUESTS:
        raise InputError(f"--requests is from 1 to {MAX_REQUESTS:,}, not {requests:,}")
    chosen = models(model, what_if, "serve")
    refuse_strangers(ctx, chosen)
    jobs = None
    if trace is None:
        lengths = _lengths(prompt, gen, kind)
    else:
        jobs, lengths = _from_trace(trace, prompt, gen, kind, rate)
    asked = Asked(
        _policies(policy, chunk),
        None if batch is None else token_list(batch, "--batch"),
        None if concurrency is None else token_list(concurrency, "--concurrency"),
        CHUNK if chunk is None else tokens(chunk, "--chunk"),
        None if ttft is None else duration(ttft, "--ttft"),
        None if tpot is None else duration(tpot, "--tpot"),
        slack,
        share,
        tokens(block, "--block"),
        None if max_len is None else tokens(max_len, "--max-len"),
        None if link is None else link * 1e9,
        price,
        rate,
        simulate or trace is not None,
        requests,
        seed,
        jobs,
    )
    for name, unread in POLICY_READS.items():
        if name not in asked.policies:
            refuse(ctx, "", unread, f"give --policy {name}")
    if not asked.simulated:
        refuse(ctx, "", ("--requests", "--seed"), "give --simulate")
    elif jobs is not None:
        refuse(ctx, "--trace", ("--requests", "--seed"), "the file has the requests")
    if asked.users and asked.batches and len(asked.batches) > 1:
        raise InputError("--concurrency sweeps users over one number of slots; give a single --batch with it")
    gpus = gpus_of(gpu)
    recipes = each_of(weights, "--weights")
    caches = each_of(kv_format, "--kv")
    in_common = 0 if shared is None else tokens(shared, "--shared-prefix")
    settings = list(grid(chosen, gpus, recipes, caches, most=MAX_POINTS))
    _bounded(len(settings), asked)
    studies = []
    for one, device, recipe, cache in settings:
        run = run_of(one, recipe, cache, skew=skew)
        setting = Setting(one, run, device, parallel, clock_of(calibration, device), profile).checked()
        encoder = encoder_positions(one, encoder_seq, round(lengths.prompt))
        # Engines share whole blocks.
        whole = in_common - in_common % asked.block if in_common else 0
        studies.append(study(setting, Workload(lengths, whole, encoder).checked(), asked))
    inputs: dict[str, Any] = {
        "command": "serve",
        "what_if": what_if.given(),
        "prompt": lengths.prompt,
        "gen": lengths.gen,
        "lengths": lengths.kind,
        "trace": trace,
        "shared_prefix": in_common or None,
        "ttft_limit_s": asked.ttft_s,
        "tpot_limit_s": asked.tpot_s,
        "rate": rate,
        "policies": asked.policies,
        "chunk": asked.chunk if "chunked" in asked.policies else None,
        "slack": slack,
        "block": asked.block,
        "link_bytes_per_s": asked.link_bytes_per_s,
        "tp": tp,
        "ep": ep,
        "share": share,
        "skew": skew,
        "calibration": calibration,
        "engine": profile.name if profile else None,
        "requests": requests if asked.simulated and jobs is None else None,
        "seed": seed if asked.simulated and jobs is None else None,
    }
    sources = sources_of(gpus, chosen)
    body = as_json(studies, asked, seen)
    final = report(studies, asked, seen, body)
    final.document = document("serve", inputs, CONVENTIONS, sources, [{"inputs": {}} | body], False, chosen)
    if plot is not None:
        _draw(plot, chosen, gpus, body, asked)
    final.records = [flat(point) for point in body["points"]]
    final.quiet = [repr(p["output_tokens_per_s"]) for p in body["points"]]
    emit(final, sink)


def _draw(path: str, chosen: list[Model], gpus: list[Gpu], body: dict[str, Any], asked: Asked) -> None:
    names = ", ".join(model.called for model in chosen)
    limits = {"ttft_s": asked.ttft_s, "tpot_s": asked.tpot_s}
    charts = serve_charts(f"{names} on {', '.join(gpu.title for gpu in gpus)}", body, limits)
    if not charts:
        raise InputError("--plot: fewer than three batches make no curve; give more in --batch")
    draw(path, charts)


def _in_range(option: str, what: str, value: float | None, low: float, high: float) -> None:
    if value is not None and not low <= value <= high:
        raise InputError(f"{option} is {what}, {low:g} to {high:,g}, not {value:g}")


def _bounded(settings: int, asked: Asked) -> None:
    """Refuse more points, or more simulated requests, than anyone would wait for."""
    swept = len(asked.users or asked.batches or DEFAULT_BATCHES)
    points = settings * len(asked.policies) * swept
    if points > MAX_POINTS:
        raise InputError(f"{points:,} points are more than {MAX_POINTS:,}; ask for fewer values at once")
    requests = settings * len(asked.policies) * len(asked.jobs or range(asked.requests))
    if asked.simulated and requests > MAX_SIMULATED:
        raise InputError(
            f"{requests:,} requests to simulate in all are more than {MAX_SIMULATED:,}; ask for fewer"
        )


def _policies(policy: str | None, chunk: str | None) -> list[str]:
    """The schedules asked for, by name or by an option that only one of them has."""
    if policy is None:
        return ["continuous"] + ["chunked"] * (chunk is not None)
    named = [choice(name, POLICIES, "--policy") for name in words(policy, "--policy")]
    if chunk is not None and "chunked" not in named:
        raise InputError("--chunk belongs to --policy chunked, which is not asked for")
    return list(dict.fromkeys(named))


def _lengths(prompt: str | None, gen: str | None, kind: str | None) -> Lengths:
    if prompt is None:
        raise InputError("serve needs --prompt: how many tokens, such as --prompt 512, or --trace FILE.csv")
    name = length_kind(kind or "fixed")
    out = tokens(gen or "256", "--gen")
    if out > MAX_GEN:
        raise InputError(f"--gen {out:,}: at most {MAX_GEN:,} tokens out")
    return Lengths(name, tokens(prompt, "--prompt"), out)


def _from_trace(
    trace: str, prompt: str | None, gen: str | None, kind: str | None, rate: float | None
) -> tuple[list[Job], Lengths]:
    """The requests of a file, and their lengths as a distribution."""
    given = (("--prompt", prompt), ("--gen", gen), ("--lengths", kind), ("--rate", rate))
    twice = [name for name, value in given if value is not None]
    if twice:
        raise InputError(f"--trace has {', '.join(twice)} in it; give the file alone")
    from .trace import read_trace

    jobs = read_trace(trace)
    pairs = tuple((job.prompt, job.gen) for job in jobs)
    means = (sum(p for p, _ in pairs) / len(pairs), sum(g for _, g in pairs) / len(pairs))
    return jobs, Lengths("trace", *means, pairs)


def _measured(seen: float, parallel: Parallel, gpu: str, price: float | None) -> Report:
    """Dollars of a throughput that was seen, no model needed."""
    known = price_of(load_gpu(gpu), price)
    if known is None:
        raise InputError(f"no price of {gpu} is known: give --price, dollars per GPU and hour")
    usd_per_hour, source = known.usd_per_hour, known.source
    usd = usd_per_million(usd_per_hour, parallel.world, seen)
    gpus = f"{parallel.world:,} GPU{'s' * (parallel.world > 1)}"
    line = (
        f"{usd:,.4g} dollars per million tokens: {seen:,.6g} tokens/s on {gpus} at {usd_per_hour:g} an hour"
    )
    inputs = {"command": "serve", "actual": seen, "devices": parallel.world, "usd_per_gpu_hour": usd_per_hour}
    point = {"inputs": inputs, "usd_per_million_output": usd}
    conventions = {"usd_per_million_output": CONVENTIONS["usd_per_million_output"]}
    made = document("serve", {}, conventions, {"price": source}, [point], False)
    return Report(made, [line], notes=[f"price: {source}"], records=[{**inputs, **made}], quiet=[repr(usd)])
