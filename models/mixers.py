"""Token mixers: the blocks of a layer that look across positions."""

from __future__ import annotations

from .attention import Attention, CrossAttention, LatentAttention
from .recurrent import LinearAttention, Recurrent, ShortConvolution, StateSpace

Mixer = (
    Attention | LatentAttention | StateSpace | LinearAttention | Recurrent | ShortConvolution | CrossAttention
)
