"""Hybrids and models without attention: state space, linear attention, gated recurrences."""

from __future__ import annotations

from dataclasses import replace

from ..attention import Attention
from ..block import Block
from ..dimensions import ceil_div, rounded_up
from ..ffn import Dense, Projections
from ..recurrent import LinearAttention, Recurrent, ShortConvolution, StateSpace
from ..spec import Layer
from .decoder import (
    EXPERT_COUNT,
    Style,
    attention,
    context_of,
    dense,
    expert_layers,
    experts,
    head_width,
    heads_of,
)
from .fields import Fields
from .parts import LAYER, Parts


def jamba(f: Fields) -> Parts:
    """Jamba: attention every attn_layer_period layers, Mamba between, experts every other layer."""
    hidden, count = f.integer("hidden_size"), f.integer("num_hidden_layers")
    period, offset = f.integer("attn_layer_period"), f.integer("attn_layer_offset", least=0)
    inner = f.integer("mamba_expand") * hidden
    rank = f.raw("mamba_dt_rank", default="auto")
    mixer = StateSpace(
        inner,
        f.integer("mamba_d_state"),
        f.integer("mamba_d_conv"),
        dt_rank=ceil_div(hidden, 16) if rank == "auto" else f.integer("mamba_dt_rank"),
        inner_norms=True,
        proj_bias=f.flag("mamba_proj_bias"),
        conv_bias=f.flag("mamba_conv_bias", default=True),
    )
    style = Style(rope=0, windows="none", bias_keys=())
    full, plain = attention(f, hidden, style), dense(f, hidden, style)
    # One expert is the plain MLP, without a router.
    routed = experts(f, style) if f.integer(*EXPERT_COUNT, default=0, least=0) > 1 else None
    sparse = expert_layers(f, count) if routed is not None else [False] * count
    f.ignore("sliding_window", "expert_layer_offset", "expert_layer_period", "layers_block_type")
    if offset >= period:
        raise f.error(
            f"is not below attn_layer_period ({period}): no layer would attend", "attn_layer_offset"
        )
    layers = tuple(
        Layer((full if i % period == offset else mixer, routed if sparse[i] and routed else plain))
        for i in range(count)
    )
    return Parts(hidden, f.integer("vocab_size"), layers, context=context_of(f))


def mamba(f: Fields) -> Parts:
    """Mamba-1: one norm and one mixer a layer."""
    hidden = f.integer("hidden_size")
    rank = f.raw("time_step_rank", default="auto")
    inner = f.integer("intermediate_size", "d_inner", default=f.integer("expand", default=2) * hidden)
    mixer = StateSpace(
        inner,
        f.integer("state_size", "d_state"),
        f.integer("conv_kernel", "d_conv", default=4),
        dt_rank=ceil_div(hidden, 16) if rank == "auto" else f.integer("time_step_rank"),
        proj_bias=f.flag("use_bias"),
        conv_bias=f.flag("use_conv_bias", default=True),
    )
    f.ignore("expand")
    layers = (Layer((mixer,), norms=1),) * f.integer("num_hidden_layers", "n_layer")
    return Parts(hidden, f.integer("vocab_size"), layers, tied=True)


def mamba2(f: Fields) -> Parts:
    """Mamba-2: `num_heads` are state-space heads here."""
    hidden = f.integer("hidden_size")
    mixer = _ssm2(
        f, hidden, heads=("num_heads",), head=("head_dim",), state=("state_size",), groups=("n_groups",)
    )
    layers = (Layer((mixer,), norms=1),) * f.integer("num_hidden_layers")
    f.ignore("time_step_rank", "rms_norm", "expand")
    return Parts(hidden, f.integer("vocab_size"), layers)


def _ssm2(
    f: Fields,
    hidden: int,
    heads: tuple[str, ...],
    head: tuple[str, ...],
    state: tuple[str, ...],
    groups: tuple[str, ...],
    kernel: tuple[str, ...] = ("conv_kernel",),
) -> StateSpace:
    expand = f.number("mamba_expand", "expand", default=0.0)
    count = f.integer(*heads)
    width = f.raw(*head)
    if isinstance(width, int) and not isinstance(width, bool):
        inner = count * width
    elif expand:
        inner = int(expand * hidden)
    else:
        raise f.error(f"'{head[0]}' is missing; it is the width of a state-space head")
    return StateSpace(
        inner,
        f.integer(*state),
        f.integer(*kernel, "conv_kernel", default=4),
        heads=count,
        groups=f.integer(*groups, default=1),
        proj_bias=f.flag("mamba_proj_bias", "use_bias"),
        conv_bias=f.flag("mamba_conv_bias", "use_conv_bias", default=True),
    )


def nemotron_h(f: Fields) -> Parts:
    """Nemotron-H: one block a layer, named by a pattern (M Mamba-2, * attention, - MLP, E experts)."""
    hidden = f.integer("hidden_size")
    pattern = f.text("hybrid_override_pattern", default="")
    letters = {"mamba": "M", "linear_attention": "M", "attention": "*", "full_attention": "*"}
    letters |= {"mlp": "-", "moe": "E"}
    stated = f.items("layers_block_type")
    if stated is not None:
        kinds = f.places("layers_block_type", length=len(stated), meanings=letters)
        pattern = "".join(kinds or ())
    f.ignore("mtp_layers_block_type")
    if "E" not in pattern:
        f.ignore("moe_intermediate_size", "moe_shared_expert_intermediate_size", "n_routed_experts")
        f.ignore("n_shared_experts", "num_experts_per_tok", "moe_latent_size")
    if not pattern or not set(pattern) <= set("M*-E|"):
        raise f.error("'hybrid_override_pattern' must be a word over M, *, - and E")
    pattern = pattern.replace("|", "")
    f.ignore("num_hidden_layers", "expand", "time_step_rank", "sliding_window", "use_bias")
    # The class builds its attention without biases, whatever attention_bias says.
    style = Style(gated=False, rope=0, windows="none", bias_keys=())
    f.ignore("attention_bias")
    made: dict[str, Block] = {
        "M": _ssm2(
            f,
            hidden,
            heads=("mamba_num_heads",),
            head=("mamba_head_dim",),
            state=("ssm_state_size",),
            groups=("n_groups", "mamba_n_groups"),
        )
    }
    if "*" in pattern:
        made["*"] = attention(f, hidden, style)
    if "-" in pattern:
        made["-"] = dense(f, hidden, style)
    if "E" in pattern:
        routed = experts(f, style)
        if f.flag("mlp_bias"):
            raise f.error("biases of shared experts are not counted; write a sheet", "mlp_bias")
        if routed is None:
            raise f.error("the pattern has experts (E) but 'n_routed_experts' is missing")
        made["E"] = routed
    f.ignore("intermediate_size")
    layers = tuple(Layer((made[letter],), norms=1) for letter in pattern)
    return Parts(hidden, f.integer("vocab_size"), layers, context=context_of(f))


def granite_hybrid(f: Fields) -> Parts:
    """Granite 4 hybrids and Bamba: Mamba-2 or attention, a shared MLP, experts where there are any."""
    hidden, count = f.integer("hidden_size"), f.integer("num_hidden_layers")
    meanings = {"attention": True, "full_attention": True, "mamba": False, "linear_attention": False}
    kinds = f.places("layer_types", "layers_block_type", length=count, meanings=meanings)
    attends = f.items("attn_layer_indices")
    if kinds is None:
        kinds = [bool(attends) and i in (attends or ()) for i in range(count)]
    mixer = _ssm2(
        f,
        hidden,
        heads=("mamba_n_heads",),
        head=("mamba_d_head",),
        state=("mamba_d_state",),
        groups=("mamba_n_groups",),
        kernel=("mamba_d_conv",),
    )
    style = Style(rope=0, windows="none")
    full, routed = attention(f, hidden, style), experts(f, style)
    f.ignore("shared_intermediate_size", "mamba_expand", "position_embedding_type", "attn_rotary_emb")
    ffn: Block = routed or Dense(f.integer("shared_intermediate_size", "intermediate_size"))
    layers = tuple(Layer((full if attending else mixer, ffn)) for attending in kinds)
    return Parts(hidden, f.integer("vocab_size"), layers, context=context_of(f))


def zamba2(f: Fields) -> Parts:
    """Zamba2: Mamba-2 layers, before some of them one of a few shared attention-and-MLP blocks.

    The shared block sees the layer's input beside the embeddings (twice the width); its weights are
    stored once, each place has adapters of its own, a projection back and a cache.
    """
    hidden, count = f.integer("hidden_size"), f.integer("num_hidden_layers")
    f.require("hybrid_layer_ids")
    f.ignore("layers_block_type", "layer_types")
    places = f.items("hybrid_layer_ids") or []
    if not all(isinstance(i, int) and 0 <= i < count for i in places):
        raise f.error(f"must hold numbers of layers, 0 to {count - 1}", "hybrid_layer_ids")
    blocks = f.integer("num_mem_blocks", default=1)
    wide = f.integer("attention_hidden_size", default=2 * hidden)
    heads, kv_heads = heads_of(f)
    head_dim = f.integer("attention_head_dim", default=wide // heads)
    rank = f.integer("adapter_rank", default=128)
    width = f.integer("intermediate_size", "ffn_hidden_size", default=4 * hidden)
    bias = f.flag("add_bias_linear")
    rotated = head_dim if f.flag("use_mem_rope") else 0
    mixer = _ssm2(
        f,
        hidden,
        heads=("n_mamba_heads",),
        head=("mamba_headdim",),
        state=("mamba_d_state",),
        groups=("mamba_ngroups",),
        kernel=("mamba_d_conv",),
    )
    shared = Attention(heads, kv_heads, head_dim, input_width=wide, rope_dim=rotated)
    ffn = Dense(width, bias=bias)
    shapes = f"{hidden}x{rank} {rank}x{2 * width} {hidden}x{hidden}"
    if f.flag("use_shared_attention_adapter"):
        shapes += f" {wide}x{rank}*3 {rank}x{wide}*3"
    place = Projections(shapes)
    f.ignore("mamba_expand", "num_query_groups", "kv_channels")
    seen: dict[int, int] = {}
    layers = []
    for i in range(count):
        if i not in places:
            layers.append(Layer((mixer,), norms=1))
            continue
        which = places.index(i) % blocks
        owner = seen.setdefault(which, i)
        borrowed = None if owner == i else owner
        pair = (replace(shared, weights_of=borrowed), replace(ffn, weights_of=borrowed))
        # The shared block's two norms are stored with it: one of twice the width, one of the hidden.
        mine = replace(place, vectors=wide + hidden) if owner == i else place
        layers.append(Layer((*pair, mine, mixer), norms=1))
    return Parts(hidden, f.integer("vocab_size"), tuple(layers), tied=True, context=context_of(f))


def qwen3_next(f: Fields) -> Parts:
    """Qwen3-Next and Qwen3.5: gated delta net but every full_attention_interval-th layer."""
    hidden, count = f.integer("hidden_size"), f.integer("num_hidden_layers")
    meanings = {"full_attention": True, "linear_attention": False}
    kinds = f.places("layer_types", length=count, meanings=meanings)
    every = f.integer("full_attention_interval", default=4)
    if kinds is None:
        kinds = [(i + 1) % every == 0 for i in range(count)]
    linear = LinearAttention(
        "gated_delta",
        f.integer("linear_num_key_heads"),
        f.integer("linear_num_value_heads"),
        f.integer("linear_key_head_dim"),
        f.integer("linear_value_head_dim"),
        f.integer("linear_conv_kernel_dim"),
    )
    style = Style(qk_norm="head", rope=0.25, windows="none", shared_gate=True)
    f.ignore("use_sliding_window", "sliding_window", "attn_output_gate", "mamba_ssm_dtype")
    full = replace(attention(f, hidden, style), gated=True)
    routed = experts(f, style)
    sparse = expert_layers(f, count) if routed is not None else [False] * count
    plain = None if all(sparse) else dense(f, hidden, style)
    f.ignore("intermediate_size")
    layers = []
    for attending, moe in zip(kinds, sparse, strict=True):
        ffn: Block | None = routed if moe else plain
        assert ffn is not None
        layers.append(Layer((full if attending else linear, ffn)))
    return Parts(hidden, f.integer("vocab_size"), tuple(layers), context=context_of(f))


def recurrent_gemma(f: Fields) -> Parts:
    """RecurrentGemma: block_types repeat; intermediate_size is twice the MLP's width."""
    hidden, count = f.integer("hidden_size"), f.integer("num_hidden_layers")
    kinds = f.words("block_types", "_block_types") or ["recurrent", "recurrent", "attention"]
    heads, kv_heads = heads_of(f)
    width = f.integer("lru_width", default=hidden, why="the hidden width")
    mixer = Recurrent(width, heads, f.integer("conv1d_width", default=4))
    head_dim = head_width(f, hidden, heads)
    full = Attention(
        heads,
        kv_heads,
        head_dim,
        window=f.integer("attention_window_size", default=2048),
        bias="qkvo" if f.flag("attention_bias") else "o",
        rope_dim=round(head_dim * f.number("partial_rotary_factor", default=0.5)),
    )
    ffn = Dense(f.integer("intermediate_size") // 2, bias=True)
    layers = tuple(
        Layer((full if kinds[i % len(kinds)] == "attention" else mixer, ffn)) for i in range(count)
    )
    return Parts(hidden, f.integer("vocab_size"), layers, tied=True, context=context_of(f))


def rwkv(f: Fields) -> Parts:
    """RWKV-4: time mix and channel mix; one more LayerNorm before the first layer."""
    hidden = f.integer("hidden_size")
    width = f.integer("attention_hidden_size", default=hidden)
    ffn = f.integer("intermediate_size", default=4 * hidden, why="4 x hidden")
    mixer = LinearAttention("rwkv", width, width, 1, 1)
    layers = (Layer((mixer, Dense(ffn, gated=False, mixed=True))),) * f.integer("num_hidden_layers")
    f.ignore("context_length")
    return Parts(hidden, f.integer("vocab_size"), layers, LAYER, embedding_norm=True)


def minimax(f: Fields) -> Parts:
    """MiniMax-01: lightning attention but every eighth layer, experts in all."""
    hidden, count = f.integer("hidden_size"), f.integer("num_hidden_layers")
    kinds = f.places(
        "layer_types", length=count, meanings={"full_attention": True, "linear_attention": False}
    )
    listed = f.items("attn_type_list", length=count)
    if kinds is not None:
        full_here = kinds
    elif listed is not None:
        full_here = [bool(kind) for kind in listed]
    else:
        f.infer("layer_types: every other layer is full (class)")
        full_here = [(i + 1) % 2 == 0 for i in range(count)]
    style = Style(windows="none")
    f.ignore("sliding_window", "block_size", "shared_intermediate_size", "shared_moe_mode", "postnorm")
    full = attention(f, hidden, style)
    linear = LinearAttention("lightning", full.heads, full.heads, full.head_dim, full.head_dim)
    routed = experts(f, style)
    if routed is None:
        raise f.error("'num_local_experts' is missing")
    layers = tuple(Layer((full if here else linear, replace(routed, shared=0))) for here in full_here)
    return Parts(hidden, f.integer("vocab_size"), layers, context=context_of(f))


def lfm2(f: Fields) -> Parts:
    """LFM2: short convolutions, attention in some layers; the MLP's width is adjusted by its keys."""
    hidden, count = f.integer("hidden_size"), f.integer("num_hidden_layers")
    kinds = f.places("layer_types", length=count, meanings={"full_attention": True, "conv": False})
    listed = f.items("full_attn_idxs")
    if kinds is None:
        if listed is None:
            raise f.error("'layer_types' or 'full_attn_idxs' is missing; it says which layers attend")
        kinds = [i in listed for i in range(count)]
    width = f.integer("block_ff_dim", "intermediate_size")
    if f.flag("block_auto_adjust_ff_dim", default=True):
        width = int(2 * width / 3)
        width = int(f.number("block_ffn_dim_multiplier", default=1.0) * width)
        multiple = f.integer("block_multiple_of", default=256)
        width = rounded_up(width, multiple)
    f.ignore("block_ffn_dim_multiplier", "block_multiple_of")
    f.ignore("conv_dim", "conv_dim_out", "block_dim", "block_mlp_init_scale", "block_out_init_scale")
    style = Style(qk_norm="head", windows="none", bias_keys=())
    conv = ShortConvolution(hidden, f.integer("conv_L_cache"), f.flag("conv_bias"))
    full = attention(f, hidden, style)
    layers = tuple(Layer((full if attending else conv, Dense(width))) for attending in kinds)
    return Parts(hidden, f.integer("vocab_size"), layers, tied=True, context=context_of(f))
