"""The real kernel of a work: the same shape and type as was priced, through torch's own calls.

Each kernel is checked once against float64 on a small shape before it is timed. What a device or a
type cannot run is refused with its reason (`CannotRunError`).
Source: ../shared/probes/probes.md, section 2, for calls, layouts and limits.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from ..costmodel.op import Attend, Gather, Gemm, Pointwise, Work
from .rows import ROW_PROBES, name_of
from .shapes import is_causal, small
from .target import Target


class CannotRunError(Exception):
    """This kernel is not to be had here; the text says why."""


class Kernel(NamedTuple):
    """`launch` runs it on one set of inputs; `result` computes the same and returns it; `exact` is the
    float64 answer to it; `moved` the bytes that a launch's inputs and outputs take."""

    launch: Callable[[], Any]
    result: Callable[[], Any]
    exact: Callable[[], Any]
    moved: int


def out_of_memory(error: BaseException) -> bool:
    """Whether torch, or Python, could not have the memory it asked for."""
    said = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in said or "allocate memory" in said


TOLERANCE = {"fp32": 1e-4, "tf32": 5e-3, "bf16": 3e-2, "fp16": 5e-3, "fp8": 0.15, "int8": 0.0, "int4": 0.15}
"""Largest |error| against float64, as a share of the largest value."""
FP8_CAPABILITY = (8, 9)
MOST_HEAD_DIM = 256


def build(work: Work, backend: str, target: Target, torch: Any) -> Kernel:
    """The kernel of `work` with inputs of its own. Raises CannotRunError where it cannot run here."""
    match work:
        case Gemm():
            return _gemm(work, target, torch)
        case Attend():
            return _attend(work, backend, target, torch)
        case Pointwise() | Gather():
            return _row_kernel(work, target, torch)
    raise CannotRunError(f"no probe runs a {work.kind}")


def check(work: Work, backend: str, target: Target, torch: Any) -> None:
    """Hold the kernel to float64 on a small shape. Raises CannotRunError where they differ."""
    tried = small(work)
    kernel = build(tried, backend, target, torch)
    got, exact = kernel.result().double(), kernel.exact().double()
    scale = max(float(exact.abs().max()), 1e-30)
    error = float((got - exact).abs().max()) / scale
    most = TOLERANCE.get(_type_of(tried), 1e-4)
    if not error <= most:
        raise CannotRunError(f"its result is off by {error:.2g} of the largest value, {most:g} allowed")


def _type_of(work: Work) -> str:
    if isinstance(work, Gemm) and work.stored.startswith("int4"):
        return "int4"
    math = getattr(work, "math", "")
    return math or {4: "fp32", 2: "bf16"}[getattr(work, "activation_bytes", 4)]


def dtype_of(name: str, torch: Any) -> Any:
    """torch's type of a name of ours."""
    names = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}
    if name not in names:
        raise CannotRunError(f"torch has no plain {name} kernel")
    return getattr(torch, names[name])


def _random(torch: Any, target: Target, dtype: Any, *shape: int) -> Any:
    """Normal data: zeros run faster than anything real (an H200 by 13 %)."""
    return torch.randn(*shape, dtype=torch.float32, device=target.spec).to(dtype)


def _moved(*tensors: Any) -> int:
    return sum(each.numel() * each.element_size() for each in tensors)


# --- products ---


def _gemm(work: Gemm, target: Target, torch: Any) -> Kernel:
    if work.batch != 1:
        raise CannotRunError("batched products are not probed")
    if work.stored.startswith("int4"):
        return _int4(work, target, torch)
    if work.math == "int8":
        return _int8(work, target, torch)
    if work.math == "fp8":
        return _fp8(work, target, torch)
    dtype = dtype_of(work.math, torch)
    if work.math == "tf32" and target.kind == "cpu":
        raise CannotRunError("tf32 is a GPU's")
    a = _random(torch, target, dtype, work.rows, work.inner)
    w = _random(torch, target, dtype, work.outer, work.inner).t()
    out = torch.empty(work.rows, work.outer, dtype=dtype, device=target.spec)
    if target.kind == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = work.math == "tf32"

    def launch() -> Any:
        return torch.mm(a, w, out=out)

    return Kernel(launch, launch, lambda: a.double() @ w.double(), _moved(a, w, out))


def _int8(work: Gemm, target: Target, torch: Any) -> Kernel:
    if target.kind == "cuda" and work.rows <= 16:
        raise CannotRunError("_int_mm needs more than 16 rows on CUDA")
    a = torch.randint(-127, 128, (work.rows, work.inner), dtype=torch.int8, device=target.spec)
    w = torch.randint(-127, 128, (work.outer, work.inner), dtype=torch.int8, device=target.spec).t()

    def launch() -> Any:
        return torch._int_mm(a, w)

    return Kernel(launch, launch, lambda: a.double() @ w.double(), _moved(a, w) + 4 * work.rows * work.outer)


def _fp8(work: Gemm, target: Target, torch: Any) -> Kernel:
    if target.kind == "cuda" and torch.cuda.get_device_capability(target.ordinal) < FP8_CAPABILITY:
        raise CannotRunError("fp8 needs compute capability 8.9")
    if work.inner % 16 or work.outer % 16:
        raise CannotRunError("fp8 products need widths that are multiples of 16")
    fp8 = torch.float8_e4m3fn
    a = _random(torch, target, torch.float32, work.rows, work.inner).to(fp8)
    w = _random(torch, target, torch.float32, work.outer, work.inner).to(fp8).t()
    one = torch.ones((), device=target.spec)

    def launch() -> Any:
        return torch._scaled_mm(a, w, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

    def exact() -> Any:
        return a.to(torch.float32).double() @ w.to(torch.float32).double()

    return Kernel(launch, launch, exact, _moved(a, w) + 2 * work.rows * work.outer)


INT4_GROUP, INT4_SCALES = 128, 4
"""torch packs a scale and a zero point, in bf16 each, for so many weights."""


def _int4(work: Gemm, target: Target, torch: Any) -> Kernel:
    if target.kind != "cuda":
        raise CannotRunError("the packed int4 kernel is probed on CUDA only")
    if work.rows > 64:
        raise CannotRunError("the packed int4 kernel is for up to 64 rows")
    packed = torch.randint(0, 256, (work.outer, work.inner // 2), dtype=torch.uint8, device=target.spec)
    weight = torch.ops.aten._convert_weight_to_int4pack(packed, 8)
    scales = _random(torch, target, torch.bfloat16, work.inner // INT4_GROUP, work.outer, 2).abs()
    a = _random(torch, target, torch.bfloat16, work.rows, work.inner)

    def launch() -> Any:
        return torch.ops.aten._weight_int4pack_mm(a, weight, INT4_GROUP, scales)

    def exact() -> Any:
        high, low = (packed >> 4).double() - 8, (packed & 15).double() - 8
        values = torch.stack((high, low), -1).reshape(work.outer, work.inner)
        pairs = scales.double().repeat_interleave(INT4_GROUP, 0)
        weights = values.t() * pairs[..., 0] + pairs[..., 1]
        return a.double() @ weights

    return Kernel(launch, launch, exact, _moved(packed, scales, a) + 2 * work.rows * work.outer)


# --- attention ---


def backend_context(backend: str, torch: Any) -> AbstractContextManager[Any]:
    """Pins one kernel of scaled_dot_product_attention, so that no other stands in for it unseen."""
    if not backend:
        return nullcontext()
    kinds = torch.nn.attention.SDPBackend
    names = {
        "flash": kinds.FLASH_ATTENTION,
        "cudnn": kinds.CUDNN_ATTENTION,
        "efficient": kinds.EFFICIENT_ATTENTION,
        "math": kinds.MATH,
    }
    pinned: AbstractContextManager[Any] = torch.nn.attention.sdpa_kernel([names[backend]])
    return pinned


def _attend(work: Attend, backend: str, target: Target, torch: Any) -> Kernel:
    if work.window:
        raise CannotRunError("attention over a window is not probed")
    if work.stage != "fused":
        raise CannotRunError("the three kernels of eager attention are not probed apart")
    if work.qk_dim > MOST_HEAD_DIM and backend != "math":
        raise CannotRunError(f"{backend or 'sdpa'} takes heads of up to {MOST_HEAD_DIM}, not {work.qk_dim}")
    if work.v_in_k or work.qk_dim != work.v_dim:
        raise CannotRunError(f"keys {work.qk_dim} and values {work.v_dim} wide are not probed (MLA)")
    dtype = dtype_of(work.math, torch)
    q = _random(torch, target, dtype, work.sequences, work.heads, work.new, work.qk_dim)
    k = _random(torch, target, dtype, work.sequences, work.kv_heads, work.context, work.qk_dim)
    v = _random(torch, target, dtype, work.sequences, work.kv_heads, work.context, work.v_dim)
    masked = is_causal(work)
    if masked and work.new != work.context:
        raise CannotRunError("torch's causal mask starts at the first key: a chunk with a past is not probed")
    # One query row sees every key: is_causal would leave it the first alone.
    below = masked and work.new > 1
    grouped = work.heads != work.kv_heads
    attention = torch.nn.functional.scaled_dot_product_attention

    def launch() -> Any:
        return attention(q, k, v, is_causal=below, enable_gqa=grouped)

    def pinned() -> Any:
        with backend_context(backend, torch):
            return launch()

    def exact() -> Any:
        kk = k.double().repeat_interleave(work.heads // work.kv_heads, 1)
        vv = v.double().repeat_interleave(work.heads // work.kv_heads, 1)
        scores = q.double() @ kk.transpose(-1, -2) / work.qk_dim**0.5
        if below:
            keep = torch.ones(work.new, work.context, dtype=torch.bool, device=target.spec).tril()
            scores = scores.masked_fill(~keep, float("-inf"))
        return torch.softmax(scores, -1) @ vv

    try:
        pinned()
    except RuntimeError as error:
        if out_of_memory(error):
            raise
        raise CannotRunError(f"{backend or 'sdpa'} does not take it: {str(error).splitlines()[0]}") from None
    moved = _moved(q, k, v) + q.element_size() * work.sequences * work.heads * work.new * work.v_dim
    return Kernel(launch, pinned, exact, moved)


# --- bytes ---


def _row_kernel(work: Pointwise | Gather, target: Target, torch: Any) -> Kernel:
    """A kernel over rows, as its entry of `ROW_PROBES` makes it."""
    known = ROW_PROBES.get(name_of(work))
    if known is None:
        raise CannotRunError(f"no kernel is written for the pointwise op {name_of(work)}")
    dtype = torch.float32 if work.activation_bytes == 4 else torch.bfloat16
    columns = work.width if isinstance(work, Gather) else work.values // work.rows
    x = _random(torch, target, dtype, int(work.rows), int(columns))
    launch, exact, others = known.make(x, torch)
    return Kernel(launch, launch, exact, _moved(x, *others))
