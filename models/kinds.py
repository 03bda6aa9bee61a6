"""All kinds of blocks: a new one is one line here, and one in ../costmodel/forward.py."""

from __future__ import annotations

from .attention import Attention, CrossAttention, LatentAttention
from .block import Block
from .ffn import Dense, Experts, Projections
from .recurrent import LinearAttention, Recurrent, ShortConvolution, StateSpace


def _by_key(*kinds: type[Block]) -> dict[str, type[Block]]:
    """Raises TypeError for a kind without a name, and for one that leaves something unsaid."""
    for kind in kinds:
        unsaid = sorted(kind.__abstractmethods__)
        if unsaid or not kind.key:
            raise TypeError(f"the kind {kind.__name__} does not say: {', '.join(unsaid) or 'key'}")
    return {kind.key: kind for kind in kinds}


KINDS = _by_key(
    Attention,
    LatentAttention,
    StateSpace,
    LinearAttention,
    Recurrent,
    ShortConvolution,
    CrossAttention,
    Dense,
    Experts,
    Projections,
)
"""Keys of a layer in a sheet; a layer runs its blocks in the order it writes them."""
