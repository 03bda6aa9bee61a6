"""A whole forward pass as operations: embedding, (encoder,) layers, head."""

from __future__ import annotations

from ..models.attention import Attention, CrossAttention, LatentAttention
from ..models.block import Block
from ..models.ffn import Dense, Experts, Projections
from ..models.kinds import KINDS
from ..models.recurrent import LinearAttention, Recurrent, ShortConvolution, StateSpace
from ..models.spec import Encoder, Layer, grouped
from ..models.tensor import vector
from .arith import some
from .attention import (
    attention_ops,
    cross_attention_ops,
    encoder_attention_ops,
    latent_attention_ops,
)
from .build import ACTIVATION_FLOPS, NORM_FLOPS, Build, Builder, by_name, layer_groups
from .ffn import dense_ops, expert_ops, projection_ops
from .op import Gather, Op
from .recurrent import (
    linear_attention_ops,
    recurrent_ops,
    short_convolution_ops,
    state_space_ops,
)
from .step import Plan

BUILDS: dict[type[Block], Build] = {
    Attention: attention_ops,
    LatentAttention: latent_attention_ops,
    StateSpace: state_space_ops,
    LinearAttention: linear_attention_ops,
    Recurrent: recurrent_ops,
    ShortConvolution: short_convolution_ops,
    CrossAttention: cross_attention_ops,
    Dense: dense_ops,
    Experts: expert_ops,
    Projections: projection_ops,
}
"""The operations of each kind of block: models/kinds.py has no other."""
if set(BUILDS) != set(KINDS.values()):
    raise TypeError(f"a kind of block without operations: {set(BUILDS) ^ set(KINDS.values())}")


def ops(plan: Plan) -> tuple[Op, ...]:
    """Every operation of one step, equal ones counted together, in the order they first run."""
    b = Builder(plan)
    if plan.model.input_end:
        if some(b.step.encoder_tokens) and plan.model.encoder is not None:
            _encoder(b, plan.model.encoder)
        _embedding(b)
    groups = layer_groups(plan.model, b.recipe)
    b.groups = len(groups) + (plan.model.encoder is not None)
    for layer, index, times in groups:
        b.layer, b.times = index, times
        _layer(b, layer)
    b.layer, b.times = -1, 1
    if plan.model.output_end:
        _head(b)
    return b.ops()


def _layer(b: Builder, layer: Layer) -> None:
    for block in layer.blocks:
        BUILDS[type(block)](b, block)
    b.norms(b.step.tokens, layer)


def _embedding(b: Builder) -> None:
    """A lookup of one row per token: bytes, no FLOPs; learned positions are a second one."""
    tokens, width = b.step.tokens, b.hidden
    for tensor in b.model.outer_tensors():
        if tensor.kind == "table":
            row = b.weight_bytes([tensor._replace(rows=1)])
            b.add(tensor.name, Gather(tokens, tensor.cols, row, activation_bytes=b.activation_bytes))
        elif tensor.name == "project_in":
            b.gemm("project_in", tokens, [tensor], [])
        elif tensor.name == "position_biases":
            b.add("position_bias", Gather(1, 0, b.weight_bytes([tensor])))
    if b.model.embedding_norm:
        b.pointwise("embedding_norm", tokens * width, 1, 1, NORM_FLOPS, b.norm_weights())


def _head(b: Builder) -> None:
    """Logits of the wanted positions; a tied table is read here as the matrix it is.

    A final norm's FLOPs are not counted (the design's convention); its bytes are.
    """
    rows = b.step.logit_rows
    if not some(rows):
        return
    outer = by_name(b.model.outer_tensors())
    if b.model.final_norm:
        b.pointwise("final_norm", rows * b.hidden, 1, 1, 0, b.norm_weights(), rows=rows)
    if "project_out" in outer:
        b.gemm("project_out", rows, [outer["project_out"]], [])
    matrix = outer.get("head") or outer["embedding"]
    b.gemm("lm_head", rows, [matrix], [outer["head_bias"]] if b.model.head_bias else [])


def _encoder(b: Builder, encoder: Encoder) -> None:
    """The encoder over its new positions: every pair visited, nothing cached."""
    tokens = b.step.encoder_tokens
    sequences = [(s.count, s.encoder_new) for s in b.step.segments if some(s.encoder_new)]
    decoder_hidden, b.hidden = b.hidden, encoder.hidden
    if not encoder.stem:
        table = by_name(b.model.outer_tensors())["embedding"]
        row = b.weight_bytes([table._replace(rows=1)])
        b.add("encoder.embedding", Gather(tokens, table.cols, row, activation_bytes=b.activation_bytes))
    b.layer = 0  # its matrices are layers' and not outside them (-1), where recipes leave 16 bit
    for stem in encoder.stem:
        matrix, bias = stem.tensors()
        b.gemm("encoder.stem", tokens * stem.rate, [matrix], [bias])
        b.pointwise("encoder.stem_activation", tokens * stem.rate * stem.outer, 1, 1, ACTIVATION_FLOPS)
    if encoder.extra:
        extra = vector("encoder", "encoder_extra", encoder.extra)
        b.add("encoder.positions", Gather(1, 0, b.weight_bytes([extra])))
    for layer, times in grouped(encoder.layers):
        b.times = times
        for block in layer.blocks:
            if isinstance(block, Attention):
                encoder_attention_ops(b, block, sequences)
            elif isinstance(block, Dense):
                dense_ops(b, block, "encoder.")
        b.norms(tokens, layer, "encoder.")
    b.times = 1
    if encoder.final_norm:
        b.pointwise("encoder.final_norm", tokens * b.hidden, 1, 1, 0, b.norm_weights())
    b.layer, b.hidden = -1, decoder_hidden
