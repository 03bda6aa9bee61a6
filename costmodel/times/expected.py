"""Expected time of the cost model's works on one GPU: which family each is of, and what it adds up to.

A model's weights and cache come from cold memory (its layers together exceed any L2), so an expected
time is never below the floor.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from ...hardware.calibration import Key
from ...hardware.spec import Gpu
from ...models.sparsity import pattern
from ..arith import alike, kit, least, mean, most, some
from ..op import (
    WIDE,
    Attend,
    Collective,
    Gather,
    Gemm,
    GroupedGemm,
    Number,
    Op,
    Pointwise,
    Scan,
    Work,
    contents,
    stored_bits,
)
from ..roofline import floor_s, math_dtype, sparsity_gain
from .collectives import custom_s, over_pcie, pcie_s, ring_s
from .decode import decode_s, mla_decode_s, xqa_s
from .device import Device, device
from .experts import grouped_gemm_s, route_s
from .families import TIMES
from .family import Params
from .gemm import gemm_s
from .pointwise import RowKernel, pointwise_s, projection_s
from .prefill import append_s, dense_pairs, prefill_s
from .share import share_s
from .transfer import ASSUMED_ERROR, Calibrated, Choice, Confidence, choose

Formula = Callable[[Any, Device, Params], Any]
MatrixWork = TypeVar("MatrixWork", Gemm, GroupedGemm)

FEW_NEW = 8
"""Up to so many new tokens a sequence, a kernel for decoding runs (a draft being verified)."""
ROW_OPS = (
    ("append", "append"),
    ("add_norm", "post_attention_layernorm"),
    ("norm", "input_layernorm"),
    ("rope", "attn_rope"),
    ("silu", "mlp_act"),
    ("activation", "mlp_act"),
    ("gate", "mlp_act"),
    ("mul", "mlp_act"),
)
"""Which measured kernel stands for a pointwise op, by a word of its name; others are timed as an add."""
AROUND_EXPERTS = ("route", "experts.silu_mul", "experts.activation", "combine")
SMALL_ARRAY, MOST_ARRAYS = 1 << 10, 1 << 10
"""Elements of arrays whose times are remembered, and how many of those: 16 MiB at the most."""
XQA_STACK = "trtllm"
"""Whose decode attention goes through a dispatcher of its own (`decode.xqa_s`), where that was measured."""
NEGLIGIBLE = 0.1
"""A kind of confidence that holds less than this share of a total's time is not the total's."""


class Expected(NamedTuple):
    """Seconds, and how far to trust them."""

    seconds: Number
    confidence: Confidence


class Clock:
    """Expected times on one GPU with its calibration; equal works are timed once.

    `own`: the GPU's calibration alone; `library` gives all of them, for families it does not cover. `stack`:
    whose kernels are taken where they were measured (vllm, sglang, trtllm); "" takes each type's default.
    """

    def __init__(
        self,
        gpu: Gpu,
        own: Sequence[Calibrated],
        library: Callable[[Gpu], Iterable[Calibrated]],
        stack: str = "",
    ) -> None:
        self.gpu, self.device, self.stack = gpu, device(gpu), stack
        self._by_stack: dict[str, Clock] = {stack: self}
        self._own, self._library = own, library
        self._chosen: dict[tuple[str, Key], Choice] = {}
        self._timed: dict[tuple[str, Work], Expected] = {}
        self._timed_arrays: dict[tuple[Any, ...], Expected] = {}
        self._rows_seen: tuple[Number, Number, Any] | None = None

    def of(self, stack: str) -> Clock:
        """The same machine's times with the kernels of `stack`."""
        if stack not in self._by_stack:
            self._by_stack[stack] = Clock(self.gpu, self._own, self._library, stack)
        return self._by_stack[stack]

    @property
    def ceilings(self) -> Mapping[str, float]:
        """The roofs under which this machine's own constants were probed; empty where none were."""
        mine = [one.calibration.ceilings for one in self._own if one.gpu.name == self.gpu.name]
        return next((found for found in mine if found), {})

    def choice(self, family: str, key: Key) -> Choice:
        """Constants for a group, from the GPU's own calibration where it has any like it."""
        if self.stack and not key.stack:
            key = key._replace(stack=self.stack)
        known = self._chosen.get((family, key))
        if known is None:
            known = choose(TIMES[family].family, key, self.gpu, self._own)
            if known.confidence.kind != "calibrated":
                known = choose(TIMES[family].family, key, self.gpu, self._library(self.gpu))
            self._chosen[(family, key)] = known
        return known

    def expected(self, work: Work, experts: str = "bf16") -> Expected:
        """Expected time of one launch of `work`, from cold memory; `experts`: what the calibrations call the
        type of those that it routes to or adds up, if it does."""
        try:
            known = self._timed.get((experts, work))
        except TypeError:
            return self._expected_array(work, experts)
        if known is None:
            known = self._timed[(experts, work)] = self._time(work, experts)
        return known

    def _expected_array(self, work: Work, experts: str) -> Expected:
        """The same of an array: small ones are remembered, for many settings ask for them again."""
        if sum(getattr(value, "size", 0) for value in vars(work).values()) > SMALL_ARRAY:
            return self._time(work, experts)
        key = (experts, *contents(work))
        known = self._timed_arrays.get(key)
        if known is None:
            if len(self._timed_arrays) >= MOST_ARRAYS:
                self._timed_arrays.clear()
            known = self._timed_arrays[key] = self._time(work, experts)
        return known

    def each(self, ops: Iterable[Op]) -> list[Expected]:
        """Every op with all its launches; routing and summing go with the type of the step's experts."""
        ops = tuple(ops)
        grouped = next((op.work for op in ops if isinstance(op.work, GroupedGemm)), None)
        kind = "bf16" if grouped is None else grouped_type(self._in_math(grouped))
        times = [self.expected(op.work, kind) for op in ops]
        return [Expected(op.count * one.seconds, one.confidence) for op, one in zip(ops, times, strict=True)]

    def total(self, ops: Iterable[Op]) -> Expected:
        """Sum over ops and their counts; the confidence is that of the least sure part that matters."""
        parts = self.each(ops)
        seconds = sum(part.seconds for part in parts)
        return Expected(seconds, pooled([(mean(part.seconds), part.confidence) for part in parts]))

    def _in_math(self, work: MatrixWork) -> MatrixWork:
        """`work` in the type that this part computes it in."""
        math = math_dtype(self.gpu, work.math)
        return work if math == work.math else replace(work, math=math)

    def _time(self, work: Work, experts: str) -> Expected:
        seconds, confidence = self._raw(work, experts)
        return Expected(most(seconds, floor_s(work, self.gpu)), confidence)

    def _raw(self, work: Work, experts: str) -> tuple[Number, Confidence]:
        match work:
            case Gemm():
                return self._gemm(work)
            case GroupedGemm():
                return self._grouped(work)
            case Attend():
                return self._attend(work)
            case Pointwise():
                return self._pointwise(work, experts)
            case Gather():
                columns = max(work.width, 1)
                rows = RowKernel(work.rows, columns, work.bytes.total)
                return self._rows(rows, "emb", work.activation_bytes)
            case Scan():
                return self._scan(work)
            case Collective():
                return self._collective(work)

    def _gemm(self, work: Gemm) -> tuple[Number, Confidence]:
        asked, work = work.math, self._in_math(work)
        if work.batch > 1:
            op = "mla_gen_pre" if work.inner < work.outer else "mla_gen_post"
            choice = self.choice("head_projection", Key(op=op, dtype="bfloat16"))
            return self._formula(projection_s, work, choice)
        choice = self.choice("gemm", Key(dtype=gemm_type(work)))
        rows, place = self._distinct(work.rows)
        seconds, confidence = self._formula(gemm_s, replace(work, rows=rows), choice)
        if not measured_format(work) or work.math != asked:
            confidence = confidence.loosened()
        return (seconds if place is None else seconds[place]), confidence

    def _formula(self, formula: Formula, work: Any, choice: Choice) -> tuple[Number, Confidence]:
        """Seconds by `formula`, or by two shares where that is what the constants are.

        No kernel of sparse weights was measured: it is assumed to reach the shares of the dense one.
        """
        if choice.params.get("form") == "share":
            formula = share_s
        confidence = choice.confidence
        if pattern(getattr(work, "stored", "")):
            confidence = Confidence("assumed", max(ASSUMED_ERROR, confidence.error))
        return formula(work, self._device_for(work), choice.params), confidence

    def _device_for(self, work: Any) -> Device:
        """The device, its peaks raised where the weights are 2:4 and it has units for that."""
        gain = sparsity_gain(work, self.gpu)
        if gain == 1:
            return self.device
        peaks = tuple((dtype, gain * peak) for dtype, peak in self.gpu.peaks)
        return self.device._replace(gpu=replace(self.gpu, peaks=peaks))

    def _distinct(self, rows: Number) -> tuple[Number, Any]:
        """The distinct elements of an array and where each came from: a batch size returns often, and the
        GEMMs of a step share their rows. (`rows`, None) where there is nothing to gain."""
        if not hasattr(rows, "ndim"):
            return rows, None
        if self._rows_seen is None or self._rows_seen[0] is not rows:
            np: Any = sys.modules["numpy"]
            found, place = np.unique(rows, return_inverse=True)
            gains = 2 * len(found) < len(rows)
            self._rows_seen = (rows, found if gains else rows, place if gains else None)
        return self._rows_seen[1:]

    def _grouped(self, work: GroupedGemm) -> tuple[Number, Confidence]:
        work = self._in_math(work)
        choice = self.choice("moe", Key(dtype=grouped_type(work)))
        return self._formula(grouped_gemm_s, work, choice)

    def _around_experts(self, work: Pointwise, experts: str) -> tuple[Number, Confidence]:
        """Routing, activation and sum of a layer of experts, whose launches are counted in the routing."""
        choice = self.choice("moe", Key(dtype=experts))
        p = choice.params
        if p.get("form") == "share":
            return self._formula(share_s, work, choice)
        if work.name == "route":
            return route_s(work.rows, p, kit(work.rows)), choice.confidence
        return work.bytes.total / (p["move_share"] * self.device.bandwidth), choice.confidence

    def _attend(self, work: Attend) -> tuple[Number, Confidence]:
        if work.stage != "fused":
            return self._eager(work)
        stored = work.bytes_per_value
        kv = "bf16" if alike(stored >= WIDE, "the format of the cache") else "fp8"
        key = Key(dtype="bf16", kv=kv) if work.math != "fp32" else Key(dtype="fp32", kv="fp32")
        few = alike(work.new <= FEW_NEW, "decoding or prefill")
        decoding = few and (work.cached or alike(work.new == 1, "decoding or prefill"))
        rebuilt = work.qk_dim != work.v_dim and work.heads == work.kv_heads and not decoding
        family = ("mla_" if work.v_in_k or rebuilt else "") + ("decode" if decoding else "prefill")
        choice = self.choice(family, key)
        timed = {"decode": decode_s, "mla_decode": mla_decode_s}.get(family, prefill_s)
        if family == "decode" and self.stack.startswith(XQA_STACK):
            own = self.choice("decode_xqa", key)
            if own.confidence.kind == "calibrated":
                choice, timed = own, xqa_s
        seconds, confidence = self._formula(timed, work, choice)
        sparse = not decoding and not some(work.window) and some(work.pairs < 0.999 * dense_pairs(work))
        # Of narrow caches those of a whole byte were measured.
        if sparse or not alike(stored >= 0.9, "the format of the cache"):
            confidence = confidence.loosened()
        return seconds, confidence

    def _eager(self, work: Attend) -> tuple[Number, Confidence]:
        """The three kernels of eager attention: two batched products and a softmax over written scores."""
        group = work.heads // work.kv_heads
        if work.stage == "softmax":
            rows = work.sequences * work.heads * work.new
            kernel = RowKernel(rows, work.context, work.bytes.total)
            return self._rows(kernel, "softmax", work.activation_bytes)
        keys = work.sequences * work.context * work.row_bytes
        width = work.qk_dim if work.stage == "qk" else work.v_dim
        inner, outer = (width, work.context) if work.stage == "qk" else (work.context, width)
        batch = work.sequences * work.kv_heads
        product = Gemm(work.new * group, inner, outer, keys, work.math, work.activation_bytes, batch)
        choice = self.choice("gemm", Key(dtype="bf16"))
        return self._formula(gemm_s, product, choice)

    def _pointwise(self, work: Pointwise, experts: str) -> tuple[Number, Confidence]:
        if work.name in AROUND_EXPERTS:
            return self._around_experts(work, experts)
        if not some(work.bytes.total):
            return 0 * work.values, self._row_choice("add", work.activation_bytes).confidence
        op = row_op(work.name) or "add"
        if op == "append":
            # A cache write's launch is in the attention kernel's time, as it was measured.
            choice = self.choice("prefill", Key(dtype="bf16", kv="bf16"))
            if choice.params.get("form") == "share":
                return self._formula(share_s, work, choice)
            return append_s(work.bytes.total, self.device, choice.params), choice.confidence
        columns = work.values / work.rows
        return self._rows(RowKernel(work.rows, columns, work.bytes.total), op, work.activation_bytes)

    def _row_choice(self, op: str, each: int) -> Choice:
        return self.choice("pointwise", Key(op=op, dtype=row_type(each, self.gpu)))

    def _rows(self, work: RowKernel, op: str, each: int) -> tuple[Number, Confidence]:
        return self._formula(pointwise_s, work, self._row_choice(op, each))

    def _scan(self, work: Scan) -> tuple[Number, Confidence]:
        """No scan kernel was measured: memory as an add's, vector FLOPs at a fifth of the peak."""
        moved = RowKernel(work.tokens, work.width + work.out_width, work.bytes.total)
        seconds, confidence = self._rows(moved, "add", work.activation_bytes)
        vector_s = work.vector_flops / (SCAN_SHARE * self.device.vector_flops)
        return seconds + vector_s, Confidence("assumed", max(SCAN_ERROR, confidence.error))

    def _collective(self, work: Collective) -> tuple[Number, Confidence]:
        key, device = Key(op=work.name), self.device.among(work.world)
        if over_pcie(device, work.world):
            choice = self.choice("collective_pcie", key)
            return pcie_s(work, device, choice.params), choice.confidence
        choice = self.choice("collective", key)
        seconds = ring_s(work, device, choice.params)
        if work.name == "all_reduce" and work.world <= CUSTOM_RANKS:
            # Engines take their own kernel where it is the quicker one.
            own = self.choice("custom_all_reduce", Key(kernel="vllm_graph", op="all_reduce"))
            fast = custom_s(work, device, own.params)
            quicker = own if mean(fast) < mean(seconds) else choice
            return least(seconds, fast), quicker.confidence
        return seconds, choice.confidence


SCAN_SHARE, SCAN_ERROR = 0.2, 0.5
CUSTOM_RANKS = 8


def gemm_type(work: Gemm) -> str:
    """What the calibrations call a product: by its math, and by its weights where those are narrower."""
    narrow = {"fp8": "fp8_block" if "block" in work.stored else "fp8", "int8": "sq", "fp4": "nvfp4"}
    if work.math in narrow:
        return narrow[work.math]
    if work.math in ("fp32", "tf32"):
        return work.math
    bits = 16 if pattern(work.stored) else stored_bits(work.bytes_per_weight)
    return {16: "bf16", 8: "int8_wo", 4: "int4_wo"}[bits]


def row_op(name: str) -> str:
    """Which measured kernel a pointwise op's name says that it is; "" where it says none."""
    return next((op for word, op in ROW_OPS if word in name), "")


def row_type(each: int, gpu: Gpu) -> str:
    """What the calibrations call a row kernel whose values take `each` bytes: a CPU computes in fp32 what it
    has no 16-bit units for. On GPUs 16 bit alone was measured, and times rows of any width."""
    single = each == 4 or math_dtype(gpu, "fp16") == "fp32"
    return "fp32" if gpu.is_cpu and single else "fp16"


def measured_format(work: Gemm) -> bool:
    """Whether kernels for weights stored so were measured, or only some of as many bits."""
    return gemm_type(work) not in ("int8_wo", "int4_wo") or work.stored.startswith(("int4-g", "int8"))


def grouped_type(work: GroupedGemm) -> str:
    """The same for experts."""
    if work.math in ("fp8", "int8"):
        return "fp8_block" if "block" in work.stored else "fp8"
    if work.math == "fp4":
        return "nvfp4"
    if work.stored == "mxfp4":
        return "w4a16_mxfp4"
    # No grouped kernel over weights of 8 bits was measured; they are read as 16-bit kernels read theirs.
    narrow = stored_bits(work.bytes_per_weight) == 4 and not pattern(work.stored)
    return "int4_wo" if narrow else "bf16"


def pooled(parts: Iterable[tuple[float, Confidence]]) -> Confidence:
    """The confidence of a sum: the least sure kind that holds a share worth naming, the errors weighed by
    time as if they all went the same way."""
    parts = [part for part in parts if part[0] > 0]
    total = sum(seconds for seconds, _ in parts)
    if not total:
        return Confidence("assumed", 0.0)
    error = sum(seconds * confidence.error for seconds, confidence in parts) / total
    for kind in ("assumed", "transferred"):
        held = [(seconds, c) for seconds, c in parts if c.kind == kind]
        if sum(seconds for seconds, _ in held) > NEGLIGIBLE * total:
            return Confidence(kind, error, gpu=max(held, key=lambda each: each[0])[1].gpu)
    return Confidence("calibrated", error)
