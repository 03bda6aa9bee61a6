"""Families with a shape of their own: older names, hybrids, per-layer lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..attention import Attention
from ..block import Block
from ..dimensions import rounded_up
from ..ffn import Dense, Experts, Projections
from ..spec import Layer
from .decoder import (
    Style,
    attention,
    context_of,
    dense,
    expert_layers,
    experts,
    head_width,
    heads_of,
    stack,
)
from .encoders import bart, bert, t5, whisper
from .fields import Fields
from .gemma import gemma3n, gemma4
from .hybrids import (
    granite_hybrid,
    jamba,
    lfm2,
    mamba,
    mamba2,
    minimax,
    nemotron_h,
    qwen3_next,
    recurrent_gemma,
    rwkv,
    zamba2,
)
from .parts import BARE_LAYER, LAYER, RMS, Parts

Reader = Callable[[Fields], Parts]


def opt(f: Fields) -> Parts:
    """OPT: learned positions with two rows before them; the 350M has narrow tables and no last norm."""
    style = Style(
        norm=LAYER,
        gated=False,
        bias_keys=("enable_bias",),
        bias_default=True,
        mlp_bias=True,
        mlp_bias_keys=("enable_bias",),
        rope=0,
    )
    hidden = f.integer("hidden_size")
    before = f.flag("do_layer_norm_before", default=True)
    removed = f.flag("_remove_final_layer_norm")
    narrow = f.integer("word_embed_proj_dim", default=hidden)
    return Parts(
        hidden,
        f.integer("vocab_size"),
        stack(f, hidden, style),
        LAYER,
        tied=True,
        final_norm=before and not removed,
        positions=f.integer("max_position_embeddings") + 2,
        embedding_width=narrow if narrow != hidden else None,
        context=context_of(f),
    )


def mpt(f: Fields) -> Parts:
    """MPT: ALiBi, no biases and bare LayerNorms unless no_bias is false."""
    hidden = f.integer("d_model")
    heads = f.integer("n_heads")
    inner = f.section("attn_config")
    kv_heads, qk_norm = heads, ""
    if inner is not None:
        kv_heads = inner.integer("kv_n_heads", default=heads)
        if inner.text("attn_type", default="") == "multiquery_attention":
            kv_heads = 1
        qk_norm = "full" if inner.flag("qk_ln") else ""
    bias = not f.flag("no_bias", default=True)
    mixer = Attention(
        heads, kv_heads, hidden // heads, bias="qkvo" if bias else "", qk_norm=qk_norm, rope_dim=0
    )
    ffn = Dense(f.integer("expansion_ratio", default=4) * hidden, gated=False, bias=bias)
    layers = (Layer((mixer, ffn)),) * f.integer("n_layers")
    norm = LAYER if bias else BARE_LAYER
    return Parts(hidden, f.integer("vocab_size"), layers, norm, tied=True, context=context_of(f))


def falcon(f: Fields) -> Parts:
    """Falcon: one KV head (7B), KV heads with two norms (40B and up), or full heads with ALiBi (RW)."""
    hidden = f.integer("hidden_size", "n_embed")
    heads = f.integer("num_attention_heads", "n_head")
    new = f.flag("new_decoder_architecture")
    multi_query = f.flag("multi_query", default=True)
    stated = f.integer("num_kv_heads", "n_head_kv", default=heads)
    kv_heads = stated if new else 1 if multi_query else heads
    parallel = f.flag("parallel_attn", default=True)
    bias = f.flag("bias")
    alibi = f.flag("alibi")
    norms = f.integer("num_ln_in_parallel_attn", default=2 if new else 1)
    mixer = Attention(
        heads, kv_heads, hidden // heads, bias="qkvo" if bias else "", rope_dim=0 if alibi else None
    )
    ffn = Dense(f.integer("ffn_hidden_size", default=4 * hidden, why="4 x hidden"), gated=False, bias=bias)
    layer = Layer((mixer, ffn), norms if parallel else 2, parallel)
    count = f.integer("num_hidden_layers", "n_layer")
    return Parts(hidden, f.integer("vocab_size"), (layer,) * count, LAYER, tied=True, context=context_of(f))


def gpt_bigcode(f: Fields) -> Parts:
    """StarCoder and SantaCoder: GPT-2 with one KV head."""
    hidden = f.integer("n_embd", "hidden_size")
    heads = f.integer("n_head", "num_attention_heads")
    kv_heads = 1 if f.flag("multi_query", default=True) else heads
    mixer = Attention(heads, kv_heads, hidden // heads, bias="qkvo", rope_dim=0)
    ffn = Dense(f.integer("n_inner", default=4 * hidden, why="4 x hidden"), gated=False, bias=True)
    rows = f.integer("n_positions", "max_position_embeddings")
    layers = (Layer((mixer, ffn)),) * f.integer("n_layer", "num_hidden_layers")
    return Parts(hidden, f.integer("vocab_size"), layers, LAYER, tied=True, positions=rows, context=rows)


def dbrx(f: Fields) -> Parts:
    """DBRX: bare LayerNorms, experts described in ffn_config, KV heads in attn_config."""
    hidden, heads = f.integer("d_model"), f.integer("n_heads")
    inner, ffn = f.section("attn_config"), f.section("ffn_config")
    if inner is None or ffn is None:
        raise f.error("'attn_config' and 'ffn_config' are missing; they hold KV heads and experts")
    mixer = Attention(heads, inner.integer("kv_n_heads"), hidden // heads)
    block = Experts(ffn.integer("moe_num_experts"), ffn.integer("moe_top_k"), ffn.integer("ffn_hidden_size"))
    layers = (Layer((mixer, block)),) * f.integer("n_layers")
    return Parts(hidden, f.integer("vocab_size"), layers, BARE_LAYER, context=context_of(f))


def chatglm(f: Fields) -> Parts:
    """ChatGLM 2 and 3, GLM-4 of 2024: multi_query_group_num KV heads, half the head rotated."""
    hidden, heads = f.integer("hidden_size"), f.integer("num_attention_heads")
    grouped = f.flag("multi_query_attention")
    kv_heads = f.integer("multi_query_group_num") if grouped else heads
    f.ignore("multi_query_group_num")
    head_dim = f.integer("kv_channels", default=hidden // heads)
    bias = "qkv" if f.flag("add_qkv_bias") else ""
    linear = f.flag("add_bias_linear")
    mixer = Attention(heads, kv_heads, head_dim, bias=("qkvo" if linear else bias), rope_dim=head_dim // 2)
    ffn = Dense(f.integer("ffn_hidden_size"), bias=linear)
    layers = (Layer((mixer, ffn)),) * f.integer("num_layers")
    norm = RMS if f.flag("rmsnorm", default=True) else LAYER
    last = f.flag("post_layer_norm", default=True)
    return Parts(hidden, f.integer("padded_vocab_size"), layers, norm, final_norm=last, context=context_of(f))


def llama4(f: Fields) -> Parts:
    """Llama 4: chunked attention but every fourth layer; experts with one shared, every layer or other."""
    hidden, count = f.integer("hidden_size"), f.integer("num_hidden_layers")
    chunk = f.integer("attention_chunk_size", default=8192, why="the class default", least=0)
    meanings = {"chunked_attention": chunk or None, "full_attention": None}
    types = f.places("layer_types", length=count, meanings=meanings)
    listed = f.items("no_rope_layers", length=count)
    step = f.integer("no_rope_layer_interval", default=4)
    if types is not None:
        windows = types
    elif listed:
        windows = [chunk if use_rope else None for use_rope in listed]
    else:
        f.infer(f"windows: chunks of {chunk:,} on all but every {step}th layer (class)")
        windows = [None if (i + 1) % step == 0 else chunk for i in range(count)]
    every = f.integer("interleave_moe_layer_step", default=1)
    chosen = f.items("moe_layers")
    sparse = [(i in chosen) if chosen is not None else (i + 1) % every == 0 for i in range(count)]
    f.ignore("use_qk_norm", "for_llm_compressor")
    style = Style()
    block = Experts(
        f.integer("num_local_experts"),
        f.integer("num_experts_per_tok", default=1),
        f.integer("intermediate_size"),
        shared=1,
    )
    plain = Dense(f.integer("intermediate_size_mlp", default=block.width))
    layers = tuple(
        Layer((attention(f, hidden, style, window or None), block if moe else plain))
        for window, moe in zip(windows, sparse, strict=True)
    )
    return Parts(hidden, f.integer("vocab_size"), layers, context=context_of(f))


def mimo_v2(f: Fields) -> Parts:
    """MiMo-V2: windows of other KV heads and with sinks, K wider than V, experts but in the first layer."""
    hidden, count = f.integer("hidden_size"), f.integer("num_hidden_layers")
    f.require("hybrid_layer_pattern", "moe_layer_freq", "swa_num_key_value_heads")
    f.require("add_swa_attention_sink_bias")
    f.ignore("layer_types", "mlp_layer_types")
    pattern = f.items("hybrid_layer_pattern") or [0] * count
    if len(pattern) != count:
        raise f.error(f"names {len(pattern)} layers of {count}", "hybrid_layer_pattern")
    f.ignore("attention_chunk_size", "sliding_window_size", "attention_value_scale", "moe_layer_freq")
    window = f.integer("sliding_window")
    head_dim = f.integer("head_dim")
    rotated = round(head_dim * f.number("partial_rotary_factor", default=1.0)) // 2 * 2
    bias = "qkv" if f.flag("attention_bias") else ""
    heads, kv_heads = heads_of(f)
    full = Attention(
        heads,
        kv_heads,
        head_dim,
        f.integer("v_head_dim", default=head_dim),
        bias=bias,
        rope_dim=rotated,
        sinks=f.flag("add_full_attention_sink_bias"),
    )
    sliding = Attention(
        f.integer("swa_num_attention_heads", default=heads),
        f.integer("swa_num_key_value_heads", default=kv_heads),
        f.integer("swa_head_dim", default=head_dim),
        f.integer("swa_v_head_dim", default=full.v_width),
        window=window,
        bias=bias,
        rope_dim=rotated,
        sinks=f.flag("add_swa_attention_sink_bias"),
    )
    style = Style()
    routed = experts(f, style)
    sparse = expert_layers(f, count) if routed is not None else [False] * count
    plain = dense(f, hidden, style)
    layers = tuple(
        Layer((sliding if slides else full, routed if moe and routed is not None else plain))
        for slides, moe in zip(pattern, sparse, strict=True)
    )
    return Parts(hidden, f.integer("vocab_size"), layers, context=context_of(f))


def hunyuan(f: Fields) -> Parts:
    """Hunyuan: every cla_share_factor layers read one cache; a shared MLP beside the experts."""
    hidden, count = f.integer("hidden_size"), f.integer("num_hidden_layers")
    # The published classes say use_qk_norm; the library's own (hunyuan_v1_*) always have the norms.
    always = f.text("model_type").startswith("hunyuan_v1")
    style = Style(qk_norm="head", qk_norm_key="use_qk_norm", qk_norm_default=always, windows="none")
    share = f.integer("cla_share_factor", default=1) if f.flag("use_cla") else 1
    f.ignore("cla_share_factor", "use_mixed_mlp_moe", "moe_drop_tokens", "moe_random_routing_dropped_token")
    mixed = f.flag("use_mixed_mlp_moe")
    routed = experts(f, style)
    if routed is not None and always:
        routed = replace(routed, shared=1, shared_width=f.integer("intermediate_size"))
    elif routed is not None and not mixed:
        routed = replace(routed, shared=0)
    plain = dense(f, hidden, style)
    mixer = attention(f, hidden, style)
    layers = []
    for i in range(count):
        first = i - i % share
        mine = mixer if first == i else replace(mixer, shared_from=first)
        layers.append(Layer((mine, routed or plain)))
    return Parts(hidden, f.integer("vocab_size"), tuple(layers), context=context_of(f))


def nemotron_nas(f: Fields) -> Parts:
    """Nemotron NAS (Deci): each layer states its own KV heads and width, or drops one of its blocks."""
    hidden, heads = f.integer("hidden_size"), f.integer("num_attention_heads")
    blocks = f.items("block_configs")
    if not blocks:
        raise f.error("'block_configs' is missing; it holds the shape of each layer")
    head_dim = head_width(f, hidden, heads)
    layers = []
    for index, block in enumerate(blocks):
        one = Fields(block, f.origin, f.inferred, f"block_configs[{index}]")
        att, ffn = one.section("attention"), one.section("ffn")
        made: list[Block] = []
        if att is not None and not att.flag("no_op"):
            if att.flag("replace_with_linear"):
                made.append(Projections(f"{hidden}x{hidden}"))
            else:
                group = att.integer("n_heads_in_group")
                window = att.integer("window_length", default=0, least=0)
                made.append(Attention(heads, heads // group, head_dim, window=window or None))
        if ffn is not None and not ffn.flag("no_op"):
            if ffn.flag("replace_with_linear"):
                made.append(Projections(f"{hidden}x{hidden}"))
            else:
                width = int(2 * ffn.number("ffn_mult", default=4.0) * hidden / 3)
                made.append(Dense(rounded_up(width, 256)))
        layers.append(Layer(tuple(made), norms=len(made)))
    f.ignore("num_hidden_layers", "intermediate_size", "num_key_value_heads")
    return Parts(hidden, f.integer("vocab_size"), tuple(layers), context=context_of(f))


FAMILIES: dict[str, Reader] = {
    "opt": opt,
    "mpt": mpt,
    "falcon": falcon,
    "RefinedWebModel": falcon,
    "RefinedWeb": falcon,
    "gpt_bigcode": gpt_bigcode,
    "dbrx": dbrx,
    "chatglm": chatglm,
    "llama4": llama4,
    "llama4_text": llama4,
    "gemma3n_text": gemma3n,
    "gemma4_text": gemma4,
    "mimo_v2_flash": mimo_v2,
    "hunyuan": hunyuan,
    "hunyuan_v1_dense": hunyuan,
    "hunyuan_v1_moe": hunyuan,
    "nemotron-nas": nemotron_nas,
    "deci": nemotron_nas,
    "jamba": jamba,
    "mamba": mamba,
    "falcon_mamba": mamba,
    "mamba2": mamba2,
    "zamba2": zamba2,
    "nemotron_h": nemotron_h,
    "granitemoehybrid": granite_hybrid,
    "bamba": granite_hybrid,
    "qwen3_next": qwen3_next,
    "qwen3_5_text": qwen3_next,
    "qwen3_5_moe_text": qwen3_next,
    "recurrent_gemma": recurrent_gemma,
    "rwkv": rwkv,
    "minimax": minimax,
    "minimax_text_01": minimax,
    "lfm2": lfm2,
    "t5": t5,
    "mt5": t5,
    "bart": bart,
    "mbart": bart,
    "whisper": whisper,
    "bert": bert,
}
"""model_type to reader, for what `plain.STYLES` cannot say."""
