"""What an engine allocates, as `kv` and `fit` show it: flags into `How`, reservations and pools into rows."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import InputError
from ..costmodel.engines import ALLOCATORS, POOLED, How, Pool, Reserved, engine_flags, pool, reserved
from ..costmodel.memory import CHUNK_TOKENS, Reserve
from ..costmodel.sharding import Parallel, shard_model
from ..hardware.engine import EngineMemory, load_engine
from ..hardware.spec import Gpu
from ..models.formats import Format
from ..models.spec import Model
from .output.report import Table
from .sizes import byte_size, tokens
from .text import count, plural, size, size_both

CONCATENATING = "hf"
"""The one `--engine` that has no pool: the library's cache, layer by layer."""


class Flags(NamedTuple):
    """The engine and those of its flags that change what it allocates, as they were typed."""

    engine: str | None = None
    block: str | None = None
    chunk: str | None = None
    micro_batch: str | None = None
    context_ranks: int = 1
    window_share: float | None = None
    budget: str | None = None
    blocks: int | None = None

    def checked(self) -> Flags:
        """With the engine's plain name. Raises InputError for one without a modelled allocator."""
        if self.engine is None:
            given = {
                "--kv-budget": self.budget is not None,
                "--num-gpu-blocks": self.blocks is not None,
                "--dcp": self.context_ranks != 1,
                "--ubatch": self.micro_batch is not None,
                "--window-share": self.window_share is not None,
            }
            for option, there in given.items():
                if there:
                    raise InputError(f"{option} changes what an engine allocates: give --engine")
            return self
        known = load_engine(self.engine)
        if known.name != CONCATENATING and known.memory is None:
            listed = ", ".join((CONCATENATING, *ALLOCATORS))
            raise InputError(f"what {known.name} allocates is not modelled; --engine is one of {listed}")
        if not 1 <= self.context_ranks <= 4096:
            raise InputError(f"--dcp is between 1 and 4096, not {self.context_ranks}")
        if self.window_share is not None and not 0 < self.window_share <= 1:
            raise InputError(f"--window-share is a part of one, above 0, not {self.window_share:g}")
        if self.blocks is not None and not 1 <= self.blocks <= 1 << 40:
            raise InputError(f"--num-gpu-blocks is a count of blocks, not {self.blocks}")
        if self.blocks is not None and known.name not in POOLED:
            raise InputError(f"--num-gpu-blocks: {known.name} has no pool of blocks")
        return self._replace(engine=known.name)

    @property
    def memory(self) -> EngineMemory | None:
        """What the engine reserves; None for the library and for no engine."""
        return load_engine(self.engine).memory if self.engine else None

    def how(self, gpu: Gpu | None) -> How:
        """The flags that were given, the others as the engine sets them itself on `gpu`."""
        assert self.memory is not None
        own = engine_flags(self.memory, gpu)
        return own._replace(
            block_tokens=tokens(self.block, "--block") if self.block else own.block_tokens,
            in_flight=self.chunk_tokens(gpu),
            ranks_of_context=self.context_ranks,
            window_share=own.window_share if self.window_share is None else self.window_share,
        )

    def chunk_tokens(self, gpu: Gpu | None) -> int:
        """Tokens of one step: as given, or as the engine takes them on `gpu` (llama.cpp a micro-batch)."""
        if self.engine == "llama.cpp" and self.micro_batch is not None:
            return tokens(self.micro_batch, "--ubatch")
        if self.chunk is not None:
            return tokens(self.chunk, "--max-num-batched-tokens")
        return engine_flags(self.memory, gpu).in_flight if self.memory else CHUNK_TOKENS

    def reserve(self, gpu: Gpu | None) -> Reserve | None:
        """The engine's allocator on `gpu`; None for the library and for no engine."""
        memory = self.memory
        return Reserve(self.engine, memory, self.how(gpu)) if self.engine and memory else None

    @property
    def budget_bytes(self) -> int | None:
        return None if self.budget is None else byte_size(self.budget, "--kv-budget")


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
