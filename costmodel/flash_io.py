"""What attention moves between memory and the chip, by how it is computed.

Elements of one head over N tokens of width d, forward, no KV sharing: Q, K, V and O are 4Nd of them. Eager
attention writes and reads the N x N scores; FlashAttention keeps tiles of them on the chip and reads K and V
(FA1: Q and O) again for every tile of the other. Re-reads that hit L2 never reach memory: what is left then
is compulsory.

Source: FlashAttention, arXiv 2205.14135, theorem 2; FlashAttention-2, arXiv 2307.08691, section 3.1; seed
ledger, fa.io, fa.mem, fa.tenth and fa.2to4.
"""

from __future__ import annotations

from ..hardware.spec import Gpu
from .arith import ceil_div, most
from .op import Attend, Number
from .roofline import work_peak

FP16_PASSES = 4
"""Scores are written, read by softmax, written as probabilities, read by the product with V."""
FP16_SCORE_BYTES = 2 * FP16_PASSES
HF_EAGER_SCORE_BYTES = 24
"""Bytes of a score in transformers' eager attention: scaled, masked, softmax in fp32, cast back."""
SRAM_ELEMENTS = 51_200
"""16-bit values of 100 KB of on-chip memory."""
BLOCK = 128
"""Rows of Q, and of K and V, in a tile of FlashAttention-2."""


def standard_elements(tokens: int, width: int) -> int:
    """4Nd + 4N²: eager attention."""
    return 4 * tokens * width + FP16_PASSES * tokens * tokens


def flash1_elements(tokens: int, width: int) -> int:
    """2Nd + ⌈N/Bc⌉(3Nd + 4N) with Bc = ⌈M/4d⌉: K and V once, Q and O for every block of them."""
    sweeps = ceil_div(tokens, ceil_div(SRAM_ELEMENTS, 4 * width))
    return 2 * tokens * width + sweeps * (3 * tokens * width + 4 * tokens)


def flash2_elements(tokens: int, width: int, block: int = BLOCK, causal: bool = False) -> int:
    """2Nd + 2N + 2·d·B per tile visited: Q and O once, a block of K and V a tile; of a causal mask the tiles
    on and below the diagonal."""
    side = ceil_div(tokens, block)
    tiles = side * (side + 1) // 2 if causal else side * side
    return 2 * tokens * width + 2 * tokens + 2 * width * block * tiles


def compulsory_elements(tokens: int, width: int) -> int:
    """4Nd + 2N: everything once."""
    return 4 * tokens * width + 2 * tokens


def eager_floor_s(work: Attend, gpu: Gpu, score_bytes: Number) -> Number:
    """Least time of attention that moves `score_bytes` for each score: max(matmul / peak, bytes / bandwidth).

    `work` is the fused kernel of the full square; Q, K, V and O are moved as by it.
    """
    scores = work.sequences * work.heads * work.new * work.context
    moved = work.bytes.total + score_bytes * scores
    return most(moved / gpu.bandwidth, work.matmul_flops / work_peak(work, gpu))
