"""Encoder-decoders and encoders: T5, BART, Whisper, BERT."""

from __future__ import annotations

from ..attention import Attention, CrossAttention
from ..ffn import Dense, Projections
from ..spec import Encoder, Layer, Stem
from .decoder import head_width
from .fields import Fields
from .parts import LAYER, Parts


def t5(f: Fields) -> Parts:
    """T5: relative position biases in the first layer of each side, no biases, gated by its key."""
    hidden, heads = f.integer("d_model"), f.integer("num_heads")
    layers = f.integer("num_layers")
    deeper = f.integer("num_decoder_layers", default=layers, why="as many as the encoder's")
    head_dim, width = f.integer("d_kv"), f.integer("d_ff")
    gated = f.text("feed_forward_proj", default="relu").startswith("gated")
    f.ignore("is_gated_act", "relative_attention_max_distance", "n_positions")
    buckets = f.integer("relative_attention_num_buckets", default=32)
    own = Attention(heads, heads, head_dim, rope_dim=0)
    cross = CrossAttention(heads, heads, head_dim)
    ffn = Dense(width, gated)
    encoder = Encoder(hidden, (Layer((own, ffn)),) * layers, extra=buckets * heads)
    decoder = (Layer((own, cross, ffn), norms=3),) * deeper
    return Parts(
        hidden, f.integer("vocab_size"), decoder, tied=True, position_biases=buckets * heads, encoder=encoder
    )


def _sides(f: Fields, hidden: int, bias: str) -> tuple[tuple[Layer, ...], tuple[Layer, ...]]:
    """Layers of the encoder, and of the decoder with its cross attention; a norm before each block."""
    f.ignore("num_hidden_layers")
    sides = []
    for side, crossed in (("encoder", False), ("decoder", True)):
        heads = f.integer(f"{side}_attention_heads")
        head_dim = head_width(f, hidden, heads)
        own = Attention(heads, heads, head_dim, bias=bias, rope_dim=0)
        ffn = Dense(f.integer(f"{side}_ffn_dim"), gated=False, bias=True)
        cross = CrossAttention(heads, heads, head_dim, bias=bias)
        blocks = (own, cross, ffn) if crossed else (own, ffn)
        sides.append((Layer(blocks, norms=len(blocks)),) * f.integer(f"{side}_layers"))
    return sides[0], sides[1]


def bart(f: Fields) -> Parts:
    """BART: learned positions with two rows before them, a norm after the embeddings, post-norms."""
    hidden = f.integer("d_model")
    rows = f.integer("max_position_embeddings") + 2
    encoding, decoding = _sides(f, hidden, "qkvo")
    # The encoder's norm stands after its embeddings instead of at its end: the same parameters.
    encoder = Encoder(hidden, encoding, extra=rows * hidden)
    return Parts(
        hidden,
        f.integer("vocab_size"),
        decoding,
        LAYER,
        tied=True,
        final_norm=False,
        embedding_norm=True,
        positions=rows,
        encoder=encoder,
        context=rows - 2,
    )


def whisper(f: Fields) -> Parts:
    """Whisper: 1,500 encoder positions after two convolutions; K carries no bias."""
    hidden, mel = f.integer("d_model"), f.integer("num_mel_bins")
    positions = f.integer("max_source_positions", default=1500)
    rows = f.integer("max_target_positions", default=448)
    encoding, decoding = _sides(f, hidden, "qvo")
    stem = (Stem(3 * mel, hidden, rate=2), Stem(3 * hidden, hidden))
    encoder = Encoder(hidden, encoding, positions, extra=positions * hidden, stem=stem)
    return Parts(
        hidden,
        f.integer("vocab_size"),
        decoding,
        LAYER,
        tied=True,
        positions=rows,
        encoder=encoder,
        context=rows,
    )


def bert(f: Fields) -> Parts:
    """BERT with its masked-language head: bidirectional, nothing cached."""
    hidden, heads = f.integer("hidden_size"), f.integer("num_attention_heads")
    rows, kinds = f.integer("max_position_embeddings"), f.integer("type_vocab_size", default=2)
    own = Attention(heads, heads, hidden // heads, bias="qkvo", rope_dim=0, causal=False)
    layer = Layer((own, Dense(f.integer("intermediate_size"), gated=False, bias=True)))
    transform = Layer((Projections(f"{hidden}x{hidden}", bias=True),), norms=1)
    layers = (*(layer,) * f.integer("num_hidden_layers"), transform)
    return Parts(
        hidden,
        f.integer("vocab_size"),
        layers,
        LAYER,
        tied=True,
        final_norm=False,
        embedding_norm=True,
        positions=rows + kinds,
        head_bias=True,
        context=rows,
    )
