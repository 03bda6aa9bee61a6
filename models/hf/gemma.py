"""Gemma 3n and 4, which are no plain stack: caches shared, layers wide and narrow, side inputs."""

from __future__ import annotations

from dataclasses import replace

from ..attention import Attention
from ..ffn import Dense, Projections
from ..spec import Layer
from .decoder import (
    Style,
    attention,
    context_of,
    experts,
    head_width,
    heads_of,
    window_list,
)
from .fields import Fields
from .parts import Parts


def gemma3n(f: Fields) -> Parts:
    """Gemma 3n: per-layer embeddings, four AltUp streams, LAuReL, and last layers that share caches."""
    hidden, count = f.integer("hidden_size"), f.integer("num_hidden_layers")
    style = Style(tied=True, norms=6, qk_norm="head")
    windows = window_list(f, count, style)
    shared = f.integer("num_kv_shared_layers", default=0, least=0)
    widths = f.counts("intermediate_size", length=count)
    side = f.integer("hidden_size_per_layer_input", default=256)
    rank = f.integer("laurel_rank", default=64)
    streams = f.integer("altup_num_inputs", default=4)
    f.ignore("altup_active_idx", "altup_coef_clip", "altup_correct_scale", "activation_sparsity_pattern")
    own = count - shared
    shapes = (
        f"{hidden}x{streams} {hidden}x{streams} {streams}x{streams**2} {streams}x{streams} "
        f"{hidden}x{rank} {rank}x{hidden} {hidden}x{side} {side}x{hidden}"
    )
    # The modality router runs twice, before and after the layer; it is stored once.
    once = Projections(
        shapes.split(" ", 1)[1], vectors=2 * hidden, again=f"{hidden}x{streams} {streams**2}x{hidden}"
    )
    layers = []
    for i in range(count):
        source = None
        if i >= own:
            alike = [j for j in range(own) if (windows[j] is None) == (windows[i] is None)]
            source = alike[-1] if alike else None
        mixer = replace(attention(f, hidden, style, windows[i]), shared_from=source)
        layers.append(Layer((mixer, Dense(widths[i]), once), norms=6))
    whole = Projections(f"{hidden}x{count * side} {hidden}x{hidden}*{2 * (streams - 1)}", vectors=side)
    vocab = f.integer("vocab_size")
    rows = f.integer("vocab_size_per_layer_input", default=vocab)
    layers.append(Layer((whole,), norms=0))
    return Parts(
        hidden,
        vocab,
        tuple(layers),
        tied=True,
        side_width=side * count,
        side_rows=rows,
        context=context_of(f),
    )


def gemma4(f: Fields) -> Parts:
    """Gemma 4: wide shared-K full layers, narrow sliding ones, a dense MLP beside experts in each."""
    hidden, count = f.integer("hidden_size"), f.integer("num_hidden_layers")
    style = Style(tied=True, norms=4, qk_norm="head")
    f.require("layer_types", "global_head_dim", "attention_k_eq_v")
    windows = window_list(f, count, style)
    moe = f.flag("enable_moe_block")
    if f.integer("num_kv_shared_layers", default=0, least=0) or f.integer(
        "hidden_size_per_layer_input", default=0, least=0
    ):
        raise f.error("Gemma 4 with shared caches or per-layer inputs is not known; write a sheet")
    heads, kv_heads = heads_of(f)
    head_dim = head_width(f, hidden, heads)
    wide = f.integer("global_head_dim", default=head_dim)
    global_kv = f.integer("num_global_key_value_heads", default=kv_heads)
    same = f.flag("attention_k_eq_v")
    f.ignore("use_double_wide_mlp", "partial_rotary_factor", "rope_parameters")
    sliding = Attention(heads, kv_heads, head_dim, qk_norm="head")
    full = Attention(heads, global_kv, wide, qk_norm="head", v_from_k=same, rope_dim=wide // 4)
    plain = Dense(f.integer("intermediate_size"))
    routed = experts(f, style) if moe else None
    layers = []
    for window in windows:
        mixer = replace(sliding, window=window) if window else full
        if routed is None:
            layers.append(Layer((mixer, plain), norms=4))
        else:
            # Three norms more around the experts; the router scales its input and its experts.
            scales = Projections("", vectors=hidden + routed.count)
            layers.append(Layer((mixer, plain, routed, scales), norms=7))
    return Parts(hidden, f.integer("vocab_size"), tuple(layers), tied=True, context=context_of(f))
