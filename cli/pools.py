"""What an engine allocates, as `kv` and `fit` show it: reservations and pools into rows."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..costmodel.engines import How, Pool, Reserved, pool, reserved
from ..costmodel.sharding import Parallel, shard_model
from ..hardware.engine import load_engine
from ..models.formats import Format
from ..models.spec import Model
from .engine_flags import Flags
from .output.report import Table
from .text import count, plural, size, size_both


class Taken(NamedTuple):
    """What an engine takes for requests of `tokens` tokens on each of `ranks` ranks."""

    engine: str
    version: str
    tokens: int
    ranks: int
    one: Reserved
    all_bytes: int
    pool: Pool | None
    how: How
    chunk_given: bool


def taken(flags: Flags, model: Model, fmt: Format, length: int, batch: int, parallel: Parallel) -> Taken:
    """The reservation of a request and, where a pool's size is given, what the pool holds."""
    memory = flags.memory
    assert flags.engine is not None
    assert memory is not None
    how = flags.how(None)
    one, everything = reserved(flags.engine, shard_model(model, parallel), fmt, length, batch, how)
    held = None
    if flags.budget_bytes is not None or flags.blocks is not None:
        held = pool(flags.engine, one, flags.budget_bytes or 0, length, flags.blocks)
    chosen = bool(flags.chunk or flags.micro_batch)
    return Taken(flags.engine, memory.version, length, parallel.world, one, everything, held, how, chosen)


def taken_json(got: Taken) -> dict[str, Any]:
    """Figures of one rank say so; `allocated_bytes` is over all ranks."""
    out: dict[str, Any] = {
        "engine": got.engine,
        "engine_version": got.version,
        "allocated_bytes": got.all_bytes * got.ranks,
        "allocated_bytes_per_rank": got.all_bytes,
        "request_bytes_per_rank": got.one.request_bytes,
        "block_tokens": got.one.block_tokens,
        "block_bytes_per_rank": got.one.unit_bytes,
        "blocks_per_request": got.one.units,
        "max_concurrency": None,
        "allocated_groups": [group._asdict() for group in got.one.groups],
    }
    if got.pool:
        out |= {
            "pool_bytes_per_rank": got.pool.bytes,
            "pool_blocks": got.pool.blocks,
            "pool_tokens": got.pool.tokens,
            "max_concurrency": got.pool.concurrency,
        }
    return out


def taken_table(got: Taken) -> Table:
    """A line a group of layers, as the engine keeps them."""
    what = "cells" if got.engine == "llama.cpp" else "pieces"
    title = (
        f"{got.engine} {got.version}, one request"
        if got.engine != "llama.cpp"
        else f"{got.engine}, all slots"
    )
    table = Table(("layers", "slots", what, "each", "together"), "<>>>>", title=title)
    for group in got.one.groups:
        window = f", window {group.window:,}" if group.window is not None else ""
        table.rows.append(
            (
                f"{group.layers} {group.kind.replace('_', ' ')}{window}",
                count(group.slots),
                count(group.pieces),
                size(group.bytes),
                size(group.pieces * group.bytes),
            )
        )
    return table


def _other_cards(engine: str) -> str:
    """How long steps are on cards that are no ordinary ones to this engine."""
    memory = load_engine(engine).memory
    out = ""
    for card in memory.cards if memory else ():
        where = card.named.upper() or (
            f"from {card.from_gib} GiB" if card.from_gib else f"below {card.below_gib} GiB"
        )
        out += f", {where} {count(card.chunk_tokens)}"
    return f"; the engine's own{out}" if out else ""


def taken_notes(got: Taken, batch: int) -> list[str]:
    """The reservation, and what a pool holds of such requests."""
    rank = " on each rank" if got.ranks > 1 else ""
    many = f" for {plural(batch, 'sequence')}" if batch > 1 else ""
    notes = [f"{got.engine} takes {size_both(got.all_bytes)}{rank}{many}"]
    if got.one.block_tokens:
        notes[0] += f", in blocks of {count(got.one.block_tokens)} tokens ({size(got.one.unit_bytes)})"
    flag = "--ubatch" if got.engine == "llama.cpp" else "--max-num-batched-tokens"
    steps = f"steps of {count(got.how.in_flight)} tokens ({flag})"
    notes.append(steps + ("" if got.chunk_given else _other_cards(got.engine)))
    if got.pool:
        notes.append(
            f"pool: {size_both(got.pool.bytes)}{rank}, {count(got.pool.blocks)} blocks; maximum concurrency "
            f"{got.pool.concurrency:,.2f}x for {count(got.tokens)} tokens; "
            f"{count(got.pool.tokens)} tokens logged"
        )
    return notes
