"""`infercost sweep`: a grid over any options, to a table or to a file of any size."""

from __future__ import annotations

import gc
import os
import re
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import InputError
from ..costmodel.step import Run
from ..models.formats import find_format
from ..models.recipes import find_recipe
from . import options as o
from .assertions import parse_assertions
from .calibrations import clock_of
from .errors import FailedAssertionError
from .groups import grouped
from .inputs import WhatIf, choice, gpus_of, models
from .output.report import Report, Sink, emit, write_stdout
from .price import checked_price
from .sizes import duration, token_list, words
from .sweep_filter import MEASURES, Collector, Filter, conditions
from .sweep_grid import MOST_VALUES, Grid, Ranks
from .sweep_run import MOST_JOBS, Progress, Target, Work, computed, failing, results
from .sweep_summary import Totals, reason_notes
from .sweep_summary import report as in_memory
from .text import plural

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    invoke_without_command=True,
    help="A grid over any options: a request at every point, as a table, CSV, JSON lines or Parquet.\n\n"
    "\b\n"
    "infercost sweep --model llama-3-8b --gpu h100,h200 --batch 1..64*2 --prompt 1k..8k*2 --by tpot --top 5\n"
    "infercost sweep --model llama-3-70b --gpu h100,b200 --tp 1..8*2 --weights bf16,fp8-row --prompt 2k \\\n"
    "    --fits --pareto tpot,usd-per-million\n"
    "infercost sweep --model llama-3-8b --batch 1..1000+1 --prompt 1..1000+1 -o grid.parquet\n"
    "infercost sweep --model llama-3-8b --batch 1..1000+1 --prompt 1k --shard 3/16 -o part-3.csv\n"
    "infercost sweep merge grid.csv part-*.csv\n\n"
    "Lists (a,b) and ranges (1..256*2, 1k..16k+1k) go with every option that is an axis.",
)


class Destination(Sink):
    """The output options, with the formats that a grid of any size is written in."""

    format: Annotated[
        str | None,
        typer.Option("--format", "-f", help="table, json, csv, md or jsonl (the default is a table)."),
    ]
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", help="Write to this file: .csv, .jsonl, .parquet of any size; .json, .md, .txt."
        ),
    ]


@app.callback()
@grouped
def sweep(
    ctx: typer.Context,
    *,
    model: o.Model = None,
    gpu: o.Gpu = "a100",
    prompt: Annotated[
        str | None, typer.Option("--prompt", "--seq", "-s", help="Prompt tokens: 1k,4k or 1k..128k*2.")
    ] = None,
    gen: Annotated[str, typer.Option("--gen", "--out", help="Tokens out.")] = "256",
    batch: Annotated[str, typer.Option("--batch", "-b", help="Sequences at once: 1..256*2.")] = "1",
    cached: Annotated[
        str, typer.Option("--cached", help="Prompt tokens that a prefix cache holds already: 0,1k.")
    ] = "0",
    weights: o.Weights = None,
    kv_format: o.Kv = None,
    tp: Annotated[
        str, typer.Option("--tp", "--tensor-parallel-size", help="Tensor-parallel ranks: 1..8*2.")
    ] = "1",
    pp: Annotated[str, typer.Option("--pp", help="Pipeline stages.")] = "1",
    ep: Annotated[str, typer.Option("--ep", help="Expert-parallel ranks: --tp's, or alone.")] = "1",
    attention: Annotated[str, typer.Option("--attention", help="flash, eager, or both.")] = "flash",
    mla: Annotated[str, typer.Option("--mla", help="MLA kernels: auto, absorbed, expanded.")] = "auto",
    fusion: Annotated[
        str, typer.Option("--fusion", help="Pointwise kernels: engine, none, ideal.")
    ] = "engine",
    full_attention: o.FullAttention = False,
    skew: o.Skew = 0.0,
    encoder_seq: o.EncoderSeq = None,
    price: o.Price = None,
    calibration: o.CalibrationOption = "auto",
    what_if: WhatIf,
    fits: Annotated[bool, typer.Option("--fits", help="Only points whose memory fits the card.")] = False,
    ttft: o.Ttft = None,
    tpot: o.Tpot = None,
    e2e: Annotated[str | None, typer.Option("--e2e", help="Limit of a whole request: 5s.")] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", help="Condition on a column, as in 'mbu > 0.5'. Repeatable."),
    ] = None,
    pareto: Annotated[
        str | None,
        typer.Option("--pareto", help=f"Only points that none beats in all of: {', '.join(MEASURES)}."),
    ] = None,
    by: Annotated[str | None, typer.Option("--by", help="Best first, by one of these measures.")] = None,
    top: Annotated[int | None, typer.Option("--top", help="Only so many, the best by --by.")] = None,
    shard: Annotated[
        str | None, typer.Option("--shard", help="Only part i of n, 3/16, for `infercost sweep merge`.")
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", help="Processes (default: one a core).")] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Begin anew where a file or its parts are there already.")
    ] = False,
    sink: Destination,
) -> None:
    if ctx.invoked_subcommand is not None:
        return
    into, form = _destination(sink)
    asserted = tuple(sink.conditions or ())
    if prompt is None:
        raise InputError("sweep needs --prompt: how many tokens, such as --prompt 1k..8k*2")
    checked_price(price)
    grid = Grid(
        models=tuple(models(model, what_if, "sweep")),
        gpus=tuple({each.name: each for each in gpus_of(gpu)}.values()),
        recipes=_named(weights, "--weights", find_recipe),
        caches=_named(kv_format, "--kv", find_format),
        attention=_chosen(attention, ("flash", "eager"), "--attention"),
        mla=_chosen(mla, ("auto", "absorbed", "expanded"), "--mla"),
        fusion=_chosen(fusion, ("engine", "none", "ideal"), "--fusion"),
        ranks=Ranks(_counts(tp, "--tp"), _counts(pp, "--pp"), _counts(ep, "--ep")),
        batches=_counts(batch, "--batch"),
        prompts=_counts(prompt, "--prompt"),
        gens=_counts(gen, "--gen"),
        cached=_cached(cached),
        full_attention=full_attention,
        skew=skew,
        encoder_seq=encoder_seq,
        price=price,
        calibration=calibration,
    ).checked()
    # What is wrong for every point is said at once.
    Run(skew=skew)
    for each in grid.gpus:
        clock_of(calibration, each)
    limits = [
        (name, text) for name, text in (("ttft", ttft), ("tpot", tpot), ("e2e", e2e)) if text is not None
    ]
    wanted = Filter(
        fits,
        tuple((name, duration(text, f"--{name}")) for name, text in limits),
        tuple(where or ()),
        () if pareto is None else tuple(words(pareto, "--pareto")),
        by,
        top,
    ).checked()
    part = _shard(shard)
    processes, fewer = _jobs(jobs)
    # Many chunks are computed: cyclic garbage is worth looking for here.
    gc.enable()
    if form is None:
        if shard is not None:
            raise InputError(
                "--shard is for files that are merged: give --output FILE.csv, .jsonl or .parquet"
            )
        _to_memory(Work(grid, wanted), processes, into, what_if.given(), fewer)
    else:
        conditions(asserted, "--assert")
        work = Work(grid, wanted, asserted)
        _to_file(
            work,
            Target(Path(str(into.output)), form, part, processes, restart, into.quiet),
            into,
            what_if.given(),
            fewer,
        )


def _destination(sink: Sink) -> tuple[Sink, str | None]:
    """The output options, and the format of a file that is written part by part (None: all at once)."""
    from .sweep_described import form_of

    parse_assertions(sink.conditions or ())
    asked = None if sink.format is None else sink.format.lower()
    if sink.output is not None and form_of(Path(sink.output)) is not None:
        form = form_of(Path(sink.output))
        named = [name for name, on in (("json", sink.json), ("csv", sink.csv)) if on] + (
            [asked] if asked else []
        )
        if any({"ndjson": "jsonl"}.get(name, name) != form for name in named):
            raise InputError(f"--output {sink.output} is {form} by its suffix, not {named[0]}")
        return sink._replace(json=False, csv=False, format=None), form
    if asked == "parquet":
        raise InputError("--format parquet is for a file: --output FILE.parquet")
    if asked in ("jsonl", "ndjson"):
        if sink.json or sink.csv or sink.quiet or sink.output:
            raise InputError(
                "--format jsonl goes to standard output, alone; --output FILE.jsonl writes a file"
            )
        return sink._replace(format="jsonl"), None
    sink.chosen()
    return sink, None


def _distinct(values: list[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _counts(text: str, option: str) -> tuple[int, ...]:
    return tuple(_distinct(token_list(text, option, MOST_VALUES)))


def _cached(text: str) -> tuple[int, ...]:
    """Counts of tokens, of which none is one."""
    out: list[int] = []
    for part in words(text, "--cached"):
        out += [0] if part == "0" else token_list(part, "--cached", MOST_VALUES)
    return tuple(_distinct(out))


def _named(text: str | None, option: str, find: Any) -> tuple[str | None, ...]:
    """Names that `find` knows; None where the option is not given."""
    if text is None:
        return (None,)
    names = _distinct(words(text, option))
    for name in names:
        find(name)
    return tuple(names)


def _chosen(text: str, allowed: tuple[str, ...], option: str) -> tuple[str, ...]:
    return tuple(choice(name, allowed, option) for name in _distinct(words(text, option)))


def _shard(text: str | None) -> tuple[int, int]:
    if text is None:
        return (1, 1)
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text.strip(), re.ASCII)
    found = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= found[0] <= found[1] <= 100_000:
        raise InputError(
            f"--shard is a part of so many, from 1/n to n/n with n up to 100,000, not '{text[:40]}'"
        )
    return found


def _jobs(asked: int | None) -> tuple[int, list[str]]:
    """How many processes, never more than there are cores; a note where that is fewer than were asked for."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = min((len(affinity(0)) if affinity else os.cpu_count()) or 1, MOST_JOBS)
    if asked is None:
        return cores, []
    if not 1 <= asked <= MOST_JOBS:
        raise InputError(f"--jobs is between 1 and {MOST_JOBS}, not {asked}")
    if asked <= cores:
        return asked, []
    return cores, [f"--jobs {asked}: a process for each core that may be used here, {cores} in all"]


def _to_memory(work: Work, jobs: int, sink: Sink, what_if: dict[str, int], said: list[str]) -> None:
    """Points that are few enough to be shown or written at once."""
    grid, collector, totals = work.grid, Collector(work.wanted), Totals()
    progress = Progress(grid.points, sink.quiet)
    try:
        for found in results(computed, work, list(range(grid.chunks)), jobs):
            collector.add(found.columns)
            totals.add(0, found.impossible, {})
            progress.add(grid.size(found.chunk))
    finally:
        progress.clear()
    if totals.impossible_points == grid.points:
        raise InputError(f"no point of the grid can be: {totals.reasons()[0]['reason']}")
    columns = collector.columns()
    if sink.format == "jsonl":
        from .sweep_files import as_text

        write_stdout(as_text(columns, "jsonl"))
        _held_to(failing(columns, tuple(sink.conditions or ())), len(columns["point"]))
        return
    shown = in_memory(grid, work.wanted, what_if, totals, columns)
    shown.notes += said
    emit(shown, sink)


def _to_file(work: Work, target: Target, sink: Sink, what_if: dict[str, int], said: list[str]) -> None:
    """Points of any number, part by part."""
    from .sweep_stream import stream

    begin = time.monotonic()
    output, shard = target.output, target.shard
    done = stream(work, target, what_if)
    took = time.monotonic() - begin
    totals = done.totals
    fewer = totals.points != work.grid.points
    points = (
        f"{totals.points:,} of {plural(work.grid.points, 'point')}"
        if fewer
        else plural(totals.points, "point")
    )
    lines = [f"{points} in {output}, described in {output.name}.sweep.json"]
    notes = reason_notes(totals.reasons(), totals.impossible_points)
    if not done.computed:
        notes.append("the file was complete already: --restart computes it anew")
    else:
        rate = done.computed / max(took, 1e-9)
        notes.append(f"{plural(done.computed, 'point')} computed in {took:,.1f} s: {rate:,.0f} a second")
    if shard != (1, 1):
        notes.append(f"shard {shard[0]} of {shard[1]}: `infercost sweep merge` joins them")
    notes += said
    quiet = [str(totals.points)]
    emit(Report({}, lines, None, notes, quiet=quiet), Sink(quiet=sink.quiet))
    _held_to(totals.failed, totals.points)


def _held_to(failed: Any, points: int) -> None:
    """Raises FailedAssertionError for conditions that do not hold everywhere."""
    if failed:
        written, at = next(iter(failed.items()))
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise FailedAssertionError(
            f"assertion failed: {written}, at {at:,} of {plural(points, 'point')}{more}"
        )


@app.command()
def merge(
    output: Annotated[str, typer.Argument(metavar="OUT", help="The whole: .csv, .jsonl or .parquet.")],
    parts: Annotated[list[str], typer.Argument(metavar="PART...", help="The files of all shards.")],
    quiet: o.Quiet = False,
) -> None:
    """Join the files of all shards into the file that the sweep would have been.

    \b
    infercost sweep merge grid.csv part-*.csv
    """
    from .sweep_merge import merge_files

    try:
        about = merge_files(Path(output), [Path(part) for part in parts])
    except OSError as error:
        place = error.filename or output
        raise InputError(f"cannot read or write {place}: {error.strerror or error}") from None
    lines = [f"{plural(about['points'], 'point')} of {plural(len(parts), 'shard')} in {output}"]
    notes = reason_notes(about["impossible"], about["impossible_points"])
    emit(Report({}, lines, None, notes, quiet=[str(about["points"])]), Sink(quiet=quiet))
