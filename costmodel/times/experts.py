"""Time of a mixture-of-experts layer: routing, two grouped GEMMs, the activation, and the sum at the end.

A grouped GEMM has a tile for every 16 to 128 rows of each expert that is touched: few tokens over many
experts pay for padding. What a rank is dealt (rows, distinct experts) comes with the work.
Source: the tile terms of `gemm_time`; the terms were found on ../shared/measured/moe.csv. How the time
of a layer is shared out among its kernels is the formula's, not measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..arith import Kit, kit, power_norm
from ..op import Bytes, GroupedGemm
from .device import Device
from .family import US, Family, Parameter, Params, cold_share, forms
from .gemm import NARROW_BYTES, value_s

RIDGE = 0.6
"""Pull of every constant towards its start, or its neighbours': many groups have a shape or two."""
MOE = Family(
    "moe",
    {
        "launch_us": Parameter(12, 0.5, 200, 15, "launches and routing of a layer", RIDGE),
        "mma_share": Parameter(0.6, 0.05, 1.1, 0.6, "share of the dense peak inside a tile", RIDGE),
        "feed_share": Parameter(0.018, 0.001, 0.2, 0.018, "bytes an SM takes in per FLOP of its peak", RIDGE),
        "wave_us": Parameter(0.5, 0.001, 20, 0.5, "prologue and epilogue of a wave of tiles", RIDGE),
        "memory_share": Parameter(0.8, 0.35, 1.2, 0.9, "share of bandwidth, weights", RIDGE),
        "move_share": Parameter(0.6, 0.02, 20, 0.7, "share of bandwidth, permuting and adding up", RIDGE),
        "route_us": Parameter(0.5, 0.001, 20, 0.5, "routing per doubling of the tokens", RIDGE),
        "other_ranks": Parameter(0.2, 0.001, 4, 0.2, "cost of a token-expert pair of another rank", RIDGE),
    },
    forms(
        layer="launch_us mma_share feed_share wave_us memory_share move_share route_us other_ranks",
    ),
    loss="cauchy",
    scale=0.2,
)

TILES = ((16, 128), (64, 128), (128, 128), (128, 256))
"""(rows of one expert, outer) of the tiles."""
STEP = 64
"""Values of K that a tile takes at once."""
MEMORY_NORM = 1.3
REPLAYED_GAIN = 10
L2_SHARE, L2_SHARPNESS = 0.8, 4
"""The power that joins tiles with memory; how much faster than memory replayed weights come from L2, less
one; the part of L2 they may fill, and how sharp its edge is. Structural: the same for every GPU, and chosen
on the measured rows (docs/times.md)."""


@dataclass(frozen=True)
class ExpertLayer:
    """A whole layer on one rank, as it is measured.

    `tokens` of the group of ranks, each sent to `top_k` experts; `rows` of them land here, on `distinct`
    experts; `tiles` those rows make per expert, by tile height. `width` is this rank's, `mats` 3 where
    gated, else 2; `weight_width` and `activation_width`: bytes per value as the kernel reads them.
    """

    tokens: Any
    top_k: Any
    hidden: Any
    width: Any
    rows: Any
    distinct: Any
    tiles: dict[int, Any]
    mats: int
    weight_width: float
    activation_width: float
    math: str

    kind = "expert_layer"

    @property
    def matmul_flops(self) -> Any:
        return 2 * self.rows * self.hidden * self.width * self.mats

    @property
    def vector_flops(self) -> Any:
        return 0

    @property
    def weights(self) -> Any:
        return self.distinct * self.hidden * self.width * self.mats * self.weight_width

    @property
    def bytes(self) -> Bytes:
        arriving = kit(self.rows, self.tokens).least(self.rows, self.tokens)
        return Bytes(self.weights, 2 * 2 * arriving * self.hidden)


def layer_s(work: ExpertLayer, device: Device, p: Params, working_set: Any = None) -> Any:
    """Seconds of the whole layer; with a `working_set` weights that fit L2 are replayed from it."""
    k = kit(work.tokens, work.rows, work.hidden, *p.values())
    cold: Any = 1.0
    if working_set is not None:
        cold = cold_share(work.weights, L2_SHARE * device.l2_bytes, L2_SHARPNESS, REPLAYED_GAIN)
    into, a, w = (work.mats - 1) * work.width, work.activation_width, work.weight_width
    handled = work.rows + p["other_ranks"] * k.most(work.tokens * work.top_k - work.rows, 0)
    shape = (work.rows, work.distinct, work.tiles, work.math, a, w)
    up = grouped_s(*shape, into, work.hidden, device, p, k, cold)
    down = grouped_s(*shape, work.hidden, work.width, device, p, k, cold)
    moved = permute_bytes(work.tokens, handled, work.hidden, a)
    moved = moved + activation_bytes(handled, work.width, work.mats, a)
    moved = moved + combine_bytes(work.tokens, handled, work.hidden)
    return route_s(work.tokens, p, k) + up + down + moved / (p["move_share"] * device.bandwidth)


def route_s(tokens: Any, p: Params, k: Kit) -> Any:
    """Launches of the layer's kernels, and sorting tokens by expert."""
    return p["launch_us"] * US + p["route_us"] * US * k.log2(1 + tokens)


def permute_bytes(tokens: Any, handled: Any, hidden: Any, a: float) -> Any:
    return 2 * tokens * hidden + handled * hidden * a


def activation_bytes(handled: Any, width: Any, mats: int, a: float) -> Any:
    return handled * width * (2 * (mats - 1) + a)


def combine_bytes(tokens: Any, handled: Any, hidden: Any) -> Any:
    return 2 * handled * hidden + 2 * tokens * hidden


def grouped_s(
    rows: Any,
    distinct: Any,
    tiles: dict[int, Any],
    math: str,
    a: float,
    w: Any,
    outer: Any,
    inner: Any,
    device: Device,
    p: Params,
    k: Kit,
    cold: Any = 1.0,
) -> Any:
    """One grouped GEMM: its tiles over the SMs, and the bytes of the experts touched."""
    sm_flops = device.peak(math) / device.cores
    depth = STEP * k.ceil(inner / STEP)
    best = None
    for height, across in TILES:
        waves = tiles[height] * k.ceil(outer / across) / device.cores + 1
        seconds = waves * (p["wave_us"] * US + depth * value_s(height, across, a, w, sm_flops, p, k))
        best = seconds if best is None else k.least(best, seconds)
    moved = distinct * outer * inner * w + rows * (inner * a + 2 * outer)
    return power_norm(best, moved * cold / (p["memory_share"] * device.bandwidth), MEMORY_NORM)


def tiles_of(rows: Any, distinct: Any) -> dict[int, Any]:
    """Tiles per height where every touched expert has its even share of the rows."""
    k = kit(rows, distinct)
    return {height: distinct * k.ceil(rows / distinct / height) for height in {h for h, _ in TILES}}


def grouped_gemm_s(work: GroupedGemm, device: Device, p: Params) -> Any:
    """Seconds of one grouped GEMM of a model's list; the first also gathers its tokens' rows."""
    k = kit(work.rows, work.distinct, *p.values())
    a = NARROW_BYTES.get(work.math, work.activation_bytes)
    shape = (work.rows, work.distinct, tiles_of(work.rows, k.most(work.distinct, 1)), work.math)
    seconds = grouped_s(*shape, a, work.bytes_per_weight, work.outer, work.inner, device, p, k)
    gathered = permute_bytes(work.input_rows, work.rows, work.inner, a)
    gathered = k.where(work.input_rows < work.rows, gathered, 0)
    return seconds + gathered / (p["move_share"] * device.bandwidth)
