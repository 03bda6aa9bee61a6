"""The memory bill of a rank: what it holds at its fullest, how far a budget reaches, what would make it fit.

Weights, the cache of every sequence, and the widest moment of a step. Without an engine, what an allocator
adds on top (context, NCCL, graphs, fragments) is left room for: the budget is a share of the card. With
one, the cache is what it takes of its pool, its reserves are terms of the bill, and the budget follows its
rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import ceil
from typing import Any, NamedTuple

from .. import InputError
from ..hardware.engine import EngineMemory
from ..models.formats import Format, ceil_div, find_format
from ..models.recipes import default_recipe, find_recipe
from ..models.spec import Model
from .arith import kit, least, most
from .engines import MIB, How, Pool, Reserved, engine_flags, pool, reserved, sglang_share
from .kv import allocate, cache_bill
from .limits import MAX_TOKENS
from .profile_run import padding_bytes, sampled_bytes, workspace_bytes
from .request import Request
from .setting import Setting
from .sharding import Parallel, shard_model
from .step import Plan, Segment, Step, decode
from .weights import weight_bill

CHUNK_TOKENS = 8192
"""Tokens of one step of a long prefill where no engine says."""
MOST_GPUS = 1024
SHARE = 0.9
"""Of a card, what is planned for where no engine says: vLLM's default before 0.25."""
FORMATS = ("fp8-row", "gptq")
"""Recipes that are tried where 16 bit does not fit, by what they leave of it."""


def room_bytes(capacity_bytes: int | None, share: float = SHARE) -> int | None:
    """What of a card is planned for where no engine says; None where its capacity is not known.

    The rest is what no formula here counts: the context, a collective library's buffers, graphs.
    """
    return None if capacity_bytes is None else ceil(capacity_bytes * share)


def within_room(total_bytes: int, capacity_bytes: int | None) -> bool | None:
    """Whether a rank's bytes are within that; None where it is not known. An array of them gives an array."""
    room = room_bytes(capacity_bytes)
    return None if room is None else total_bytes <= room


class Memory(NamedTuple):
    """Bytes of the fullest rank; what is not known of an allocator is zero.

    `draft`: weights of a draft model; `other`: all that is no cache, where it was measured.
    """

    weights: int
    cache: int
    activations: int
    draft: int = 0
    context: int = 0
    nccl: int = 0
    graphs: int = 0
    other: int = 0

    @property
    def total(self) -> int:
        return sum(self)

    @property
    def beside_cache(self) -> int:
        """Everything but the cache."""
        return self.total - self.cache


class Reserve(NamedTuple):
    """An engine's allocator and the flags it was given."""

    engine: str
    memory: EngineMemory
    how: How

    def request(self, model: Model, tokens: int, fmt: Format) -> Reserved:
        """What one request takes on the rank that holds `model`."""
        return reserved(self.engine, model, fmt, tokens, 1, self.how)[0]

    def cache_bytes(self, model: Model, tokens: int, batch: int, fmt: Format) -> int:
        """What `batch` requests take on the rank that holds `model`."""
        return reserved(self.engine, model, fmt, tokens, batch, self.how)[1]

    @property
    def profiles(self) -> bool:
        """Whether the engine tries out its widest step, whatever is asked of it later."""
        return self.memory.sampler_bytes > 0

    def beside(self, plan: Plan, vocab: int, activations: int) -> tuple[int, int]:
        """(bytes that weights take beyond the checkpoint's, activations with what the engine adds to the
        kernels' own) of the rank of `plan`, of a model of `vocab` words."""
        if self.profiles:
            activations = max(activations, sampled_bytes(plan, vocab, self.memory, self.how))
        if self.memory.workspaces:
            activations += workspace_bytes(plan, self.how)
        return padding_bytes(plan, self.memory), activations


class Given(NamedTuple):
    """What was measured or is wanted in place of what the model, the sheet and the engine say; bytes of one
    rank, but `weights`, which are of all ranks together, and `blocks`, which a pool is cut into."""

    weights: int | None = None
    beside_cache: int | None = None
    context: int | None = None
    nccl: int | None = None
    graphs: int | None = None
    capacity: int | None = None
    pool: int | None = None
    blocks: int | None = None


def peak_memory(
    setting: Setting,
    tokens: int,
    batch: int,
    widest: Step,
    encoder: int = 0,
    concat: bool = False,
    shared: int = 0,
    reserve: Reserve | None = None,
) -> Memory:
    """The fullest rank with `batch` sequences of `tokens` tokens, at the fullest moment of the `widest` step:
    the residual stream beside the inputs and outputs of the kernel that has most of them.

    `concat`: the cache grows by concatenation, so the last one stands beside the new one (transformers up
    to 4.35, before its caches were allocated once; held to optimum-benchmark's peaks). `shared`: first tokens
    that all sequences have in common and whose rows are kept once. `reserve`: the engine whose allocator the
    cache is taken by. Arrays of tokens and of steps give a bill of arrays.
    """
    fullest = Memory(0, 0, 0)
    tokens = ceil_div(tokens, setting.parallel.cp)
    for plan, kernels, _ in setting.stages(widest):
        weights = weight_bill(plan.model, plan.recipe).weight_bytes
        if reserve:
            cache = reserve.cache_bytes(plan.model, tokens, batch, plan.run.kv)
        elif concat:
            grown = allocate(plan.model, "concat", tokens, batch, plan.run.kv, prompt=1, encoder=encoder)
            cache = grown.allocated_bytes
        else:
            cache = cache_bill(plan.model, tokens, batch, plan.run.kv, encoder).logical_bytes
            cache = cache - (batch - 1) * shared_bytes(plan.model, tokens, shared, plan.run.kv)
        if setting.offload:
            weights -= setting.offload.saved_bytes(plan)
            cache = 0 if setting.offload.cache else cache
        residual = plan.step.tokens * plan.model.hidden * plan.activation_bytes
        most_of_one: Any = 0
        for op in kernels:
            most_of_one = most(most_of_one, op.work.bytes.activations)
        activations = kit(residual, most_of_one).floor(residual + most_of_one)
        if reserve:
            padding, activations = reserve.beside(plan, setting.model.vocab, activations)
            weights += padding
        fullest = fuller(fullest, Memory(weights, cache, activations))
    return fullest


def fuller(one: Memory, other: Memory) -> Memory:
    """The bill with the larger total, element by element for arrays."""
    more = other.total > one.total
    return Memory(*(kit(more).where(more, b, a) for a, b in zip(one, other, strict=True)))


def shared_bytes(model: Model, tokens: int, shared: int, fmt: Format) -> int:
    """Rows of the first `shared` tokens that a sequence of `tokens` still holds: what another sequence with
    the same beginning does not keep again. Of a window what has not slid out of it, of a state nothing.

    Source: PagedAttention, arXiv 2309.06180, section 4.4.
    """
    if not shared:
        return 0
    whole, own = (cache_bill(model, length, 1, fmt).logical_bytes for length in (tokens, tokens - shared))
    return whole - own


def widest_prefill(tokens: int, batch: int, chunk: int = CHUNK_TOKENS, encoder: int = 0) -> Step:
    """The widest step while prompts of `batch` sequences are computed, `chunk` tokens at a time together.

    Of the `encoder` positions of each sequence go through together as many as `chunk` holds, whole sequences
    and at least one (vLLM's budget for encoders is that of a step).
    """
    new = least(tokens * batch, max(1, chunk))
    if isinstance(encoder, int) and not encoder:
        return Step("prefill", (Segment(1, new, 0, least(batch, new)),))
    together = least(batch, most(1, max(1, chunk) // most(encoder, 1)))
    return Step("prefill", (Segment(together, ceil_div(new, together), 0, 1, encoder_new=encoder),))


def request_memory(setting: Setting, asked: Request) -> Memory:
    """The fullest rank of a request: its cache at the end, its prompts computed in chunks as engines do (as
    long as the setting's engine takes them).

    Arrays of prompts and batches give a bill of arrays.
    """
    held, batch, encoder = asked.held_tokens, asked.batch, asked.encoder
    fresh, own = asked.prompt - asked.cached, setting.engine.memory if setting.engine else None
    chunk = engine_flags(own, setting.gpu).in_flight if own else CHUNK_TOKENS
    steps = (decode(batch, most(held, 2), encoder), widest_prefill(fresh, batch, chunk, encoder))
    token, prompts = (peak_memory(setting, held, batch, step, encoder) for step in steps)
    return fuller(token, prompts)


class Load(NamedTuple):
    """What is to be held: `batch` sequences of `tokens` tokens, prompts computed `chunk` tokens at a time (of
    all sequences together).

    `share` of the capacity is the budget (None: the engine's own); the rows of `shared` first tokens are kept
    once. `reserve` is the engine that allocates, `draft` a model that drafts for this one.
    """

    tokens: int
    batch: int
    share: float | None
    chunk: int = CHUNK_TOKENS
    encoder: int = 0
    concat: bool = False
    encoder_follows: bool = False
    shared: int = 0
    reserve: Reserve | None = None
    given: Given = Given()
    draft: Model | None = None

    @property
    def positions(self) -> int:
        """Encoder positions of each sequence: as many as it has tokens where they follow these."""
        return self.tokens if self.encoder_follows else self.encoder

    def memory(self, setting: Setting) -> Memory:
        """The bill of the fullest rank."""
        steps = [decode(self.batch, self.tokens, self.positions)]
        # A concatenated cache is at its fullest when the last token is decoded, not in a prefill.
        tokens = max(self.tokens, self.chunk) if self.reserve and self.reserve.profiles else self.tokens
        prompts = widest_prefill(tokens, self.batch, self.chunk, self.positions)
        steps += [] if self.concat else [prompts]
        bills = [
            peak_memory(
                *(setting, self.tokens, self.batch, step, self.positions, self.concat, self.shared),
                reserve=self.reserve,
            )
            for step in steps
        ]
        return self._with_reserves(setting, max(bills, key=lambda bill: bill.total))

    def _with_reserves(self, setting: Setting, bill: Memory) -> Memory:
        """The bill with a draft model, the engine's reserves, and what was given in place of either."""
        given, ranks = self.given, setting.parallel.tp
        if given.weights is not None:
            bill = bill._replace(weights=-(-given.weights // setting.devices))
        if self.draft is not None:
            own = shard_model(self.draft, Parallel(tp=ranks))
            weights = weight_bill(own, default_recipe(own), self.batch, 0.0).weight_bytes
            kept = self._kept(own, setting.run.kv)
            bill = bill._replace(draft=weights, cache=bill.cache + kept)
        memory = self.reserve.memory if self.reserve else None
        if memory is not None:
            nccl = memory.nccl_mib * MIB if setting.devices > 1 else 0
            bill = bill._replace(context=memory.context_mib * MIB, nccl=nccl, graphs=memory.graphs_mib * MIB)
        named = {name: getattr(given, name) for name in ("context", "nccl", "graphs")}
        bill = bill._replace(**{name: value for name, value in named.items() if value is not None})
        if given.beside_cache is not None:
            bill = Memory(0, bill.cache, 0, other=given.beside_cache)
        return bill

    def _kept(self, model: Model, fmt: Format) -> int:
        if self.reserve:
            return self.reserve.cache_bytes(model, self.tokens, self.batch, fmt)
        return cache_bill(model, self.tokens, self.batch, fmt).logical_bytes

    def capacity_bytes(self, setting: Setting) -> int:
        """Raises InputError for a sheet that has no capacity."""
        capacity = self.given.capacity or setting.gpu.capacity_bytes
        if capacity is None:
            raise InputError(f"{setting.gpu.name} has no memory capacity on its sheet; --capacity gives one")
        return capacity

    def share_of(self, setting: Setting) -> float:
        """The share that was given, or the engine's own."""
        if self.share is not None:
            return self.share
        if self.reserve is None:
            return SHARE
        own = self.reserve.memory.share
        return sglang_share(self.capacity_bytes(setting), self.chunk, setting.devices) if own is None else own

    def budget_bytes(self, setting: Setting, bill: Memory | None = None) -> int:
        """What weights, cache and all else together may take, by the engine's rule.

        total: share x capacity. free: all but the cache, and a share of what that leaves (TensorRT-LLM).
        static: share x capacity for weights and cache, activations beside it (SGLang). free_of_weights: a
        share of what the weights leave (LMDeploy). A pool's size that is given takes the place of the share;
        where the share is of what is free, the smaller of the two holds (TensorRT-LLM issue 2773).
        """
        capacity, share = self.capacity_bytes(setting), self.share_of(setting)
        rule = self.reserve.memory.share_of if self.reserve else "total"
        wanted = self._pool_wanted(setting)
        if rule in ("total", "none") and wanted is None:
            return ceil(capacity * share)
        bill = bill or self.memory(setting)
        beside = bill.beside_cache
        pools = {
            "free": int(share * max(0, capacity - beside)),
            "static": int(share * capacity) - (beside - bill.activations - bill.graphs),
            "free_of_weights": int(share * max(0, capacity - (bill.weights or beside))),
        }
        most = pools.get(rule, 0)
        if wanted is not None:
            most = min(most, wanted) if rule == "free" and self.given.blocks is None else wanted
        return beside + max(0, most)

    def _pool_wanted(self, setting: Setting) -> int | None:
        """Bytes of the pool that was given, in blocks or in bytes; the number of blocks is the last word
        (vLLM's --num-gpu-blocks-override)."""
        if self.given.blocks is None or self.reserve is None:
            return self.given.pool
        own = shard_model(setting.model, setting.parallel)
        return self.given.blocks * self.reserve.request(own, self.tokens, setting.run.kv).unit_bytes

    def fits(self, setting: Setting) -> bool:
        bill = self.memory(setting)
        return bill.total <= self.budget_bytes(setting, bill)

    def pool(self, setting: Setting, bill: Memory) -> Pool | None:
        """What is left for the cache, cut as the engine cuts it; None without one, or without a pool."""
        if self.reserve is None:
            return None
        one = self.reserve.request(shard_model(setting.model, setting.parallel), self.tokens, setting.run.kv)
        left = max(0, self.budget_bytes(setting, bill) - bill.beside_cache)
        held = pool(self.reserve.engine, one, left, self.tokens)
        if held is None or self.draft is None:
            return held
        # A draft's cache is taken of the same pool, request by request.
        own = shard_model(self.draft, Parallel(tp=setting.parallel.tp))
        drafted = self.reserve.request(own, self.tokens, setting.run.kv).request_bytes
        share = one.request_bytes / (one.request_bytes + drafted)
        return held._replace(concurrency=held.concurrency * share, tokens=int(held.tokens * share))

    def smallest_share(self, setting: Setting, bill: Memory) -> float | None:
        """The least share of the engine's rule at which this load fits; None where there is none up to 1, or
        where the pool's size was given and no share has a say."""
        if self._pool_wanted(setting) is not None:
            return None
        capacity = self.capacity_bytes(setting)
        rule = self.reserve.memory.share_of if self.reserve else "total"
        need, room = {
            "free": (bill.cache, capacity - bill.beside_cache),
            "static": (bill.total - bill.activations - bill.graphs, capacity),
            "free_of_weights": (bill.cache, capacity - (bill.weights or bill.beside_cache)),
        }.get(rule, (bill.total, capacity))
        share = need / room if room > 0 else 2.0
        return share if share <= 1 else None


def longest(load: Load, setting: Setting) -> int | None:
    """Most tokens of each sequence that fit; 0 where none do, None where any length does."""
    return _most(lambda tokens: load._replace(tokens=tokens).fits(setting))


def largest_batch(load: Load, setting: Setting) -> int | None:
    """Most sequences of this length that fit; 0 where none do, None where any number does."""
    return _most(lambda batch: load._replace(batch=batch).fits(setting))


def _most(holds: Callable[[int], bool]) -> int | None:
    """The largest count for which `holds`, which is true up to it and false beyond."""
    if not holds(1):
        return 0
    low, high = 1, 2
    while holds(high):
        low, high = high, 2 * high
        if high > MAX_TOKENS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def gpus_needed(load: Load, setting: Setting) -> Parallel | None:
    """The fewest ranks that hold it: powers of two of tensor parallelism that divide the model, and beyond
    those pipeline stages; None where no number up to 1,024 does."""
    widest = 1
    for tp in _powers():
        try:
            wider = setting._replace(parallel=Parallel(tp=tp))
            if load.fits(wider):
                return wider.parallel
        except InputError:
            break
        widest = tp
    for pp in _powers():
        try:
            deeper = setting._replace(parallel=Parallel(tp=widest, pp=pp))
            if widest * pp <= MOST_GPUS and load.fits(deeper):
                return deeper.parallel
        except InputError:
            break
    return None


def _powers() -> Iterator[int]:
    count = 1
    while count <= MOST_GPUS:
        yield count
        count *= 2


class Change(NamedTuple):
    """Other formats, and the bill with them."""

    weights: str
    kv: str
    total: int


def what_would_fit(load: Load, setting: Setting) -> list[Change]:
    """Formats of weights and cache that bring the bill into the budget, the mildest of each way: not both
    where one does it, nor fewer bits than are needed."""
    own_kv = setting.run.kv
    narrow = find_format("fp8")
    held, less = (cache_bill(setting.model, 1, 1, fmt).logical_bytes for fmt in (own_kv, narrow))
    caches: list[Format] = [own_kv, narrow] if less < held else [own_kv]
    own = setting.recipe
    now = load.memory(setting)
    found: list[Change] = []
    enough: list[tuple[int, int]] = []
    for recipe in (own, *(find_recipe(name) for name in FORMATS)):
        for kv in caches:
            run = replace(setting.run, recipe=recipe, kv=kv)
            changed = setting._replace(run=run)
            memory = load.memory(changed)
            budget = load.budget_bytes(changed, memory)
            milder = any(memory.weights <= w and memory.cache <= c for w, c in enough)
            if memory.weights <= now.weights and memory.total <= budget and not milder:
                found.append(Change(recipe.name, kv.name, memory.total))
                enough.append((memory.weights, memory.cache))
    return found
