"""The textbook's tables as it prints them: elements instead of bytes, constants dropped.

Tables 9.1 (prefill) and 9.2 (decode) of 大语言模型 (Zhao et al.), chapter 9.2.1, for a LLaMA: multi-head
attention, gated FFN. B sequences, T tokens, H hidden, N heads, D head_dim, F FFN width. The intensity
column divides work by access after dropping the constant of the FLOPs (and the output activation of
the linear rows), so it is not FLOPs / bytes: see docs/textbook.md for how the two differ.
Table 9.3 is what the book measured for quantised weights, in GiB although it prints GB.
Source: seed ledger, "Tables 9.1 / 9.2" and t93.*; authors' slides 6.2, pp. 6-9.
"""

from __future__ import annotations

from typing import NamedTuple

from .. import InputError
from ..models.attention import Attention
from ..models.ffn import Dense
from ..models.spec import Model


class Row(NamedTuple):
    """A line of the table: FLOPs = constant · work; intensity = work / access."""

    name: str
    constant: int
    work: int
    access: int

    @property
    def flops(self) -> int:
        return self.constant * self.work

    @property
    def intensity(self) -> float:
        return self.work / self.access


class Shape(NamedTuple):
    """The letters of the tables."""

    hidden: int
    heads: int
    head_dim: int
    ffn: int
    layers: int


def shape_of(model: Model) -> Shape:
    """The letters for `model`. Raises InputError for anything but a LLaMA-like decoder with MHA."""
    if len(model.groups) == 1:
        match model.layers[0].blocks:
            case (Attention() as mixer, Dense(gated=True) as ffn):
                if mixer.heads == mixer.kv_heads and mixer.heads * mixer.head_dim == model.hidden:
                    return Shape(model.hidden, mixer.heads, mixer.head_dim, ffn.width, len(model.layers))
    raise InputError(
        f"the textbook's tables describe multi-head attention and a gated FFN, which {model.name} is "
        "not; use --accounting kernel, or a model such as llama-7b"
    )


def prefill_table(shape: Shape, batch: int, tokens: int) -> tuple[Row, ...]:
    """Table 9.1: one layer, B sequences of T tokens."""
    h, n, d, f, t = shape.hidden, shape.heads, shape.head_dim, shape.ffn, tokens
    bt = batch * t
    return (
        Row("Q,K,V = X W", 6, bt * h * h, bt * h + h * h),
        Row("RoPE(Q, K)", 6, bt * h, bt * h),
        Row("Attn(Q, K, V)", 4, batch * t * t * n * d + batch * t * t * n, batch * t * t * n + bt * n * d),
        Row("O W^O", 2, bt * h * h, bt * h + h * h),
        Row("Add&Norm", 5, bt * h, bt * h + h),
        Row("G,U = X [W^G, W^U]", 4, bt * h * f, bt * h + bt * f + h * f),
        Row("Swish(G) · U", 2, bt * f, bt * f),
        Row("D W^D", 2, bt * h * f, bt * h + bt * f + h * f),
        Row("Add&Norm", 5, bt * h, bt * h + h),
    )


def decode_table(shape: Shape, batch: int, context: int) -> tuple[Row, ...]:
    """Table 9.2: one layer, one new token for B sequences of T cached tokens."""
    h, n, d, f, b, t = shape.hidden, shape.heads, shape.head_dim, shape.ffn, batch, context
    return (
        Row("q,k,v = x W", 6, b * h * h, b * h + h * h),
        Row("RoPE(q, k)", 6, b * h, b * h),
        Row("K,V = Cache(k, v)", 0, 0, b * n * d),
        Row("Attn(q, K, V)", 4, b * t * n * d + b * t * n, b * t * n + b * t * n * d + b * n * d),
        Row("o W^O", 2, b * h * h, b * h + h * h),
        Row("Add&Norm", 5, b * h, b * h + h),
        Row("g,u = x [W^G, W^U]", 4, b * h * f, b * h + b * f + h * f),
        Row("Swish(g) · u", 2, b * f, b * f),
        Row("d W^D", 2, b * h * f, b * h + b * f + h * f),
        Row("Add&Norm", 5, b * h, b * h + h),
    )


MEASURED_GIB = {
    ("llama-7b", "fp16"): 12.58,
    ("llama-7b", "bnb-int8"): 6.65,
    ("llama-7b", "bnb-nf4"): 3.94,
    ("llama-13b", "fp16"): 24.4,
    ("llama-13b", "bnb-int8"): 12.53,
    ("llama-13b", "bnb-nf4"): 7.34,
}
"""Table 9.3: memory the book measured, by model and recipe."""
