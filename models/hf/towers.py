"""Parameters of vision towers and their projectors: counted in the file, idle in a text pass."""

from __future__ import annotations

from collections.abc import Callable

from ..spec import Tower
from .fields import Fields


def _encoder_layer(width: int, ffn: int) -> int:
    """Attention and a two-matrix MLP with biases, two LayerNorms."""
    return 4 * (width * width + width) + 2 * width * ffn + ffn + width + 4 * width


def _siglip(v: Fields, hidden: int) -> int:
    """SigLIP and Gemma 3's projector: one matrix and a norm."""
    width, patch = v.integer("hidden_size"), v.integer("patch_size", default=14)
    side = v.integer("image_size", default=224) // patch
    layer = _encoder_layer(width, v.integer("intermediate_size"))
    tables = 3 * patch * patch * width + width + side * side * width
    # A layer that pools, with one norm and a learned query; there unless the configuration says no.
    pooling = layer - width if v.flag("vision_use_head", default=True) else 0
    layers = v.integer("num_hidden_layers") * layer + pooling
    return layers + tables + 2 * width + width * hidden + width


def _clip(v: Fields, hidden: int) -> int:
    """CLIP's vision half and LLaVA's projector of two layers."""
    width, patch = v.integer("hidden_size"), v.integer("patch_size", default=14)
    side = v.integer("image_size", default=224) // patch
    layers = v.integer("num_hidden_layers") * _encoder_layer(width, v.integer("intermediate_size"))
    tables = width + 3 * patch * patch * width + (side * side + 1) * width
    projector = width * hidden + hidden + hidden * hidden + hidden
    return layers + tables + 4 * width + projector


def _qwen3_vl(v: Fields, hidden: int) -> int:
    """Qwen3-VL and Qwen3.5: blocks with fused QKV, a merger, and one more a deepstack level."""
    width, depth = v.integer("hidden_size"), v.integer("depth")
    patch, frames = v.integer("patch_size", default=16), v.integer("temporal_patch_size", default=2)
    merged = width * v.integer("spatial_merge_size", default=2) ** 2
    out = v.integer("out_hidden_size", default=hidden)
    layers = depth * _encoder_layer(width, v.integer("intermediate_size"))
    tables = 3 * frames * patch * patch * width + width + v.integer("num_position_embeddings") * width
    merger = merged * merged + merged + merged * out + out
    deep = len(v.items("deepstack_visual_indexes") or [])
    return layers + tables + merger + 2 * width + deep * (merger + 2 * merged)


def _gemma4(v: Fields, hidden: int) -> int:
    """Gemma 4: gated MLPs, four norms a layer, per-head norms of Q and K, two position tables."""
    width, heads = v.integer("hidden_size"), v.integer("num_attention_heads")
    head_dim = v.integer("head_dim", default=width // heads)
    patch, rows = v.integer("patch_size", default=16), v.integer("position_embedding_size", default=10240)
    attention = 4 * width * heads * head_dim + 2 * head_dim
    layer = attention + 3 * width * v.integer("intermediate_size") + 4 * width
    return (
        v.integer("num_hidden_layers") * layer + 2 * rows * width + 3 * patch * patch * width + width * hidden
    )


READERS: dict[str, Callable[[Fields, int], int]] = {
    "gemma3": _siglip,
    "llava": _clip,
    "qwen3_vl": _qwen3_vl,
    "qwen3_vl_moe": _qwen3_vl,
    "qwen3_5": _qwen3_vl,
    "qwen3_5_moe": _qwen3_vl,
    "gemma4": _gemma4,
}


def towers_of(outer: Fields, family: str, hidden: int) -> tuple[Tower, ...]:
    """The towers of a wrapper's configuration; one that is not known is named under `inferred`."""
    out = []
    for part in ("vision_config", "audio_config"):
        section = outer.section(part) if outer.data.get(part) else None
        if section is None:
            continue
        if part == "vision_config" and family in READERS:
            out.append(Tower("vision", READERS[family](section, hidden)))
        else:
            outer.infer(f"{part}: the tower of '{family}' is not counted; the text model is")
    return tuple(out)
