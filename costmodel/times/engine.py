"""Seconds of an engine's step: its kernels, what is lost between them, and what the host takes.

Two kinds of engines. Those whose kernels were measured (vLLM, SGLang, TensorRT-LLM) take the floor of
their kernels and a share, `gap`, of what the kernels take beyond it alone: launched in a row, the start of
one hides in the end of another. Those with kernels of their own (llama.cpp, ExLlamaV2 ...) read weights
at a share of the bandwidth, as fast as their cores can load: few bytes in flight per core are a second
roof, below the first on cards with much bandwidth per core. Constants: `hardware/engines/`, fitted to
measured requests by tests/tools/engines.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...hardware.engine import EngineTimes, Machine
from ...hardware.spec import Gpu
from ..arith import power_norm
from ..op import Attend, Gemm, GroupedGemm, Number, Op, stored_bits
from ..roofline import compute_s, step_floor_s
from ..step import Plan
from .expected import Clock
from .family import US

OVERLAP = 4
"""Power of the soft maximum of two roofs, or of the device beside the host: near the larger, never below."""


class StepParts(NamedTuple):
    """What the times of one stage's step are made of; seconds are at datasheet rates.

    `read_16_s`, `read_8_s`, `read_4_s`: weights by what they are stored in; `clocks`: core clocks per byte
    loaded turn bytes into seconds through `load_s` and `attend_s` (None where the sheet has no cores).
    `attend_bytes`: cache rows as often as query heads share them.
    """

    floor_s: Number
    expected_s: Number | None
    links_s: Number
    links_floor_s: Number
    read_16_s: Number
    read_8_s: Number
    read_4_s: Number
    cache_s: Number
    other_s: Number
    compute_s: Number
    weight_bytes: Number
    attend_bytes: Number
    core_clocks_per_s: float | None
    layers: int
    launches: Number
    sequences: Number
    ranks: int
    first: bool
    prefill: bool


def step_parts(
    plan: Plan, kernels: tuple[Op, ...], links: tuple[Op, ...], gpu: Gpu, clock: Clock | None, ranks: int
) -> StepParts:
    """Parts of one stage of a step on `gpu`; `ranks` share its matrices.

    Without a clock `expected_s` is None.
    """
    read = {16: 0.0, 8: 0.0, 4: 0.0}
    cache = other = attended = 0
    for op in kernels:
        moved = op.bytes
        bits = stored_bits(op.work.bytes_per_weight) if isinstance(op.work, Gemm | GroupedGemm) else 16
        read[bits] += moved.weights / gpu.bandwidth
        cache += moved.kv + moved.state
        other += moved.activations
        if isinstance(op.work, Attend):
            attended += moved.kv * (op.work.heads // op.work.kv_heads)
    return StepParts(
        step_floor_s((*kernels, *links), gpu),
        None if clock is None else clock.total((*kernels, *links)).seconds,
        0.0 if clock is None else clock.total(links).seconds,
        step_floor_s(links, gpu),
        read[16],
        read[8],
        read[4],
        cache / gpu.bandwidth,
        other / gpu.bandwidth,
        compute_s(kernels, gpu),
        sum(op.bytes.weights for op in kernels),
        attended,
        gpu.compute.clocks_per_s,
        len(plan.model.layers),
        launches(plan, (*kernels, *links)),
        sum(segment.count for segment in plan.step.segments),
        ranks,
        plan.model.input_end,
        plan.step.phase == "prefill",
    )


def launches(plan: Plan, ops: Iterable[Op]) -> int:
    """Kernels that the host launches: those counted, and where norms are LayerNorms the two residual adds
    and the two biases after the all-reduces of a layer, which engines fuse for RMSNorm alone (vLLM's
    fused_add_rms_norm)."""
    unfused = 4 * len(plan.model.layers) if plan.model.norm.kind == "layer" else 0
    return sum(op.count for op in ops) + unfused


def engine_s(parts: StepParts, times: EngineTimes, gpu: str) -> Number:
    """Expected seconds of the stage: device and host, one after the other or (`overlapped`) beside each
    other."""
    machine = times.machine(gpu) or Machine(gpu)
    links = parts.links_floor_s + times.link_gap * (parts.links_s - parts.links_floor_s)
    if times.kernels == "own":
        kernels = _own_kernels_s(parts, times)
    else:
        assert parts.expected_s is not None, "calibrated kernels need a clock"
        floor = parts.floor_s - parts.links_floor_s
        gap = times.prefill_gap if parts.prefill else times.gap
        kernels = floor + gap * (parts.expected_s - parts.links_s - floor)
    device = kernels * (machine.prefill if parts.prefill else machine.decode) + links
    host = times.layer_us * parts.layers + times.launch_us * parts.launches
    host = host + times.sequence_us * parts.sequences
    if parts.prefill:
        host = host + times.prefill_layer_us * parts.layers
    if parts.ranks > 1:
        host = host + times.rank_layer_us * parts.layers
    if not parts.first:
        host = host + times.hop_us
    host = host * machine.host * US
    return power_norm(device, host, OVERLAP) if times.overlapped else device + host


def _own_kernels_s(parts: StepParts, times: EngineTimes) -> Number:
    read = (
        parts.read_16_s / times.read_share_16
        + parts.read_8_s / times.read_share_8
        + parts.read_4_s / times.read_share_4
    )
    cached = parts.cache_s
    if parts.core_clocks_per_s and times.load_bytes_per_clock:
        loaded = parts.weight_bytes / (parts.core_clocks_per_s * times.load_bytes_per_clock)
        read = power_norm(read, loaded, OVERLAP)
    if parts.core_clocks_per_s and times.attend_bytes_per_clock:
        attended = parts.attend_bytes / (parts.core_clocks_per_s * times.attend_bytes_per_clock)
        cached = cached + attended
    return power_norm(read + cached + parts.other_s, parts.compute_s / times.compute_share, OVERLAP)
