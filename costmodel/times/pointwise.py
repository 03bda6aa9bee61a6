"""Time of kernels without a large matrix product: elementwise, norms, RoPE, gathers, quantisation.

Bytes against rows: memory at a share of its bandwidth, and a CTA's fixed work for each row. The
batched projections of absorbed MLA (a small matrix a head) are the second family here: too thin to
be tiled as a GEMM is, and their weights stay in L2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..arith import kit, power_norm
from ..op import Bytes, Gemm
from .device import Device
from .family import NS, US, Family, Parameter, Params, cold_share, forms

POINTWISE = Family(
    "pointwise",
    {
        "launch_us": Parameter(3, 0.5, 80, 3, "launch", 0.03),
        "column_ns": Parameter(0.05, 0.001, 3, 0.05, "time per column of a row, one row alone", 0.2),
        "row_us": Parameter(0.03, 0.0005, 2, 0.03, "time an SM takes per row", 0.1),
        "memory_share": Parameter(0.8, 0.01, 1.1, 0.8, "share of the datasheet bandwidth", 0.03),
        "l2_gain": Parameter(1, 0.01, 15, 0.01, "how much faster than memory L2 is, less one", 0.1),
        "l2_share": Parameter(0.8, 0.1, 2.5, 0.8, "part of L2 that a working set may fill", 0.1),
    },
    forms(rows="launch_us column_ns row_us memory_share l2_gain l2_share"),
)
PROJECTION = Family(
    "head_projection",
    {
        "launch_us": Parameter(5, 0.5, 30, 5, "launch", 0.03),
        "mma_share": Parameter(0.5, 0.02, 1.1, 0.5, "share of the dense peak", 0.03),
        "tile_us": Parameter(0.2, 0.002, 10, 0.2, "latency of a wave of tiles", 0.03),
        "memory_share": Parameter(0.7, 0.03, 1.2, 0.7, "share of bandwidth, activations", 0.03),
        "weight_share": Parameter(
            0.8, 0.05, 3, 0.8, "share of bandwidth, weights (warm in L2 where >1)", 0.03
        ),
        "l2_gain": Parameter(1, 0.01, 15, 0.01, "how much faster than memory L2 is, less one", 0.03),
        "l2_share": Parameter(0.8, 0.1, 2.5, 0.8, "part of L2 that a working set may fill", 0.03),
        "row_us": Parameter(0.001, 0.0001, 0.1, 0.001, "time per row, whatever the heads", 0.06),
    },
    forms(heads="launch_us mma_share tile_us memory_share weight_share l2_gain l2_share row_us"),
)
ROW_NORM = 1.5
L2_SHARPNESS = 4
HEAD_SHARPNESS = 8
HEAD_TILE = 32
HEAD_NORM = 3


@dataclass(frozen=True)
class RowKernel:
    """`rows` independent rows of `columns` values, `moved` bytes in and out: what a measured elementwise
    kernel is."""

    rows: Any
    columns: Any
    moved: Any

    kind = "row_kernel"
    matmul_flops = vector_flops = 0

    @property
    def bytes(self) -> Bytes:
        return Bytes(activations=self.moved)


def pointwise_s(work: RowKernel, device: Device, p: Params, working_set: Any = None) -> Any:
    """Seconds of a row-wise kernel; `working_set` None: its bytes come from cold memory."""
    memory_s = work.moved / (p["memory_share"] * device.bandwidth)
    if working_set is not None:
        l2 = p["l2_share"] * device.l2_bytes
        memory_s = memory_s * cold_share(working_set, l2, L2_SHARPNESS, p["l2_gain"])
    rows_s = p["row_us"] * US * work.rows / device.cores
    fixed = p["launch_us"] * US + p["column_ns"] * NS * work.columns
    return fixed + power_norm(memory_s, rows_s, ROW_NORM)


def projection_s(work: Gemm, device: Device, p: Params, working_set: Any = None) -> Any:
    """Seconds of `work.batch` heads' [rows, inner] x [inner, outer], one kernel."""
    k = kit(work.rows, work.batch, *p.values())
    activations = work.bytes.activations
    tiles = k.ceil(work.rows / HEAD_TILE) * work.batch
    flops = 2 * HEAD_TILE * tiles * work.inner * work.outer
    mma_s = flops / (p["mma_share"] * device.peak(work.math))
    mma_s = mma_s + p["tile_us"] * US * k.ceil(tiles / device.cores)
    activation_s = activations / (p["memory_share"] * device.bandwidth)
    weight_s = work.weight_bytes / (p["weight_share"] * device.bandwidth)
    if working_set is not None:
        l2 = p["l2_share"] * device.l2_bytes
        activation_s = activation_s * cold_share(working_set, l2, HEAD_SHARPNESS, p["l2_gain"])
    both = power_norm(weight_s + activation_s, mma_s, HEAD_NORM)
    return p["launch_us"] * US + power_norm(both, p["row_us"] * US * work.rows, HEAD_NORM)
