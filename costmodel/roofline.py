"""The roofline: ridge points, verdicts, and the bound and floor of a step on a device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .. import InputError
from ..hardware.spec import Gpu
from ..models.cache import CacheSpec
from ..models.formats import Format
from ..models.sparsity import pattern
from .arith import kit, most
from .build import layer_groups
from .op import Collective, Gather, Number, Op, Work
from .step import Plan, Segment

TEXTBOOK_GB = 1 << 30
HOST_LINK_GB_PER_S = 64.0
"""Of a card whose sheet names no link, and past a bridge: PCIe 4.0 x16, both directions."""
BRIDGED = 2
"""Ranks that a bridge joins."""
MEMORY_BOUND_BELOW = 0.75
COMPUTE_BOUND_ABOVE = 1.25
FALLBACKS = ("bf16", "fp16", "int8", "fp32")
"""What a part without the wanted type computes in: the first of these it has."""


class Ridge(NamedTuple):
    """FLOP per byte where compute and memory take equally long.

    `textbook` reads the bandwidth's GB as 2^30 (142.5 for the A100), `datasheet` as 10^9 (153.0).
    """

    textbook: float
    datasheet: float

    def headline(self, which: str = "textbook") -> float:
        return self.datasheet if which == "datasheet" else self.textbook


def ridge(gpu: Gpu, dtype: str) -> Ridge:
    """Peak of `dtype` over bandwidth, in both conventions. Source: seed ledger, ridge.142/153."""
    peak = peak_flops(gpu, dtype)
    return Ridge(peak / (gpu.memory.bandwidth_gb_per_s * TEXTBOOK_GB), peak / gpu.bandwidth)


def turning_tokens(ridge: float, bytes_per_weight: float) -> float:
    """Tokens of a step from which on the products take longer than reading their weights once: ridge·b/2."""
    return ridge * bytes_per_weight / 2


def math_dtype(gpu: Gpu, wanted: str) -> str:
    """`wanted` if the part has it, else the first of bf16, fp16, int8, fp32 it has."""
    if gpu.peak(wanted) is not None:
        return wanted
    for dtype in FALLBACKS:
        if gpu.peak(dtype) is not None:
            return dtype
    raise InputError(f"{gpu.name} has no peak for {wanted}, nor for any of {', '.join(FALLBACKS)}")


def default_dtype(gpu: Gpu) -> str:
    """The 16-bit type with the higher peak (fp16 where equal), or what stands in for it."""
    fp16, bf16 = gpu.peak("fp16") or 0.0, gpu.peak("bf16") or 0.0
    return "bf16" if bf16 > fp16 else math_dtype(gpu, "fp16")


def peak_flops(gpu: Gpu, dtype: str) -> float:
    """Dense FLOP/s of `dtype`, or of what stands in for it."""
    peak = gpu.peak(math_dtype(gpu, dtype))
    assert peak is not None
    return peak


def sparsity_gain(work: Work, gpu: Gpu) -> float:
    """How many times the dense peak a product of these weights may reach: the sheet's factor where they are
    2:4, 1 otherwise. Its FLOPs stay those of the dense product. Source: seed ledger, prune.24."""
    return (gpu.sparsity or 1) if pattern(getattr(work, "stored", "")) == "2:4" else 1


def work_peak(work: Work, gpu: Gpu) -> float:
    """FLOP/s of the matrix units for `work`, in its own type."""
    return peak_flops(gpu, work_math(work)) * sparsity_gain(work, gpu)


def vector_peak(gpu: Gpu) -> float | None:
    """FLOP/s of the vector units: the fp32 peak where the sheet has one."""
    return gpu.peak("fp32")


def work_math(work: Work) -> str:
    """Type the matrix units use for `work`; "" for works without a matrix product."""
    return getattr(work, "math", "")


def intensity(op: Op) -> float | None:
    """(matmul + vector FLOPs) per byte; None where nothing is moved."""
    total = op.work.bytes.total
    return (op.work.matmul_flops + op.work.vector_flops) / total if total else None


def attainable_flops(op: Op, gpu: Gpu) -> float:
    """The roof over `op`: min(peak of its units, intensity x bandwidth), in FLOP/s."""
    peak = work_peak(op.work, gpu) if work_math(op.work) else vector_peak(gpu)
    slope = (intensity(op) or 0.0) * gpu.bandwidth
    return slope if peak is None else min(peak, slope)


def verdict(value: float | None, point: Ridge) -> str:
    """memory-bound, compute-bound, or near the ridge (below or above the datasheet's).

    Below 0.75 x the textbook ridge an operation waits for memory, above 1.25 x the datasheet ridge
    for arithmetic, in either convention; between, the convention would decide, so it is "near".
    """
    if value is None:
        return "compute-bound"  # nothing is moved: memory cannot be what it waits for
    if value < MEMORY_BOUND_BELOW * point.textbook:
        return "memory-bound"
    if value > COMPUTE_BOUND_ABOVE * point.datasheet:
        return "compute-bound"
    return f"near the ridge ({'below' if value < point.datasheet else 'above'})"


def op_verdict(op: Op, gpu: Gpu) -> str:
    """The verdict of `op` against the ridge of the type its product is done in, raised for 2:4 weights."""
    point = ridge(gpu, work_math(op.work) or default_dtype(gpu))
    gain = sparsity_gain(op.work, gpu)
    return verdict(intensity(op), Ridge(point.textbook * gain, point.datasheet * gain))


def link_bytes_per_s(gpu: Gpu, ranks: Number = BRIDGED) -> Number:
    """One way, of the link that so many of `gpu` meet on: past the two of a bridge, the host's."""
    own, host = (rate / 2 * 1e9 for rate in (gpu.link_gb_per_s or HOST_LINK_GB_PER_S, HOST_LINK_GB_PER_S))
    return own if gpu.link != "bridge" else kit(ranks).where(ranks <= BRIDGED, own, host)


def floor_s(work: Work, gpu: Gpu) -> Number:
    """Least time of one launch: the longest of matrix units, vector units and memory; of a collective what
    its link takes.

    max(matmul/peak_matrix, vector/peak_vector, bytes/bandwidth), datasheet peaks, data in HBM; wire bytes
    over the one-way bandwidth, which a ring cannot beat.
    """
    if isinstance(work, Collective):
        return work.wire_bytes / link_bytes_per_s(gpu, work.world)
    longest = work.bytes.total / gpu.bandwidth
    if work_math(work):
        longest = most(longest, work.matmul_flops / work_peak(work, gpu))
    vector = vector_peak(gpu)
    if vector is not None:
        longest = most(longest, work.vector_flops / vector)
    return longest


class Totals(NamedTuple):
    """Sums over the ops of one phase."""

    matmul_flops: Number
    vector_flops: Number
    weights: Number
    activations: Number
    kv: Number
    state: Number

    @property
    def bytes(self) -> Number:
        return self.weights + self.activations + self.kv + self.state


def totals(ops: Iterable[Op]) -> Totals:
    """FLOPs and bytes by class, summed over `ops` and their counts."""
    out = Totals(0, 0, 0, 0, 0, 0)
    for op in ops:
        moved = op.bytes
        out = Totals(
            out.matmul_flops + op.matmul_flops,
            out.vector_flops + op.vector_flops,
            out.weights + moved.weights,
            out.activations + moved.activations,
            out.kv + moved.kv,
            out.state + moved.state,
        )
    return out


def step_floor_s(ops: Iterable[Op], gpu: Gpu) -> Number:
    """Σ over launches of the longest of compute, memory and link: no two overlap."""
    return sum(op.count * floor_s(op.work, gpu) for op in ops)


class Compulsory(NamedTuple):
    """Bytes no implementation of a step avoids: each weight read once, each cache row that the step needs
    touched once (read if old, written if new), each state read and written."""

    weights: Number
    cached: Number


def compulsory(plan: Plan, ops: Iterable[Op]) -> Compulsory:
    """The least that `plan` moves.

    Looked-up table rows are left out (a tied table is read as the head already), and weights that two
    kernels of a mixed step read (MLA absorbed and expanded) count once.
    Source: the design's bound; ../shared/peers, section 0: "weights minus the input table, plus KV".
    """
    ops = tuple(ops)
    rebuilt = any(op.name == "kv_b" for op in ops)
    once = (op for op in ops if not (rebuilt and op.name in ("q_absorb", "v_up")))
    weights = sum(op.bytes.weights for op in once if not isinstance(op.work, Gather))
    cached = 0
    for layer, _, times in layer_groups(plan.model, plan.recipe):
        for cache in layer.caches():
            for segment in plan.step.segments:
                state = 2 * cache.state_bytes(plan.activation_bytes)
                moved = touched_bytes(cache, segment, plan.run.kv) + state
                cached = cached + times * segment.count * moved
    return Compulsory(weights, cached)


def compulsory_bytes(plan: Plan, ops: Iterable[Op]) -> Number:
    """Weights and cache together."""
    weights, cached = compulsory(plan, ops)
    return weights + cached


def touched_bytes(cache: CacheSpec, segment: Segment, fmt: Format) -> Number:
    """Bytes of one sequence's rows that a step reads or writes; none where another layer's are read."""
    if not cache.stored:
        return 0
    new = cache.counted(segment.new, segment.encoder_new)
    past = cache.counted(segment.past, segment.encoder_past)
    return cache.bytes_touched(new, past, fmt)


def bound_s(plan: Plan, ops: tuple[Op, ...], gpu: Gpu) -> Number:
    """The whole step at its best: max(Σ matmul FLOPs / peak, Σ compulsory bytes / bandwidth)."""
    return most(compute_s(ops, gpu), compulsory_bytes(plan, ops) / gpu.bandwidth)


def compute_s(ops: Iterable[Op], gpu: Gpu) -> Number:
    """Σ matmul FLOPs / peak, each in its own type."""
    return sum(op.matmul_flops / work_peak(op.work, gpu) for op in ops if work_math(op.work))
