"""What is probed: works of the cost model, the class whose share of the floor they are, and their part.

A probe's part is `ceiling` (it sets a roof of this run), `fit` (the calibration is made of it), `held`
(the calibration is tried on it) or `report` (shown, not judged softly).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from .. import InputError
from ..costmodel.forward import ops
from ..costmodel.op import Attend, Gemm, GroupedGemm, Op, Work
from ..costmodel.step import Plan, Run, Step, decode, prefill
from ..hardware.spec import MIB
from ..models.spec import Model
from .kernels import INT4_GROUP, INT4_SCALES
from .rows import BYTES, ROW_PROBES
from .shapes import is_causal, pairs_of
from .target import Target

BANDS = {
    "gemm": (0.10, 0.25),
    "lin": (0.25, 0.25),
    "bw": (0.05, 0.25),
    "kv": (0.20, 0.25),
    "attn.prefill": (0.20, 0.30),
    "attn.decode": (0.20, 0.30),
    "ptw": (0.25, 0.25),
}
"""Soft band of each class on a GPU and on a CPU. Source: ../shared/probes/probes.md, section 4."""


class Probe(NamedTuple):
    """`cls` names the class (gemm.fp32, attn.decode.flash ...), `work` what runs, `backend` of attention."""

    id: str
    cls: str
    work: Any
    part: str = "fit"
    backend: str = ""

    @property
    def op(self) -> Op:
        """The probe as an operation of the cost model."""
        return Op("probe", self.id, self.work, 1)

    def band(self, kind: str) -> float:
        """How far from the expected time it may be before it is called slow or fast."""
        return band_of(self.cls, kind)


def band_of(cls: str, kind: str) -> float:
    """The soft band of a class on a `kind` of device."""
    name = max((name for name in BANDS if cls.startswith(name)), key=len, default="ptw")
    return BANDS[name][kind == "cpu"]


def gemm(rows: int, inner: int, outer: int, math: str, stored: str = "") -> Gemm:
    """A product with weights of `math`, or of 4 bits where `stored` says so."""
    each = {"fp32": 4.0, "tf32": 4.0, "fp8": 1.0, "int8": 1.0}.get(math, 2.0)
    if stored.startswith("int4"):
        each = 0.5 + INT4_SCALES / INT4_GROUP
    size = round(inner * outer * each)
    return Gemm(rows, inner, outer, size, math, 4 if math in ("fp32", "tf32") else 2, stored=stored)


def attend(
    batch: int,
    new: int,
    context: int,
    heads: int,
    kv_heads: int,
    width: int,
    math: str,
    causal: bool = False,
) -> Attend:
    """Attention over `context` keys; causal counts those up to each query's own."""
    each = 4 if math == "fp32" else 2
    pairs = pairs_of(new, context, causal)
    row = 2 * kv_heads * width * each
    cached = new < context
    return Attend(
        batch,
        new,
        context,
        pairs,
        heads,
        kv_heads,
        width,
        width,
        row,
        math,
        cached=cached,
        activation_bytes=each,
    )


def streams(size: int, kind: str, part: str, suffix: str = "") -> list[Probe]:
    """The bandwidth family over buffers of `size` bytes."""
    columns, each = 4096, BYTES[kind]
    rows = max(1, size // (columns * each))
    return [
        Probe(f"{row.cls}{suffix}", row.cls, row.work(rows, columns, each), part)
        for row in ROW_PROBES.values()
        if row.cls.startswith("bw.")
    ]


def row_probes(kind: str) -> list[Probe]:
    """Every other kernel over rows, at its shape on such a device."""
    found = []
    for row in ROW_PROBES.values():
        shape = row.cpu if kind == "cpu" else row.cuda
        if shape is not None:
            work = row.work(shape.rows, shape.columns, BYTES[kind])
            found.append(Probe(row.cls + shape.suffix, row.cls, work, shape.part))
    return found


Heads = tuple[int, int, int]
"""Query heads, KV heads, width of a head."""


def prefill_probe(
    id: str, cls: str, tokens: int, heads: Heads, math: str, part: str, backend: str, causal: bool
) -> Probe:
    """A prompt of `tokens`."""
    return Probe(id, cls, attend(1, tokens, tokens, *heads, math, causal), part, backend)


def decode_probe(id: str, cls: str, batch: int, context: int, heads: Heads, math: str, part: str) -> Probe:
    """One new token for each of `batch` sequences."""
    return Probe(id, cls, attend(batch, 1, context, *heads, math), part, "flash")


def cpu_suite(mode: str) -> list[Probe]:
    """One thread, fp32: what the CPU through torch computes in."""
    found = streams(128 * MIB, "cpu", "ceiling") + streams(96 * MIB, "cpu", "held", ".96m")
    found += [Probe(f"gemm.fp32.{n}", "gemm.fp32", gemm(n, n, n, "fp32"), "ceiling") for n in (512, 1024)]
    found += [
        Probe("gemm.fp32.768", "gemm.fp32", gemm(768, 768, 768, "fp32"), "held"),
        Probe("gemm.fp32.512x2048x1024", "gemm.fp32", gemm(512, 1024, 2048, "fp32"), "held"),
        Probe("lin.fp32.m1", "lin.fp32.m1", gemm(1, 4096, 8192, "fp32"), "ceiling"),
        Probe("lin.fp32.m1.12k", "lin.fp32.m1", gemm(1, 4096, 12288, "fp32"), "held"),
        Probe("lin.fp32.m16", "lin.fp32.m16", gemm(16, 4096, 4096, "fp32"), "report"),
    ]
    few, wide, grouped = (8, 8, 64), (8, 8, 128), (8, 2, 128)
    deep, stepping = "attn.prefill.flash", "attn.decode.flash"
    found += [
        prefill_probe("attn.prefill.512", deep, 512, few, "fp32", "fit", "flash", False),
        prefill_probe("attn.prefill.1k", deep, 1024, few, "fp32", "held", "flash", False),
        prefill_probe("attn.prefill.1k.causal", f"{deep}.causal", 1024, few, "fp32", "report", "flash", True),
        decode_probe("attn.decode.mha.8k", stepping, 1, 8192, wide, "fp32", "fit"),
        decode_probe("attn.decode.mha.12k", stepping, 1, 12288, wide, "fp32", "held"),
        decode_probe("attn.decode.gqa.16k", "attn.decode.gqa", 1, 16384, grouped, "fp32", "report"),
        *row_probes("cpu"),
    ]
    if mode == "quick":
        return found
    found += [
        Probe("gemm.fp32.1536", "gemm.fp32", gemm(1536, 1536, 1536, "fp32"), "held"),
        *(
            Probe(f"lin.fp32.m{m}", f"lin.fp32.m{m}", gemm(m, 4096, 4096, "fp32"), "report")
            for m in (2, 4, 64)
        ),
        prefill_probe(
            "attn.prefill.512.math", "attn.prefill.math", 512, few, "fp32", "report", "math", False
        ),
        decode_probe("attn.decode.mha.16k", stepping, 1, 16384, wide, "fp32", "held"),
        *(
            Probe(f"gemm.{m}.512", f"gemm.{m}", gemm(512, 512, 512, m), "ceiling")
            for m in ("bf16", "int8", "fp8")
        ),
    ]
    if mode == "full":
        found += streams(256 * MIB, "cpu", "report", ".256m") + streams(1 * MIB, "cpu", "report", ".1m")
        found.append(Probe("gemm.fp32.2048", "gemm.fp32", gemm(2048, 2048, 2048, "fp32"), "held"))
    return found


LINEARS = {
    "llama-3-8b.qkv": (4096, 6144),
    "llama-3-8b.o": (4096, 4096),
    "llama-3-8b.gate_up": (4096, 28672),
    "llama-3-8b.down": (14336, 4096),
}


HEADS = (32, 8, 128)


def cuda_suite(mode: str) -> list[Probe]:
    """bf16 first; the other types where the part has them, skipped with the reason where it has not."""
    big = 4 << 30
    found = streams(big, "cuda", "ceiling")
    found += [Probe(f"gemm.bf16.{n}", "gemm.bf16", gemm(n, n, n, "bf16"), "ceiling") for n in (4096, 8192)]
    found += [Probe("gemm.bf16.2048", "gemm.bf16", gemm(2048, 2048, 2048, "bf16"), "held")]
    counts = (1, 16, 256) if mode == "quick" else (1, 8, 16, 64, 256, 1024, 2048)
    for name, (inner, outer) in LINEARS.items():
        found += [
            Probe(f"lin.bf16.{name}.m{m}", f"lin.bf16.m{m}", gemm(m, inner, outer, "bf16"), "fit")
            for m in counts
        ]
    found += [
        prefill_probe("attn.prefill.4k", "attn.prefill.flash", 4096, HEADS, "bf16", "fit", "flash", True),
        decode_probe("attn.decode.b32.4k", "attn.decode.flash", 32, 4096, HEADS, "bf16", "fit"),
        decode_probe("attn.decode.b1.32k", "attn.decode.flash", 1, 32768, HEADS, "bf16", "held"),
        decode_probe("attn.decode.b8.16k", "attn.decode.flash", 8, 16384, HEADS, "bf16", "held"),
        *row_probes("cuda"),
    ]
    if mode == "quick":
        return found
    for math in ("fp16", "tf32", "fp8", "int8"):
        found += [
            Probe(f"gemm.{math}.{n}", f"gemm.{math}", gemm(n, n, n, math), "ceiling") for n in (4096, 8192)
        ]
    found += [Probe(f"gemm.bf16.{n}", "gemm.bf16", gemm(n, n, n, "bf16"), "held") for n in (1024, 16384)]
    for name, (inner, outer) in LINEARS.items():
        found += [
            Probe(f"lin.int4.{name}.m{m}", "lin.int4", gemm(m, inner, outer, "bf16", "int4-g128"), "report")
            for m in (1, 16)
        ]
        found.append(Probe(f"lin.fp8.{name}.m16", "lin.fp8", gemm(16, inner, outer, "fp8"), "report"))
    for backend in ("cudnn", "flash", "efficient", "math"):
        lengths = (512, 2048) if backend == "math" else (512, 2048, 8192)
        found += [
            Probe(
                f"attn.prefill.{backend}.{n}{'.causal' if causal else ''}",
                f"attn.prefill.{backend}",
                attend(1, n, n, 32, 32, 128, "bf16", causal),
                "report",
                backend,
            )
            for n in lengths
            for causal in (False, True)
        ]
    shapes = [(b, n) for b in (1, 8, 32, 128) for n in (1024, 8192, 32768, 131072) if b * n <= 1 << 20]
    for batch, n in shapes:
        for kind, kv_heads in (("mha", 32), ("gqa", 8), ("mqa", 1)):
            if kind == "mha" and batch * n > 1 << 18:
                continue
            found.append(
                Probe(
                    f"attn.decode.{kind}.b{batch}.{n}",
                    "attn.decode.flash",
                    attend(batch, 1, n, 32, kv_heads, 128, "bf16"),
                    "held",
                    "flash",
                )
            )
    latent = Attend(32, 1, 4096, 4096, 16, 1, 576, 512, 1152, "bf16", v_in_k=True)
    found.append(Probe("attn.decode.mla", "attn.decode.mla", latent, "report", "flash"))
    if mode == "full":
        for size in (1, 4, 16, 64, 256, 1024):
            found += streams(size * MIB, "cuda", "report", f".{size}m")
    return found


def model_suite(model: Model, target: Target, batch: int, seq: int) -> list[Probe]:
    """A model's own products and attention, of a prefill and of a decode step."""
    math = "fp32" if target.kind == "cpu" else "bf16"
    steps: tuple[Step, ...] = (prefill(batch, seq), decode(batch, seq))
    found: dict[Work, Probe] = {}
    for step in steps:
        for op in ops(Plan(model, step, Run(), target.gpu)):
            work = _in_type(op.work, math)
            if work is None or work in found:
                continue
            name = f"{model.name}.{step.phase}.{op.name}"
            rows = int(work.rows) if isinstance(work, Gemm) else 0
            cls = f"attn.{step.phase}.flash" if isinstance(work, Attend) else f"lin.{math}.m{rows}"
            backend = "flash" if isinstance(work, Attend) else ""
            found[work] = Probe(name, cls, work, "held", backend)
    return list(found.values())


def _in_type(work: Work, math: str) -> Work | None:
    """The same shape in the type that is probed, or as it is where no probe runs it (which it then says);
    None for what is neither a product nor attention."""
    if isinstance(work, Gemm) and work.batch == 1:
        return gemm(int(work.rows), work.inner, work.outer, math)
    if isinstance(work, Attend) and work.qk_dim == work.v_dim and work.stage == "fused" and not work.window:
        shape = (work.sequences, work.new, work.context, work.heads, work.kv_heads, work.qk_dim)
        return attend(*shape, math, is_causal(work))
    return work if isinstance(work, (Gemm, GroupedGemm, Attend)) else None


def suite(target: Target, mode: str) -> list[Probe]:
    """The probes of a device in a mode."""
    return cpu_suite(mode) if target.kind == "cpu" else cuda_suite(mode)


def chosen(probes: Iterable[Probe], only: tuple[str, ...]) -> list[Probe]:
    """Those whose id or class starts with one of `only`; ceilings always, for the rest is held to them."""
    listed = list(probes)
    if not only:
        return listed
    groups = {each.cls.split(".")[0] for each in listed}
    for name in only:
        if not any(each.id.startswith(name) or each.cls.startswith(name) for each in listed):
            raise InputError(f"--only {name}: no probe starts so; there are {', '.join(sorted(groups))}")
    return [e for e in listed if e.part == "ceiling" or e.id.startswith(only) or e.cls.startswith(only)]
