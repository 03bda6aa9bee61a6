"""Time of one GEMM: tiles over SMs in waves, against the bytes from memory.

Tiles and split-K are chosen as a library's heuristic would with perfect knowledge: the least time
over a short list of shapes. Source: the closed form of ../shared/measured/equations.md, with tiles
by generation, waves that need not be whole, a latency per K step and the rows of a quantising
kernel added; CUTLASS documentation, "efficient GEMM", for tiles, waves and split-K.
"""

from __future__ import annotations

from typing import Any

from ..arith import Kit, kit, power_norm
from ..op import Gemm
from .device import Device
from .family import NS, US, Family, Parameter, Params, cold_share, forms

GEMM = Family(
    "gemm",
    {
        "launch_us": Parameter(2.5, 0.05, 80, 2.5, "launch, and what runs once whatever the shape"),
        "mma_share": Parameter(0.72, 0.2, 1.1, 0.75, "share of the dense peak inside a tile"),
        "feed_share": Parameter(0.012, 0.0004, 0.2, 0.015, "bytes an SM takes in per FLOP of its peak"),
        "wave_us": Parameter(0.5, 0.001, 20, 0.15, "prologue and epilogue of a wave of tiles"),
        "step_ns": Parameter(200, 10, 3000, 0.0, "latency of 128 bytes of K in one tile"),
        "memory_share": Parameter(0.8, 0.3, 1.3, 0.82, "share of the datasheet bandwidth"),
        "overlap": Parameter(3, 1.05, 12, 3.0, "norm that joins tiles and memory (1 adds, large overlaps)"),
        "whole_waves": Parameter(0.7, 0.05, 1, 0.7, "how much of a part-filled last wave costs a whole one"),
        "split_us": Parameter(2, 0.01, 60, 2.5, "reduction after split-K"),
        "l2_gain": Parameter(1, 0.001, 20, 0.001, "how much faster than memory L2 is, less one"),
        "quantise_share": Parameter(1, 0.01, 12, 1.0, "share of bandwidth of quantising activations"),
        "quantise_row_us": Parameter(0.3, 0.0001, 30, 0.0, "time an SM takes per quantised row"),
    },
    forms(
        wave="launch_us mma_share feed_share wave_us memory_share whole_waves split_us overlap",
        step="launch_us mma_share feed_share wave_us memory_share step_ns split_us overlap",
        cache="launch_us mma_share feed_share wave_us memory_share overlap split_us l2_gain",
        quantised_wave="launch_us mma_share feed_share wave_us memory_share whole_waves "
        "quantise_share quantise_row_us",
        quantised_norm="launch_us mma_share feed_share wave_us memory_share overlap "
        "quantise_share quantise_row_us",
        quantised_step="launch_us mma_share feed_share step_ns memory_share l2_gain "
        "quantise_share quantise_row_us",
    ),
)

TILES = (
    (16, 64),
    (16, 128),
    (32, 64),
    (32, 128),
    (64, 64),
    (64, 128),
    (128, 64),
    (128, 128),
    (64, 256),
    (128, 256),
    (256, 128),
)
"""(rows, outer) of the tiles of Ampere, Ada, Hopper and the consumer Blackwell."""
TILES_BLACKWELL = (
    (8, 128),
    (16, 128),
    (32, 128),
    (64, 128),
    (128, 64),
    (128, 128),
    (128, 256),
    (256, 128),
    (256, 256),
    (64, 256),
)
"""tcgen05 multiplies 128 rows at a time: few tokens are the narrow side of a swapped product."""
SPLITS = (1, 2, 3, 4, 6, 8, 16, 32)
STEP_BYTES = 128
STEP_VALUES_NARROW = 256
"""A K step is one 128-byte line of each operand's row; 256 values of 4 bits."""
L2_SHARPNESS = 8
PARTIAL_BYTES = 8
SPLIT_SHARE = 2.5
"""Partial sums (fp32, written and read) move at this multiple of memory bandwidth: they stay in L2."""
STEP_NORM = 4


NARROW_BYTES = {"fp8": 1.0, "int8": 1.0, "fp4": 0.5625}
"""Bytes per activation, scales included, of products whose kernel quantises its activations first."""


def gemm_forms(work: Gemm) -> tuple[str, ...]:
    """Forms that a fit tries: those with a quantising kernel where the product has one."""
    narrow = work.math in NARROW_BYTES
    return tuple(name for name in GEMM.forms if name.startswith("quantised") == narrow)


def gemm_s(work: Gemm, device: Device, p: Params, working_set: Any = None) -> Any:
    """Seconds of one GEMM, activation quantisation included where the kernel does it on the fly.

    `working_set`: bytes a benchmark touches again and again; None where weights come from memory cold,
    as a model's do.
    """
    k = kit(work.rows, work.outer, work.inner, *p.values())
    narrow = work.math in NARROW_BYTES
    a = NARROW_BYTES.get(work.math, work.activation_bytes)
    values = work.rows * work.outer
    moved = work.batch * (work.rows * work.inner * a + work.activation_bytes * values) + work.weight_bytes
    memory_s = moved / (p["memory_share"] * device.bandwidth)
    if working_set is not None:
        memory_s = memory_s * cold_share(working_set, device.l2_bytes, L2_SHARPNESS, p["l2_gain"])
    splits = (1,) if narrow else SPLITS
    best = None
    for split, tiles_s in zip(splits, _tiles_s(work, a, device, splits, p, k), strict=True):
        seconds = power_norm(tiles_s, memory_s, p["overlap"])
        if split > 1:
            partial = PARTIAL_BYTES * work.batch * values * split / (SPLIT_SHARE * device.bandwidth)
            seconds = seconds + p["split_us"] * US + partial
        best = seconds if best is None else k.least(best, seconds)
    total = p["launch_us"] * US + best
    if narrow:
        total = total + quantise_s(work.rows, work.inner, a, device, p)
    return total


def _tiles_s(work: Gemm, a: float, device: Device, splits: tuple[int, ...], p: Params, k: Kit) -> list[Any]:
    """For each split of K, the least time over tile shapes: waves of tiles, each the slower of MMA and of
    feeding it."""
    w = work.bytes_per_weight
    unit = STEP_VALUES_NARROW if a < 1 else STEP_BYTES // int(a)
    steps = [k.ceil(work.inner / (unit * split)) for split in splits]
    sm_flops = device.peak(work.math) / device.cores
    whole, wave_s = p["whole_waves"], p["wave_us"] * US
    best: list[Any] = [None] * len(splits)
    for rows, outer in TILES_BLACKWELL if device.generation == "blackwell" else TILES:
        tiles = work.batch * k.ceil(work.outer / outer) * k.ceil(work.rows / rows)
        per_value = value_s(rows, outer, a, w, sm_flops, p, k)
        for i, split in enumerate(splits):
            share = tiles * split / device.cores
            waves = whole * k.ceil(share) + (1 - whole) * k.most(share, 1)
            seconds = waves * (wave_s + unit * steps[i] * per_value)
            best[i] = seconds if best[i] is None else k.least(best[i], seconds)
    # The chain of K steps of one tile has a latency that no number of SMs shortens.
    chains = [step * (p["step_ns"] * NS) for step in steps]
    return [power_norm(one, chain, STEP_NORM) for one, chain in zip(best, chains, strict=True)]


def value_s(rows: Any, outer: Any, a: float, w: Any, sm_flops: Any, p: Params, k: Kit) -> Any:
    """Seconds that an SM takes to bring a tile of rows x outer one value of K further: multiplying, or being
    fed with `a` bytes a row and `w` a column. `sm_flops`: the dense peak of one SM."""
    fed_s = (rows * a + outer * w) / (p["feed_share"] * sm_flops)
    return k.most(2 * rows * outer / (p["mma_share"] * sm_flops), fed_s)


def quantise_s(rows: Any, inner: Any, a: float, device: Device, p: Params) -> Any:
    """Reading 16-bit activations and writing narrow ones, and a cost per row: one CTA finds its scale."""
    rows_s = rows * (p["quantise_row_us"] * US) / device.cores
    return (2 + a) * rows * inner / (p["quantise_share"] * device.bandwidth) + rows_s
