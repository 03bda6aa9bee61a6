"""`infercost kv`: the KV cache and state of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from .. import InputError
from ..costmodel.kv import BLOCK_TOKENS, Allocation, CacheBill, CacheGroup, allocate, cache_bill
from ..costmodel.sharding import Parallel, shard_model
from ..models.formats import Format
from ..models.spec import Model
from . import options as o
from .engine_flags import Flags, read_by, refuse_unread
from .groups import grouped
from .inputs import (
    WhatIf,
    choice,
    document,
    encoder_positions,
    grid,
    inferred_notes,
    kv_formats,
    lengths,
    limit_notes,
    models,
    sources_of,
    without_constant,
)
from .output.report import Report, Sink, Table, emit
from .sizes import token_list, tokens, words
from .text import count, plural, size, size_both

if TYPE_CHECKING:
    from .pools import Taken

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

CONVENTIONS = {
    "tokens": "k = 1,024, M = 1,048,576",
    "logical_bytes": "growing KV + state, every sequence, all layers, scales of quantised KV included",
    "bytes_per_token": "one sequence, all storing layers, below any window",
    "window": "a window layer holds min(tokens, window)",
    "state": "conv_kernel - 1 columns in 16 bit, recurrent state in fp32, as serving engines keep it",
    "allocated_bytes": "what an engine takes for --batch requests of --seq tokens over all ranks: "
    "whole blocks, groups padded, windows with what a step may add",
    "max_concurrency": "requests of --seq tokens that a pool of --kv-budget (or --num-gpu-blocks) holds",
    "per_rank": "of one tensor-parallel rank: KV heads shared out, copied once there are fewer than ranks",
    "units": "bytes; GiB = 2^30, GB = 10^9",
}


class Point(NamedTuple):
    """One combination of the lists that were given."""

    model: Model
    seq: int
    batch: int
    fmt: Format
    bill: CacheBill
    positions: int
    allocations: list[Allocation]
    ranks: int = 1
    rank_bill: CacheBill | None = None
    taken: Taken | None = None


@app.command()
@grouped
def kv(
    ctx: typer.Context,
    *,
    model: o.Model = None,
    seq: Annotated[
        str | None,
        typer.Option(
            "--seq",
            "-s",
            "--context",
            "--ctx-size",
            "--max-model-len",
            help="Tokens of context: 4096, 32k (= 32,768), 1M; 2k,8k,32k sweeps. (vLLM reads 32k as 32,000.)",
        ),
    ] = None,
    batch: o.Batch = "1",
    kv_format: o.Kv = None,
    encoder_seq: o.EncoderSeq = None,
    what_if: WhatIf,
    alloc: Annotated[
        str | None,
        typer.Option("--alloc", help="What allocators take: paged, static, concat, or several of them."),
    ] = None,
    block: o.Block = None,
    max_len: Annotated[
        str | None, typer.Option("--max-len", help="Tokens reserved per sequence; asks for --alloc static.")
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option("--prompt", help="With --gen instead of --seq: prompt tokens (--alloc concat)."),
    ] = None,
    gen: Annotated[str | None, typer.Option("--gen", help="Generated tokens after --prompt.")] = None,
    flags: Flags,
    plot: o.Plot = None,
    sink: Sink,
) -> None:
    """KV cache and state: bytes by layer group, for any lengths and formats.

    \b
    infercost kv --model llama-7b --seq 32k
    infercost kv --model llama-3-70b --seq 2k,8k,32k --batch 16
    infercost kv --model gemma-3-27b --seq 128k --kv fp8
    infercost kv --model llama-7b --seq 32k --kv-heads 8
    infercost kv --model llama-7b --seq 1000 --alloc paged --block 16
    infercost kv --model gpt-oss-120b --seq 128k --engine vllm --kv-budget 5.38GiB
    infercost kv --model qwen3-32b --seq 32k --tp 4
    infercost kv --model llama-3-70b,gemma-3-27b,deepseek-v3 --seq 128k --plot cache.svg
    infercost kv --model llama-7b --seq 32k --assert 'logical_bytes < 20e9'
    """
    if plot is not None:
        from .pictures.file import check_plot

        check_plot(plot)
    flags = flags.checked()
    pooled = flags.memory is not None
    refuse_unread(ctx, flags.engine, lambda: _read_by(pooled))
    library = flags.engine is not None and not pooled
    parallel = Parallel(tp=flags.tp)
    policies = _policies(alloc, None if pooled else block, max_len)
    _check_policies(policies, None if pooled else block, max_len)
    chosen = models(model, what_if, "kv")
    start = None if prompt is None else tokens(prompt, "--prompt")
    grown = _grown(seq, start, gen)
    batches = token_list(batch, "--batch")
    block_tokens = BLOCK_TOKENS if block is None else tokens(block, "--block")
    reserved = None if max_len is None else tokens(max_len, "--max-len")
    points = []
    for one, length, sequences in grid(chosen, grown, batches):
        for fmt in kv_formats(kv_format, one):
            positions = encoder_positions(one, encoder_seq, length)
            bill = cache_bill(one, length, sequences, fmt, positions, library=library)
            if reserved is not None and reserved < length:
                raise InputError(f"--max-len {reserved:,} is shorter than the {length:,} tokens kept")
            allocated = [
                allocate(one, policy, length, sequences, fmt, block_tokens, reserved, start, positions)
                for policy in policies
            ]
            rank_bill = None
            if flags.tp > 1:
                rank_bill = cache_bill(
                    shard_model(one, parallel),
                    length,
                    sequences,
                    fmt,
                    positions,
                    library,
                )
            by_engine = None
            if pooled:
                from .pools import taken

                by_engine = taken(flags, one, fmt, length, sequences, parallel)
            points.append(
                Point(one, length, sequences, fmt, bill, positions, allocated, flags.tp, rank_bill, by_engine)
            )
    listed = len(points) > 1
    inputs: dict[str, Any] = {
        "command": "kv",
        "what_if": what_if.given(),
        "engine": flags.engine or "serving",
    }
    if pooled:
        inputs |= {
            "engine_flags": flags.how(None)._asdict(),
            "kv_budget_bytes": flags.budget_bytes,
            "blocks": flags.blocks,
        }
    if start is not None:
        inputs |= {"prompt": start, "gen": grown[0] - start}
    if policies:
        inputs |= {"alloc": policies, "block": block_tokens, "max_len": reserved}
    sources = sources_of((), chosen)
    made = document("kv", inputs, CONVENTIONS, sources, [_as_json(p) for p in points], listed, chosen)
    report = _sweep(points) if listed else _single(points[0], what_if)
    report.document = made
    if plot is not None:
        from .kv_picture import draw_cache

        draw_cache(plot, points, flags, library)
    report.quiet = [str(point.bill.logical_bytes) for point in points]
    emit(report, sink)


def _read_by(pooled: bool) -> dict[str, tuple[str, ...]]:
    """The engines in which each flag changes a cache; without a pool --block is of --alloc paged."""
    known = read_by()
    known |= {"--max-num-batched-tokens": ("vllm",), "--kv-budget": known["--block"]}
    return known if pooled else {name: engines for name, engines in known.items() if name != "--block"}


def _policies(alloc: str | None, block: str | None, max_len: str | None) -> list[str]:
    """The allocators asked for, by name or by an option only one of them has."""
    if alloc is not None:
        return [choice(name, ("paged", "static", "concat"), "--alloc") for name in words(alloc, "--alloc")]
    return ["paged"] * (block is not None) + ["static"] * (max_len is not None)


def _check_policies(policies: list[str], block: str | None, max_len: str | None) -> None:
    for name, option, given in (("paged", "--block", block), ("static", "--max-len", max_len)):
        if given is not None and name not in policies:
            raise InputError(f"{option} belongs to --alloc {name}, which is not asked for")


def _grown(seq: str | None, prompt: int | None, gen: str | None) -> list[int]:
    if (prompt is None) != (gen is None):
        raise InputError("--prompt and --gen come together")
    if prompt is not None and gen is not None:
        if seq is not None:
            raise InputError("give --seq, or --prompt and --gen, not both")
        return [prompt + tokens(gen, "--gen")]
    return lengths(seq, "kv")


def _as_json(point: Point) -> dict[str, Any]:
    bill = point.bill
    out: dict[str, Any] = {
        "inputs": {
            "model": point.model.name,
            "seq": point.seq,
            "batch": point.batch,
            "kv": point.fmt.name,
            "encoder_seq": point.positions or None,
            "tp": point.ranks,
        },
        "logical_bytes": bill.logical_bytes,
        "bytes_per_token": bill.bytes_per_token,
        "state_bytes": bill.state_bytes,
        "elements": bill.elements,
        "groups": [
            {
                "kind": group.kind,
                "layers": group.layers,
                "window": group.window,
                "tokens": group.tokens,
                "bytes_per_token": group.bytes_per_token,
                "bytes_per_layer": group.bytes // group.layers,
                "state_bytes": group.state_bytes,
                "bytes": group.bytes,
            }
            for group in bill.groups
        ],
    }
    if point.rank_bill:
        out["logical_bytes_per_rank"] = point.rank_bill.logical_bytes
        out["bytes_per_token_per_rank"] = point.rank_bill.bytes_per_token
        out["kv_copies"] = point.rank_bill.logical_bytes * point.ranks / (bill.logical_bytes or 1)
    if point.taken:
        from .pools import taken_json

        return out | taken_json(point.taken)
    if point.allocations:
        out["allocated_bytes"] = point.allocations[0].allocated_bytes
        out["block_tokens"] = point.allocations[0].block_tokens
        out["allocations"] = [taken._asdict() for taken in point.allocations]
    return out


def _group_name(group: CacheGroup) -> str:
    name = group.kind.replace("_", " ")
    if group.window is not None:
        name += f", window {group.window:,}"
    return name if group.bytes else f"{name}, reads another layer's"


def _in_what(point: Point) -> str:
    """`, KV bf16`, and what a fixed state is kept in."""
    kinds = [f"KV {point.fmt.name}"] if any(g.bytes_per_token for g in point.bill.groups) else []
    if point.bill.state_bytes:
        kinds.append("state fp32 (convolutions 16 bit)")
    return f", {', '.join(kinds)}" if kinds else ""


def _scales(fmt: Format) -> str:
    """A word on the format's scales, where it has any or pointedly none."""
    if fmt.published:
        return ""
    return f"{fmt.name}: {fmt.note}; " if fmt.scales else f"{fmt.name}: {fmt.note or 'no scales'}; "


def _single(point: Point, what_if: WhatIf) -> Report:
    bill = point.bill
    changed = "".join(f", {k.replace('_', '-')} {v}" for k, v in what_if.given().items())
    who = f"{point.model.called}{changed}"
    many = f" in each of {plural(point.batch, 'sequence')}" if point.batch > 1 else ""
    answer = [
        f"{size_both(bill.logical_bytes)} for {plural(point.seq, 'token')}{many} of {who}{_in_what(point)}"
    ]
    table = Table(("group", "layers", "tokens kept", "per token", "per layer", "state", "total"), "<>>>>>>")
    for group in bill.groups:
        table.rows.append(
            (
                _group_name(group),
                count(group.layers),
                count(group.tokens) if group.bytes_per_token else "-",
                size(group.bytes_per_token),
                size(group.bytes // group.layers),
                size(group.state_bytes) if group.state_bytes else "-",
                size(group.bytes),
            )
        )
    tables = [table]
    if point.allocations:
        tables.append(_allocation_table(point.allocations))
    if point.taken:
        from .pools import taken_table

        tables.append(taken_table(point.taken))
    notes = limit_notes([(point.model, point.seq)]) + inferred_notes(point.model)
    notes.append(
        f"{size(bill.bytes_per_token)} per token and sequence below any window; {_scales(point.fmt)}"
        "GiB = 2^30 bytes, GB = 10^9"
    )
    if point.rank_bill:
        share = point.rank_bill.logical_bytes * point.ranks / (bill.logical_bytes or 1)
        copies = f", every row {share:g} times over all ranks" if share > 1 else ""
        notes.append(
            f"each of {point.ranks} ranks: {size_both(point.rank_bill.logical_bytes)}, "
            f"{size(point.rank_bill.bytes_per_token)} per token{copies}"
        )
    if point.taken:
        from .pools import taken_notes

        notes += taken_notes(point.taken, point.batch)
    records = [
        {"model": point.model.name, "seq": point.seq, "batch": point.batch} | g
        for g in _as_json(point)["groups"]
    ]
    return Report({}, answer, tables, notes, records=records)


def _allocation_table(allocations: list[Allocation], points: list[Point] | None = None) -> Table:
    """A line an allocator; in a sweep, of which model and length."""
    columns = ("allocator", "block", "allocated", "used", "waste, average", "waste, most", "copied")
    table = Table(("model", "tokens", *columns) if points else columns, ("<>" if points else "") + "<>>>>>>")
    owners = [p for p in points or () for _ in p.allocations]
    for index, one in enumerate(allocations):
        row = (
            one.policy,
            plural(one.block_tokens, "token") if one.block_tokens else "-",
            size(one.allocated_bytes),
            f"{100 * one.utilisation:.2f} %",
            size(one.waste_average_bytes),
            size(one.waste_max_bytes),
            size(one.copied_bytes) if one.copied_bytes else "-",
        )
        table.rows.append((owners[index].model.name, count(owners[index].seq), *row) if points else row)
    return without_constant(table, ("block", "copied"))[0]


def _sweep(points: list[Point]) -> Report:
    first = points[0]
    low, high = (f(p.bill.logical_bytes for p in points) for f in (min, max))
    answer = [f"{size_both(low)} to {size_both(high)} over {plural(len(points), 'point')}"]
    table = Table(
        ("model", "KV", "tokens", "batch", "per token", "state", "total", "of the first"), "<<>>>>>>"
    )
    for point in points:
        bill = point.bill
        base = first.bill.logical_bytes
        table.rows.append(
            (
                point.model.name,
                point.fmt.name,
                count(point.seq),
                count(point.batch),
                size(bill.bytes_per_token),
                size(bill.state_bytes) if bill.state_bytes else "-",
                size(bill.logical_bytes),
                f"{bill.logical_bytes / base:.4g}x" if base else "-",
            )
        )
    table, same = without_constant(table, ("model", "KV", "batch", "state"))
    tables = [table]
    if first.allocations:
        tables.append(_allocation_table([taken for p in points for taken in p.allocations], points))
    notes = same + limit_notes((p.model, p.seq) for p in points)
    notes.append("all sequences together, scales included where a format has them; GiB = 2^30, GB = 10^9")
    records = [
        {**(d := _as_json(p))["inputs"], **{k: v for k, v in d.items() if isinstance(v, (int, float))}}
        for p in points
    ]
    return Report({}, answer, tables, notes, records=records)
