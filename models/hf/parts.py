"""What a family's reader hands back: the pieces of a `Model` that depend on the family."""

from __future__ import annotations

from dataclasses import dataclass

from ..spec import Encoder, Layer, Norm

RMS = Norm("rms")
LAYER = Norm("layer", bias=True)
BARE_LAYER = Norm("layer")
NO_NORM = Norm("none")


@dataclass
class Parts:
    """Fields as in `Model`; `tied` is the class default, which the file may overrule."""

    hidden: int
    vocab: int
    layers: tuple[Layer, ...]
    norm: Norm = RMS
    tied: bool = False
    final_norm: bool = True
    embedding_norm: bool = False
    positions: int = 0
    position_biases: int = 0
    head_bias: bool = False
    embedding_width: int | None = None
    side_width: int = 0
    side_rows: int = 0
    context: int | None = None
    encoder: Encoder | None = None
