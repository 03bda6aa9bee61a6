"""Attention: how many query-key pairs are visited, and the kernels of softmax, latent and cross
attention."""

from __future__ import annotations

from ..models.attention import Attention, CrossAttention, LatentAttention
from ..models.cache import seen_rows
from .arith import alike, least, most, some
from .build import GATE_FLOPS, NORM_FLOPS, ROPE_FLOPS, Builder, by_name
from .op import Attend, Gather, Gemm, Number
from .step import Segment


def visited_pairs(new: Number, past: Number, window: Number | None = None) -> Number:
    """Query-key pairs of one causal sequence: the sum over i = 1..new of min(past + i, window).

    T(T+1)/2 for a fresh prompt of T tokens; W·T - W(W-1)/2 once a window W is shorter than it.
    Source: seed ledger, pre.model and swa.
    """
    if window is None:
        return new * past + new * (new + 1) // 2
    growing = least(most(window - past, 0), new)
    return growing * past + growing * (growing + 1) // 2 + (new - growing) * window


def key_rows(segment: Segment, window: int | None = None) -> Number:
    """Key positions one sequence's attention reads: the new ones and what the cache still holds."""
    return seen_rows(segment.new, segment.past, window)


def attention_ops(b: Builder, block: Attention) -> None:
    """QKV, norms of Q and K, RoPE, cache append, attention, gate, output projection."""
    t = by_name(block.tensors(b.hidden))
    tokens = b.step.tokens
    stored = block.shared_from is None
    projections = [t[p] for p in "qkv" if p in t]
    b.gemm("qkv", tokens, projections, [t[f"{p}_bias"] for p in "qkv" if f"{p}_bias" in t])
    heads = block.heads + (block.kv_heads if stored else 0)
    if block.qk_norm:
        weights = [t[n] for n in ("q_norm", "k_norm") if n in t]
        b.pointwise("qk_norm", tokens * heads * block.head_dim, 1, 1, NORM_FLOPS, weights)
    if block.rotated:
        b.pointwise("rope", tokens * heads * block.rotated, 1, 1, ROPE_FLOPS)
    k_row, v_row = (row.bytes(b.run.kv) for row in block.caches()[0].rows)
    if stored and block.causal:
        values = tokens * block.kv_heads * (block.head_dim + block.v_width)
        b.pointwise("kv_append", values, 1, 0, 0, kv_bytes=tokens * (k_row + v_row))
    name = "attention" if block.window is None else f"attention.w{block.window}"
    for segment in b.step.segments:
        context = key_rows(segment, block.window)
        if b.run.full_attention or not block.causal:
            pairs = segment.new * context
        else:
            pairs = visited_pairs(segment.new, segment.past, block.window)
        sinks = b.weight_bytes([t["sinks"]]) if block.sinks else 0
        attend_ops(b, name, segment, block, context, pairs, k_row, v_row, weight_bytes=sinks)
    if block.gated:
        b.pointwise("attention_gate", tokens * block.heads * block.v_width, 2, 1, GATE_FLOPS)
    b.gemm("o_proj", tokens, [t["o"]], [t["o_bias"]] if "o_bias" in t else [])


def attend_ops(
    b: Builder,
    name: str,
    segment: Segment,
    block: Attention | CrossAttention,
    context: Number,
    pairs: Number,
    k_row: Number,
    v_row: Number,
    fresh: bool | None = None,
    weight_bytes: Number = 0,
) -> None:
    """The fused kernel, or eager attention's three, which compute the full square and mask it.

    A fresh prompt attends to the K and V just computed; anything with a past reads the cache.
    """
    v_dim = block.v_width if isinstance(block, Attention) else block.head_dim
    cached = alike(segment.past > 0, "a past") if fresh is None else not fresh
    if not cached:
        k_row = block.kv_heads * block.head_dim * b.activation_bytes
        v_row = block.kv_heads * v_dim * b.activation_bytes

    def work(stage: str, row: Number, visited: Number) -> Attend:
        return Attend(
            segment.count,
            segment.new,
            context,
            visited,
            block.heads,
            block.kv_heads,
            block.head_dim,
            v_dim,
            row,
            b.plan.activation,
            stage,
            cached,
            weight_bytes if stage in ("fused", "softmax") else 0,
            b.activation_bytes,
            (block.window or 0) if isinstance(block, Attention) else 0,
        )

    if b.run.attention == "flash":
        b.add(name, work("fused", k_row + v_row, pairs))
        return
    square = segment.new * context
    b.add(f"{name}.qk", work("qk", k_row, square))
    b.add(f"{name}.softmax", work("softmax", 0, square))
    b.add(f"{name}.pv", work("pv", v_row, square))


def cross_attention_ops(b: Builder, block: CrossAttention) -> None:
    """K and V of new encoder positions once, then attention of every token over all positions."""
    t = by_name(block.tensors(b.hidden))
    tokens, fresh = b.step.tokens, b.step.encoder_tokens
    b.gemm("cross_q", tokens, [t["cross_q"]], [t[n] for n in ("cross_q_bias",) if n in t])
    row = block.caches()[0].bytes_per_token(b.run.kv) // 2
    if some(fresh):
        biases = [t[n] for n in ("cross_k_bias", "cross_v_bias") if n in t]
        b.gemm("cross_kv", fresh, [t["cross_k"], t["cross_v"]], biases)
        values = fresh * 2 * block.kv_heads * block.head_dim
        b.pointwise("cross_append", values, 1, 0, 0, kv_bytes=fresh * 2 * row)
    for segment in b.step.segments:
        context = segment.encoder_new + segment.encoder_past
        if some(context):
            pairs = segment.new * context
            computed_now = not some(segment.encoder_past)
            attend_ops(b, "cross_attention", segment, block, context, pairs, row, row, computed_now)
    b.gemm("cross_o", tokens, [t["cross_o"]], [t[n] for n in ("cross_o_bias",) if n in t])


def encoder_attention_ops(b: Builder, block: Attention, sequences: list[tuple[int, int]]) -> None:
    """Bidirectional attention of an encoder: every pair, no cache. `sequences`: (count, positions)."""
    t = by_name(block.tensors(b.hidden))
    tokens = b.step.encoder_tokens
    biases = [t[f"{p}_bias"] for p in "qkv" if f"{p}_bias" in t]
    b.gemm("encoder.qkv", tokens, [t[p] for p in "qkv"], biases)
    if block.rotated:
        values = tokens * (block.heads + block.kv_heads) * block.rotated
        b.pointwise("encoder.rope", values, 1, 1, ROPE_FLOPS)
    for count, positions in sequences:
        whole = Segment(count, positions)
        attend_ops(b, "encoder.attention", whole, block, positions, positions * positions, 0, 0, True)
    b.gemm("encoder.o_proj", tokens, [t["o"]], [t["o_bias"]] if "o_bias" in t else [])


def latent_attention_ops(b: Builder, block: LatentAttention) -> None:
    """MLA, absorbed or expanded for each segment.

    Absorbed: queries are taken into the latent space (W_UK), attend to the latent rows as one KV
    head of width kv_lora_rank + rope_dim whose first kv_lora_rank values are V, and come back
    (W_UV). Expanded: K and V of every key position are rebuilt from its latent row.
    Source: DeepSeek-V2, arXiv 2405.04434, section 2.1.2 and appendix C.
    """
    t = by_name(block.tensors(b.hidden))
    tokens = b.step.tokens
    if block.q_lora_rank is None:
        b.gemm("q", tokens, [t["q"]], [])
        b.gemm("kv_a", tokens, [t["kv_a"]], [t[n] for n in ("kv_a_bias",) if n in t])
    else:
        b.gemm("q_kv_a", tokens, [t["q_a"], t["kv_a"]], [t[n] for n in ("q_a_bias", "kv_a_bias") if n in t])
        b.pointwise("q_a_norm", tokens * block.q_lora_rank, 1, 1, NORM_FLOPS, [t["q_a_norm"]])
        b.gemm("q_b", tokens, [t["q_b"]], [])
    b.pointwise("kv_a_norm", tokens * block.kv_lora_rank, 1, 1, NORM_FLOPS, [t["kv_a_norm"]])
    b.pointwise("rope", tokens * (block.heads + 1) * block.rope_dim, 1, 1, ROPE_FLOPS)
    row = block.caches()[0].rows[0].bytes(b.run.kv)
    b.pointwise("kv_append", tokens * block.latent_dim, 1, 0, 0, kv_bytes=tokens * row)
    if block.index_heads:
        _indexer_ops(b, block)
    absorbed = [s for s in b.step.segments if _absorb(b, block, s)]
    expanded = [s for s in b.step.segments if not _absorb(b, block, s)]
    if absorbed:
        _absorbed_ops(b, block, absorbed, row)
    if expanded:
        _expanded_ops(b, block, expanded, row)
    b.gemm("o_proj", tokens, [t["o"]], [t["o_bias"]] if "o_bias" in t else [])


def _mla_visits(block: LatentAttention, segment: Segment, full: bool) -> tuple[Number, Number]:
    """(key rows read, pairs visited) of one sequence; an indexer leaves index_top_k keys a query."""
    chosen, context = block.index_top_k, segment.context
    visible = context if chosen is None else least(context, chosen)
    pairs = segment.new * visible if full else visited_pairs(segment.new, segment.past, chosen)
    return context if chosen is None else least(context, segment.new * chosen), pairs


def _absorb(b: Builder, block: LatentAttention, segment: Segment) -> bool:
    if b.run.mla != "auto":
        return b.run.mla == "absorbed"
    _, pairs = _mla_visits(block, segment, b.run.full_attention)
    latent, up = block.kv_lora_rank, block.nope_dim + block.v_head_dim
    absorbed = pairs * (block.latent_dim + latent) + segment.new * latent * up
    rebuilt = pairs * (block.qk_dim + block.v_head_dim) + segment.context * latent * up
    return alike(absorbed <= rebuilt, "MLA absorbed or expanded")


def _absorbed_ops(b: Builder, block: LatentAttention, segments: list[Segment], row: int) -> None:
    kv_b = by_name(block.tensors(b.hidden))["kv_b"]
    size = b.weight_bytes([kv_b])
    keys = size * block.nope_dim // (block.nope_dim + block.v_head_dim)
    rows = sum(segment.tokens for segment in segments)
    act, rank = b.activation_bytes, block.kv_lora_rank
    kind = (b.math(kv_b), act, block.heads, b.stored(kv_b))
    b.add("q_absorb", Gemm(rows, block.nope_dim, rank, keys, *kind))
    for segment in segments:
        context, pairs = _mla_visits(block, segment, b.run.full_attention)
        work = Attend(
            segment.count,
            segment.new,
            context,
            pairs,
            block.heads,
            1,
            block.latent_dim,
            rank,
            row,
            b.plan.activation,
            activation_bytes=act,
            v_in_k=True,
        )
        b.add("attention.absorbed", work)
    b.add("v_up", Gemm(rows, rank, block.v_head_dim, size - keys, *kind))


def _expanded_ops(b: Builder, block: LatentAttention, segments: list[Segment], row: int) -> None:
    kv_b = by_name(block.tensors(b.hidden))["kv_b"]
    past = sum(segment.count * segment.past for segment in segments)
    if alike(past > 0, "a past"):
        b.add("latent_read", Gather(past, block.latent_dim, row, True, b.activation_bytes))
    b.gemm("kv_b", past + sum(segment.tokens for segment in segments), [kv_b], [])
    wide = Attention(block.heads, block.heads, block.qk_dim, block.v_head_dim)
    for segment in segments:
        context, pairs = _mla_visits(block, segment, b.run.full_attention)
        attend_ops(b, "attention.expanded", segment, wide, context, pairs, 0, 0, fresh=True)


def _indexer_ops(b: Builder, block: LatentAttention) -> None:
    """The sparse indexer scores every key with a few small heads, and adds the heads up (v_dim 1)."""
    t = by_name(block.tensors(b.hidden))
    tokens = b.step.tokens
    b.gemm("index_q", tokens, [t["index_q"]], [])
    b.gemm("index_k", tokens, [t["index_k"], t["index_weights"]], [])
    b.pointwise("index_norm", tokens * block.index_dim, 1, 1, NORM_FLOPS, [t["index_k_norm"]])
    row = block.caches()[0].rows[1].bytes(b.run.kv)
    b.pointwise("index_append", tokens * block.index_dim, 1, 0, 0, kv_bytes=tokens * row)
    for segment in b.step.segments:
        pairs = segment.new * segment.context
        if not b.run.full_attention:
            pairs = visited_pairs(segment.new, segment.past)
        work = Attend(
            segment.count,
            segment.new,
            segment.context,
            pairs,
            block.index_heads,
            1,
            block.index_dim,
            1,
            row,
            b.plan.activation,
            activation_bytes=b.activation_bytes,
        )
        b.add("index_scores", work)
