"""What inference engines take for the cache: blocks, groups, pools, and how many requests those hold.

Four allocators. vLLM cuts one pool into blocks that every group of layers draws from; SGLang counts tokens of
one cell each, in two pools where layers have windows; TensorRT-LLM counts whole blocks of tokens; llama.cpp
sizes every layer's cells for its context at the start. All figures are of one rank.
Source: ../shared/cases/engine_accounting.md (vLLM 0.32.0, SGLang 0.5.23, llama.cpp's logs).
"""

from __future__ import annotations

from math import ceil, lcm
from typing import TYPE_CHECKING, NamedTuple

from .. import InputError
from ..models.cache import CacheSpec
from ..models.formats import Format, ceil_div
from ..models.spec import Model
from .kv import cache_groups

if TYPE_CHECKING:
    from ..hardware.engine import EngineMemory
    from ..hardware.spec import Gpu

MIB, GIB = 1 << 20, 1 << 30
ALIGNED_TOKENS = 16
"""vLLM enlarges the blocks of attention beside recurrent states by multiples of this."""
PADDED_CELLS = 256
"""llama.cpp rounds the cells of a cache up to whole multiples of this."""
MOST_COMMON = 64
"""Rows of unlike widths share a page of their least common multiple, up to so many of the widest."""
SAME_COUNT = 1.5
"""vLLM groups layers by the larger count where the counts of the kinds are nearer than this ratio."""


class How(NamedTuple):
    """The flags that change what an engine allocates.

    `block_tokens` of a block; `in_flight`, tokens that a step may add (vLLM's --max-num-batched-tokens,
    llama.cpp's --ubatch-size), which a window keeps beside its own, and `sequences` of one;
    `ranks_of_context` share out each sequence's tokens (decode context parallel); `window_share`: the window
    pool in parts of the full one, of an engine that has two.
    """

    block_tokens: int
    in_flight: int
    sequences: int
    ranks_of_context: int = 1
    window_share: float | None = None


class Steps(NamedTuple):
    """Most tokens, and most sequences, of one step."""

    tokens: int
    sequences: int


def step_limits(memory: EngineMemory, gpu: Gpu | None) -> Steps:
    """An engine's own limits of a step on `gpu`: those of the first of its `cards` that this is one of.

    None, or a card of unknown size, is one of the ordinary cards. Source: vLLM 0.28 and later,
    engine/arg_utils.py get_batch_defaults (of its server: by the card's memory, and A100 by name).
    """
    if gpu is not None and gpu.capacity_bytes is not None:
        gib, name = gpu.capacity_bytes / GIB, f"{gpu.name} {gpu.title}".lower()
        for card in memory.cards:
            if card.from_gib <= gib < card.below_gib and card.named in name:
                return Steps(card.chunk_tokens, card.sequences)
    return Steps(memory.chunk_tokens, memory.sequences)


def engine_flags(memory: EngineMemory, gpu: Gpu | None) -> How:
    """An engine's flags where none were given."""
    steps = step_limits(memory, gpu)
    return How(memory.block_tokens, steps.tokens, steps.sequences, window_share=memory.window_share)


class Group(NamedTuple):
    """Layers that one request takes the same number of pieces for, each `bytes`.

    `slots`: pieces side by side, one a layer (vLLM pads short groups to the longest).
    """

    kind: str
    layers: int
    window: int | None
    slots: int
    pieces: int
    bytes: int


class Reserved(NamedTuple):
    """What one request of a length takes of a pool: `units` of `unit_bytes`."""

    groups: tuple[Group, ...]
    units: float
    unit_bytes: int
    block_tokens: int | None

    @property
    def request_bytes(self) -> int:
        return ceil(self.units * self.unit_bytes)


class Pool(NamedTuple):
    """A pool of a size, cut into `blocks`: `concurrency` requests of a length, and the tokens an engine logs
    for it."""

    bytes: int
    blocks: int
    concurrency: float
    tokens: int


def vllm_request(model: Model, fmt: Format, tokens: int, how: How) -> Reserved:
    """Blocks of one request of `tokens` tokens.

    Full attention: ceil(T / block); a window: ceil(min(W - 1 + in flight, T) / block) + 1; a recurrent state:
    1. Layers are grouped by kind, every group as long as the shortest (the longest where they are nearer than
    1.5 to 1), the rest padded; pages of all are made equal by longer blocks.
    """
    kinds = _kept(model)
    page, blocks = _pages(kinds, fmt, how.block_tokens)
    counts = [layers for _, layers in kinds]
    size = max(counts) if max(counts) < SAME_COUNT * min(counts) else min(counts)
    here = ceil_div(tokens, how.ranks_of_context)
    groups = []
    for (cache, layers), block in zip(kinds, blocks, strict=True):
        if not cache.grows:
            each = 1
        elif cache.capped:
            each = ceil_div(cache.kept(tokens, how.in_flight - 1), block) + 1
        else:
            each = ceil_div(here, block)
        padded = ceil_div(layers, size)
        groups.append(Group(*_named(cache, layers), padded * size, padded * each, page * size))
    return Reserved(tuple(groups), sum(group.pieces for group in groups), page * size, max(blocks))


def _pages(kinds: list[tuple[CacheSpec, int]], fmt: Format, block: int) -> tuple[int, list[int]]:
    """(bytes of one layer's block, tokens of each kind's block) with all pages equal.

    The blocks of narrower rows hold more tokens; a state's page is padded to one of attention, whose block is
    enlarged until a state fits in it.
    """
    rows = [cache.bytes_per_token(fmt) for cache, _ in kinds]
    grown = [row for row in rows if row]
    state = max((cache.state_bytes() for cache, _ in kinds if not cache.grows), default=0)
    if not grown:
        return state, [block] * len(kinds)
    common = lcm(*grown)
    page = block * (common if common <= MOST_COMMON * max(grown) else max(grown))
    if state > page:
        widest = max(grown)
        page = ceil_div(ceil_div(state, widest), ALIGNED_TOKENS) * ALIGNED_TOKENS * widest
    return page, [page // row if row else block for row in rows]


def vllm_pool(reserved: Reserved, pool_bytes: int, tokens: int, blocks: int | None = None) -> Pool:
    """Blocks of a pool, maximum concurrency at `tokens`, and the token count that vLLM logs for it:
    int(concurrency x max_model_len). `blocks` overrides their number (--num-gpu-blocks-override)."""
    held = pool_bytes // reserved.unit_bytes if blocks is None else blocks
    concurrency = held / reserved.units
    return Pool(held * reserved.unit_bytes, held, concurrency, int(concurrency * tokens))


def sglang_request(model: Model, fmt: Format, tokens: int, how: How) -> Reserved:
    """Tokens of one request in cells of all layers; window layers have `window_share` of a cell each.

    Raises InputError where the window pool of one request would hold no more than a window and a page.
    """
    groups, cell, states = [], 0, 0
    kinds = _kept(model)
    two_pools = any(cache.grows and not cache.capped for cache, _ in kinds)
    for cache, layers in kinds:
        width = cache.bytes_per_token(fmt) * layers
        states += cache.state_bytes() * layers
        if cache.capped and two_pools:
            share = 1.0 if how.window_share is None else how.window_share
            width = int(width * share)
            least_held = cache.kept(tokens, how.block_tokens)
            if int(tokens * share) <= least_held < tokens:
                raise InputError(
                    f"a window pool of {share:g} x {tokens:,} tokens is no more than the window "
                    f"of {cache.kept(tokens):,} and a page: SGLang refuses it"
                )
        cell += width
        pieces = ceil_div(tokens, how.block_tokens)
        groups.append(Group(*_named(cache, layers), layers, pieces, width * how.block_tokens))
    unit = cell * how.block_tokens
    if not unit:
        return Reserved(tuple(groups), 1, states, None)
    return Reserved(tuple(groups), ceil_div(tokens, how.block_tokens) + states / unit, unit, how.block_tokens)


def paged_request(model: Model, fmt: Format, tokens: int, how: How) -> Reserved:
    """Whole blocks of all layers: TensorRT-LLM and LMDeploy. A window layer keeps its window's blocks."""
    groups, widest = [], 0
    for cache, layers in _kept(model):
        width = cache.bytes_per_token(fmt) * layers * how.block_tokens
        pieces = ceil_div(cache.kept(tokens), how.block_tokens) if cache.grows else 1
        size = width if cache.grows else cache.state_bytes() * layers
        groups.append(Group(*_named(cache, layers), layers, pieces, size))
        widest += width
    needed = sum(group.pieces * group.bytes for group in groups)
    unit = widest or needed
    return Reserved(tuple(groups), needed / unit, unit, how.block_tokens)


def llama_cpp_cells(model: Model, fmt: Format, tokens: int, slots: int, how: How) -> Reserved:
    """Every cell of `slots` contexts of `tokens` tokens, taken at the start.

    Full attention: the context of all slots, padded to 256 cells; a window W: min(context, W x slots + micro
    batch), padded; a recurrent state for every slot.
    """
    groups = []
    for cache, layers in _kept(model):
        kind, window = cache.label
        cells = _padded(cache.kept(tokens * slots, how.in_flight, slots))
        if cache.grows:
            groups.append(Group(kind, layers, window, layers, cells, cache.bytes_per_token(fmt) * layers))
        if cache.state:
            groups.append(Group(kind, layers, None, layers, slots, cache.state_bytes() * layers))
    total = sum(group.pieces * group.bytes for group in groups)
    return Reserved(tuple(groups), 1, total, None)


def _padded(cells: int) -> int:
    return ceil_div(cells, PADDED_CELLS) * PADDED_CELLS


def _named(cache: CacheSpec, layers: int) -> tuple[str, int, int | None]:
    """The first fields of a `Group`."""
    kind, window = cache.label
    return kind, layers, window


def _kept(model: Model) -> list[tuple[CacheSpec, int]]:
    """The caches that are stored for the decoder's own tokens, with how many layers keep each."""
    kept = [
        (cache, layers)
        for cache, layers in cache_groups(model)
        if cache.stored and (cache.grows or cache.state) and not cache.of_encoder
    ]
    if not kept:
        raise InputError(f"{model.name} keeps no cache: there is no pool to size")
    return kept


POOLED = ("vllm", "sglang", "tensorrt-llm", "lmdeploy")
"""Engines that size a pool first and then admit requests to it."""
ALLOCATORS = (*POOLED, "llama.cpp")


def reserved(
    engine: str, model: Model, fmt: Format, tokens: int, batch: int, how: How
) -> tuple[Reserved, int]:
    """(what a request takes, bytes of all `batch` requests) of one rank's `model` in `engine`.

    Raises InputError for an engine whose allocator is not modelled.
    """
    if engine == "llama.cpp":
        cells = llama_cpp_cells(model, fmt, tokens, batch, how)
        return cells, cells.request_bytes
    of = {"vllm": vllm_request, "sglang": sglang_request}.get(engine, paged_request)
    if engine not in ALLOCATORS:
        raise InputError(f"what {engine} allocates is not modelled; known: {', '.join(ALLOCATORS)}")
    one = of(model, fmt, tokens, how)
    return one, ceil(one.units * batch) * one.unit_bytes


def pool(engine: str, one: Reserved, pool_bytes: int, tokens: int, blocks: int | None = None) -> Pool | None:
    """What `pool_bytes` hold of requests like `one`; None where an engine has no pool (llama.cpp)."""
    if engine not in POOLED:
        return None
    if engine == "vllm":
        return vllm_pool(one, pool_bytes, tokens, blocks)
    held = pool_bytes // one.unit_bytes if blocks is None else blocks
    each = one.block_tokens or 1
    return Pool(held * one.unit_bytes, held, held / one.units, held * each)


def sglang_share(capacity_bytes: int, chunk: int, ranks: int, graph_batch: int = 160) -> float:
    """Default --mem-fraction-static: what is left of the card beside the reserve for activations and graphs.

    reserve MB = 512 + 1.5 x max(chunk, 2048) + 1024 x ranks / 8 + 2 x largest graph batch, at least 10 GiB on
    cards above 60 GiB. Source: SGLang 0.5.23, arg_groups/memory_hook.py, as read in engine_accounting.md.
    """
    reserve = (512 + 1.5 * max(chunk, 2048) + 1024 * ranks / 8 + 2 * graph_batch) * MIB
    if capacity_bytes > 60 << 30:
        reserve = max(reserve, 10 << 30)
    return max(0.0, (capacity_bytes - reserve) / capacity_bytes)
