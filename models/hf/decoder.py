"""Decoders that are a stack of attention and MLP (dense or experts): most families, as styles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..attention import Attention, LatentAttention
from ..block import Block
from ..ffn import Dense, Experts
from ..spec import Layer, Norm
from .fields import REQUIRED, Fields
from .parts import RMS


@dataclass(frozen=True)
class Style:
    """What a class implies where its file has no key for it.

    `bias` letters over q, k, v, o that always carry one; `bias_key` switches on `bias_letters`
    (default `bias_default`); `mlp_bias` as the keys `mlp_bias_keys` say, default this. `gated`: three
    MLP matrices. `rope` is the rotated share of head_dim where no key says. `tied`: the class default.
    `norms` of the hidden width a layer; a true `parallel_key` puts mixer and MLP side by side behind
    one norm. `windows`: how windows are placed where no list says: none, all, late (from
    max_window_layers on), alternate (even layers slide), everyN (every Nth is full), listed (by a list
    or not at all). `extra_positions`: rows of a learned position table beyond the context.
    """

    norm: Norm = RMS
    norms: int = 2
    parallel: bool = False
    parallel_key: str = ""
    gated: bool = True
    bias: str = ""
    bias_keys: tuple[str, ...] = ("attention_bias",)
    bias_letters: str = "qkvo"
    bias_default: bool = False
    mlp_bias: bool = False
    mlp_bias_keys: tuple[str, ...] = ("mlp_bias",)
    qk_norm: str = ""
    qk_norm_key: str = ""
    qk_norm_default: bool = False
    rope: float = 1.0
    tied: bool = False
    windows: str = "all"
    sinks: bool = False
    expert_bias: bool = False
    router_bias: bool = False
    shared_gate: bool = False
    head_bias: bool = False
    embedding_norm: bool = False
    extra_positions: int | None = None


def context_of(f: Fields) -> int | None:
    """The context the file names, or None."""
    names = (
        "max_position_embeddings",
        "n_positions",
        "max_seq_len",
        "seq_length",
        "model_max_length",
        "n_ctx",
    )
    return f.integer(*names, default=0, least=0) or None


def head_width(f: Fields, hidden: int, heads: int) -> int:
    """head_dim by its keys, else hidden / heads."""
    f.ignore("head_dim", "attention_head_dim")
    if f.has("head_dim", "attention_head_dim"):
        return f.integer("head_dim", "attention_head_dim")
    if hidden % heads:
        raise f.error(f"'head_dim' is missing and hidden {hidden} is not a multiple of {heads} heads")
    f.infer(f"head_dim = {hidden // heads}: hidden / heads")
    return hidden // heads


def heads_of(f: Fields) -> tuple[int, int]:
    """(query heads, KV heads)."""
    heads = f.integer("num_attention_heads", "n_head", "n_heads", "num_heads")
    kv = f.integer(
        "num_key_value_heads", "num_kv_heads", "n_head_kv", default=heads, why="as many as query heads"
    )
    return heads, kv


def window_list(f: Fields, layers: int, style: Style) -> list[int | None]:
    """The window of each layer (None: full), by list, pattern or the class's own placement."""
    window = f.integer("sliding_window", "attention_window_size", "sliding_window_size", default=0, least=0)
    chunk = f.integer("attention_chunk_size", default=0, least=0)
    meanings = {
        "full_attention": None,
        "attention": None,
        "indexed_attention": None,  # every key is kept; which are attended is the indexer's affair
        "sliding_attention": window or None,
        "chunked_attention": chunk or window or None,
    }
    types = f.places("layer_types", "layers_block_type", length=layers, meanings=meanings)
    pattern = f.raw("sliding_window_pattern", "_sliding_window_pattern")
    switched = f.flag("use_sliding_window", default=True)
    first = f.integer("max_window_layers", default=0, least=0)
    if types is not None:
        return types
    if not window or not switched:
        return [None] * layers
    if isinstance(pattern, str) and pattern and set(pattern) <= set("LG"):
        return [window if pattern[i % len(pattern)] == "L" else None for i in range(layers)]
    if isinstance(pattern, int) and not isinstance(pattern, bool) and pattern > 1:
        return [None if (i + 1) % pattern == 0 else window for i in range(layers)]
    if style.windows == "alternate":
        f.infer("windows: every other layer, the first included (class)")
        return [window if i % 2 == 0 else None for i in range(layers)]
    if style.windows.startswith("every"):
        period = int(style.windows.removeprefix("every"))
        f.infer(f"windows: all but every {period}th layer (class)")
        return [None if (i + 1) % period == 0 else window for i in range(layers)]
    if style.windows == "listed":
        f.require("layer_types")
    if style.windows == "late":
        return [window if i >= first else None for i in range(layers)]
    return [window if style.windows == "all" else None] * layers


def attention(f: Fields, hidden: int, style: Style, window: int | None = None) -> Attention:
    """The attention of a layer, with the class's biases and norms."""
    heads, kv_heads = heads_of(f)
    head_dim = head_width(f, hidden, heads)
    fraction = f.number("partial_rotary_factor", "rotary_pct", "rope_pct", default=style.rope)
    rope_sections = f.section("rope_parameters")
    if rope_sections is not None:
        fraction = rope_sections.number("partial_rotary_factor", default=fraction)
    rotated = f.integer("rotary_dim", default=round(head_dim * fraction), least=0)
    bias = style.bias
    if style.bias_keys and f.flag(*style.bias_keys, default=style.bias_default):
        bias = "".join(p for p in "qkvo" if p in style.bias_letters + bias)
    elif bias:
        f.infer(f"biases on {', '.join(bias)}: the class has them, no key says so")
    qk_norm = style.qk_norm
    if style.qk_norm_key and not f.flag(style.qk_norm_key, default=style.qk_norm_default):
        qk_norm = ""
    return Attention(
        heads,
        kv_heads,
        head_dim,
        window=window,
        bias=bias,
        qk_norm=qk_norm,
        rope_dim=None if rotated == head_dim else min(rotated, head_dim),
        sinks=style.sinks,
    )


def latent(f: Fields) -> LatentAttention:
    """MLA by its keys; an indexer where there is one."""
    f.ignore("num_key_value_heads", "head_dim", "qk_head_dim", "rope_interleave", "indexer_rope_interleave")
    rank = f.raw("q_lora_rank")
    indexed = f.has("index_head_dim")
    biased = f.flag("attention_bias")
    return LatentAttention(
        heads=f.integer("num_attention_heads"),
        kv_lora_rank=f.integer("kv_lora_rank"),
        nope_dim=f.integer("qk_nope_head_dim"),
        rope_dim=f.integer("qk_rope_head_dim"),
        v_head_dim=f.integer("v_head_dim"),
        q_lora_rank=None if rank is None else f.integer("q_lora_rank"),
        index_heads=f.integer("index_n_heads") if indexed else 0,
        index_dim=f.integer("index_head_dim") if indexed else 0,
        index_top_k=f.integer("index_topk") if indexed else None,
        bias="qko" if biased else "",
    )


EXPERT_COUNT = ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts")


def expert_layers(f: Fields, layers: int) -> list[bool]:
    """Which layers have experts: by list, by the first dense ones, by step, by period."""
    kinds = f.words("mlp_layer_types", length=layers)
    frequency = f.raw("moe_layer_freq")
    each = f.items("moe_layer_freq", length=layers) if isinstance(frequency, list) else None
    listed = f.items("moe_layers")
    only_dense = f.items("mlp_only_layers") or []
    first_dense = f.integer(
        "first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", default=0, least=0
    )
    step = f.integer(
        "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval", default=1, least=0
    )
    period = f.integer("expert_layer_period", default=0, least=0)
    offset = f.integer("expert_layer_offset", default=0, least=0)
    last = f.integer("moe_layer_end_index", default=-1, least=-1)
    if kinds is not None:
        return [kind == "sparse" for kind in kinds]
    if each is not None:
        return [bool(value) for value in each]
    if listed is not None:
        return [i in listed for i in range(layers)]
    every = frequency if isinstance(frequency, int) and frequency > 0 else 1
    out = []
    for i in range(layers):
        sparse = i >= first_dense and i not in only_dense and (last < 0 or i <= last)
        if period:
            sparse = sparse and i % period == offset % period
        elif step > 1:
            sparse = sparse and (i + 1) % step == 0
        out.append(sparse and i % every == 0)
    return out


def experts(f: Fields, style: Style) -> Experts | None:
    """The experts of a layer, or None where the file has none."""
    count = f.integer(*EXPERT_COUNT, default=0, least=0)
    if not count:
        return None
    width = _last(f.raw("moe_intermediate_size"))
    moe_width = width if _count(width) else f.integer("intermediate_size")
    shared, shared_width = 0, None
    many = _last(
        f.raw("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
    )
    total = f.integer(
        "shared_expert_intermediate_size",
        "shared_intermediate_size",
        "moe_shared_expert_intermediate_size",
        default=0,
        least=0,
    )
    if _count(many):
        shared, shared_width = many, total or None
    elif total:
        shared, shared_width = 1, total
    names = ("num_experts_per_tok", "experts_per_token", "moe_topk", "moe_k", "top_k_experts")
    top_k = _last(f.raw(*names))
    if not _count(top_k):
        raise f.error("'num_experts_per_tok' is missing; without it active weights cannot be counted")
    return Experts(
        count,
        top_k,
        moe_width,
        gated=style.gated,
        shared=shared,
        shared_width=shared_width,
        shared_gate=style.shared_gate and shared > 0,
        bias=style.expert_bias,
        router_bias=style.router_bias,
    )


MLP_WIDTH = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff")


def _last(value: Any) -> Any:
    """The last of a list given a layer (they are alike in the families that give one)."""
    return value[-1] if isinstance(value, list) and value else value


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def dense(f: Fields, hidden: int, style: Style) -> Dense:
    """The MLP of a layer; GPT-2's descendants leave its width to be 4 x hidden."""
    default, why = (REQUIRED, "") if style.gated else (4 * hidden, "4 x hidden")
    width = f.integer(*MLP_WIDTH, default=default, why=why)
    bias = f.flag(*style.mlp_bias_keys, default=style.mlp_bias) if style.mlp_bias_keys else style.mlp_bias
    return Dense(width, style.gated, bias)


def stack(f: Fields, hidden: int, style: Style) -> tuple[Layer, ...]:
    """All layers of a plain decoder."""
    count = f.integer("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    windows = window_list(f, count, style)
    block = experts(f, style)
    sparse = expert_layers(f, count) if block is not None else [False] * count
    latents = latent(f) if f.has("kv_lora_rank") else None
    out = []
    made: dict[int | None, Attention] = {}
    plain = None if all(sparse) else dense(f, hidden, style)
    f.ignore("intermediate_size")
    for i in range(count):
        if latents is not None:
            mixer: Block = latents
        else:
            if windows[i] not in made:
                made[windows[i]] = attention(f, hidden, style, windows[i])
            mixer = made[windows[i]]
        ffn: Block | None = block if sparse[i] else plain
        assert ffn is not None
        out.append(Layer((mixer, ffn), style.norms, style.parallel))
    return tuple(out)
