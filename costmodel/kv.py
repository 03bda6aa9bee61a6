"""KV cache and state: what stays in memory for a sequence between steps."""

from __future__ import annotations

from typing import NamedTuple

from .. import InputError
from ..models.cache import CacheSpec
from ..models.formats import Format
from ..models.spec import Model

BLOCK_TOKENS = 16
"""Tokens of a block of a paged cache where no engine's profile says: vLLM's default."""


class CacheGroup(NamedTuple):
    """Layers that keep the same thing; all figures are for all of them and every sequence.

    `growing_bytes` are of rows, one an entry, of which there are `tokens`; `of_encoder`: of its
    positions.
    """

    kind: str
    layers: int
    window: int | None
    tokens: int
    bytes_per_token: int
    growing_bytes: int
    state_bytes: int
    elements: int
    of_encoder: bool

    @property
    def bytes(self) -> int:
        return self.growing_bytes + self.state_bytes


class CacheBill(NamedTuple):
    """KV and state of `batch` sequences of `tokens` tokens.

    `logical_bytes` is growing KV plus state; `bytes_per_token` one sequence over all storing
    layers, below any window.
    """

    groups: tuple[CacheGroup, ...]
    batch: int
    tokens: int

    @property
    def logical_bytes(self) -> int:
        return sum(group.bytes for group in self.groups)

    @property
    def state_bytes(self) -> int:
        return sum(group.state_bytes for group in self.groups)

    @property
    def bytes_per_token(self) -> int:
        return sum(group.bytes_per_token for group in self.groups if not group.of_encoder)

    @property
    def elements(self) -> int:
        """Cached values, scales and state not counted."""
        return sum(group.elements for group in self.groups)


def cache_groups(model: Model, library: bool = False) -> list[tuple[CacheSpec, int]]:
    """Distinct caches of the decoder's layers with how many layers keep each.

    `library`: as transformers keeps them (`CacheSpec.in_library`), not as serving engines do.
    """
    counts: dict[CacheSpec, int] = {}
    for layer, times in model.groups:
        for kept in layer.caches():
            cache = kept.in_library() if library else kept
            counts[cache] = counts.get(cache, 0) + times
    return list(counts.items())


def cache_bill(
    model: Model, tokens: int, batch: int, fmt: Format, encoder: int = 0, library: bool = False
) -> CacheBill:
    """What `batch` sequences of `tokens` tokens (and `encoder` encoder positions) keep, by group.

    A layer that reads another layer's rows stores nothing and stands in the list with zero bytes. Arrays give
    arrays of bytes.
    """
    groups = []
    for cache, layers in cache_groups(model, library):
        kind, window = cache.label
        at, stored = cache.counted(tokens, encoder), layers if cache.stored else 0
        entries = cache.entries(at)
        groups.append(
            CacheGroup(
                kind,
                layers,
                window,
                entries if cache.grows else tokens,
                cache.bytes_per_token(fmt) * stored,
                cache.bytes_at(at, fmt) * stored * batch,
                cache.state_bytes() * layers * batch,
                cache.values_per_token * entries * stored * batch,
                cache.of_encoder,
            )
        )
    return CacheBill(tuple(groups), batch, tokens)


class Allocation(NamedTuple):
    """What an allocator of `policy` takes for one set of sequences, fixed states included."""

    policy: str
    block_tokens: int | None
    allocated_bytes: int
    utilisation: float
    waste_average_bytes: int | float
    waste_max_bytes: int
    copied_bytes: int


def allocate(
    model: Model,
    policy: str,
    tokens: int,
    batch: int,
    fmt: Format,
    block: int = BLOCK_TOKENS,
    reserved: int | None = None,
    prompt: int | None = None,
    encoder: int = 0,
) -> Allocation:
    """The cache under an allocator: paged, static or concat.

    paged: whole blocks of `block` tokens; waste is block - 1 tokens at most, half that on average.
    static: `reserved` tokens per sequence from the start (window layers: their window at most).
    concat: every decode step allocates the cache anew and copies it, 2·t·kv bytes at t tokens, the old
    one standing beside it meanwhile; a `prompt` of P grown to T tokens makes T - P - 1 steps, since
    prefill yields the first token. Fixed states and cross-attention KV are taken as they are.
    Source: seed ledger, pg.waste and pg.concat; PagedAttention, arXiv 2309.06180, section 3.1.

    Raises InputError where a policy lacks what it goes by, or reserves less than is held.
    """
    if policy not in ("paged", "static", "concat"):
        raise InputError(f"an allocator is paged, static or concat, not '{policy}'")
    if policy == "static" and reserved is None:
        raise InputError("a static allocator reserves a length: give --max-len")
    if policy == "static" and reserved is not None and reserved < tokens:
        raise InputError(f"{reserved:,} tokens reserved do not hold {tokens:,}")
    if policy == "concat" and prompt is None:
        raise InputError("growing by concatenation goes from a prompt: give --prompt and --gen")
    bill = cache_bill(model, tokens, batch, fmt, encoder)
    used = bill.logical_bytes
    allocated, per_token, copied = used, 0, 0
    for cache, layers in cache_groups(model):
        if not cache.keeps_tokens:
            continue
        many, held = layers * batch, cache.bytes_at(tokens, fmt)
        per_token += many * cache.bytes_per_token(fmt)
        if policy == "paged":
            allocated += many * (cache.bytes_in_blocks(tokens, block, fmt) - held)
        elif policy == "static" and reserved is not None:
            allocated += many * (cache.bytes_at(reserved, fmt) - held)
        elif prompt is not None:
            allocated += many * cache.bytes_at(max(tokens - 1, 1), fmt)
            copied += 2 * many * cache.bytes_over(prompt, tokens - 1, fmt)
    most = (block - 1) * per_token if policy == "paged" else allocated - used
    average = most / 2 if policy == "paged" else float(most)
    return Allocation(
        policy,
        block if policy == "paged" else None,
        allocated,
        used / allocated if allocated else 1.0,
        int(average) if average.is_integer() else average,
        most,
        copied,
    )
