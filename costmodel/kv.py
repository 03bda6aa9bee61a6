"""KV cache and state: what stays in memory for a sequence between steps."""

from __future__ import annotations

from typing import NamedTuple

from ..models.cache import CacheSpec
from ..models.formats import Format
from ..models.spec import Model
from .arith import ceil_div, least

STATE_ACTIVATION_BYTES = 2
"""Convolution states are kept in the activations' 16-bit type, recurrent states in fp32."""


def row_bytes(cache: CacheSpec, fmt: Format) -> int:
    """Bytes one cached token takes in one layer: Σ heads · (width in `fmt`, scales included).

    2·K·D·b for plain attention. Source: seed 000, section 7.
    """
    return sum(row.heads * fmt.row_bytes(row.width) for row in cache.rows)


def cached_tokens(cache: CacheSpec, tokens: int) -> int:
    """min(T, W): a window layer holds at most W tokens. Source: Mistral 7B, arXiv 2310.06825, 2."""
    return int(least(tokens, cache.window)) if cache.window is not None else tokens


def state_bytes(cache: CacheSpec, activation_bytes: int = STATE_ACTIVATION_BYTES) -> int:
    """Bytes of a layer's fixed state for one sequence, as a serving engine keeps it."""
    return sum(s.values * s.columns * (s.value_bytes or activation_bytes) for s in cache.state)


class CacheGroup(NamedTuple):
    """Layers that keep the same thing; all figures are for all of them and every sequence."""

    kind: str
    layers: int
    window: int | None
    tokens: int
    bytes_per_token: int
    growing_bytes: int
    state_bytes: int
    elements: int

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
        return sum(group.bytes_per_token for group in self.groups if group.kind != "cross_attention")

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

    A layer that reads another layer's rows stores nothing and stands in the list with zero bytes.
    """
    groups = []
    for cache, layers in cache_groups(model, library):
        kept = encoder if cache.kind == "cross_attention" else cached_tokens(cache, tokens)
        per_token = row_bytes(cache, fmt) * layers if cache.stored else 0
        values = cache.values_per_token * layers if cache.stored else 0
        groups.append(
            CacheGroup(
                cache.kind,
                layers,
                cache.window,
                kept if cache.rows else tokens,
                per_token,
                per_token * kept * batch,
                state_bytes(cache) * layers * batch,
                values * kept * batch,
            )
        )
    return CacheBill(tuple(groups), batch, tokens)


class Allocation(NamedTuple):
    """What an allocator of `policy` takes for the growing KV of one set of sequences."""

    policy: str
    block_tokens: int
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
    block: int = 16,
    reserved: int | None = None,
    prompt: int | None = None,
) -> Allocation:
    """Growing KV under an allocator: paged, static or concat.

    paged: whole blocks of `block` tokens; waste is block - 1 tokens at most, half that on average.
    static: `reserved` tokens per sequence from the start (window layers: their window at most).
    concat: every decode step allocates the cache anew and copies it, 2·t·kv bytes at t tokens; a
    `prompt` of P grown to T tokens makes T - P - 1 steps, since prefill yields the first token.
    Source: seed ledger, pg.waste and pg.concat; PagedAttention, arXiv 2309.06180, section 3.1.
    """
    kept = reserved if policy == "static" and reserved is not None else tokens
    allocated = used = per_token = copied = 0
    for cache, layers in cache_groups(model):
        if not cache.rows or not cache.stored or cache.kind == "cross_attention":
            continue
        row = row_bytes(cache, fmt) * layers * batch
        held = cached_tokens(cache, kept)
        if policy == "paged":
            held = int(ceil_div(held, block)) * block
        allocated += row * held
        used += row * cached_tokens(cache, tokens)
        per_token += row
        if policy == "concat" and prompt is not None:
            copied += sum(2 * row * cached_tokens(cache, t) for t in range(prompt, tokens - 1))
    most = (block - 1) * per_token if policy == "paged" else allocated - used
    average = most / 2 if policy == "paged" else float(most)
    return Allocation(
        policy,
        block if policy == "paged" else 0,
        allocated,
        used / allocated if allocated else 1.0,
        int(average) if average.is_integer() else average,
        most,
        copied,
    )
