"""KV cache and state: what stays in memory for a sequence between steps."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import InputError
from ..models.cache import CacheSpec
from ..models.formats import Format
from ..models.spec import Model
from .arith import least, rounded_up

BLOCK_TOKENS = 16
"""Tokens of a block of a paged cache where no engine's profile says: vLLM's default."""
STATE_ACTIVATION_BYTES = 2
"""Convolution states are kept in the activations' 16-bit type, recurrent states in fp32."""


def row_bytes(cache: CacheSpec, fmt: Format) -> int:
    """Bytes one cached token takes in one layer: Σ heads · (width in `fmt`, scales included).

    2·K·D·b for plain attention. Source: seed 000, section 7.
    """
    return sum(row.heads * fmt.row_bytes(row.width) for row in cache.rows)


def cached_tokens(cache: CacheSpec, tokens: Any) -> Any:
    """min(T, W): a window layer holds at most W tokens. Source: Mistral 7B, arXiv 2310.06825, 2."""
    return least(tokens, cache.window) if cache.window is not None else tokens


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

    A layer that reads another layer's rows stores nothing and stands in the list with zero bytes. Arrays give
    arrays of bytes.
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
        if not cache.rows or not cache.stored or cache.kind == "cross_attention":
            continue
        row = row_bytes(cache, fmt) * layers * batch
        held, per_token = cached_tokens(cache, tokens), per_token + row
        if policy == "paged":
            allocated += row * (int(rounded_up(held, block)) - held)
        elif policy == "static" and reserved is not None:
            allocated += row * (cached_tokens(cache, reserved) - held)
        elif prompt is not None:
            allocated += row * cached_tokens(cache, max(tokens - 1, 1))
            copied += 2 * row * _sum_of_lengths(cache, prompt, tokens - 1)
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


def _sum_of_lengths(cache: CacheSpec, start: int, end: int) -> int:
    """Cached tokens summed over lengths start, ..., end - 1: Σ min(t, W)."""
    if end <= start:
        return 0
    turn = end if cache.window is None else min(max(cache.window, start), end)
    growing = (start + turn - 1) * (turn - start) // 2
    return growing + (end - turn) * (cache.window or 0)
