"""Where a class of probes stands in a calibration: the family and the group its constants are of."""

from __future__ import annotations

from ..costmodel.op import Attend, Gather, Gemm, Pointwise, Work
from ..costmodel.times.expected import Clock, Expected, gemm_type, row_type
from ..costmodel.times.families import TIMES
from ..costmodel.times.pointwise import RowKernel
from ..hardware.calibration import Key
from ..hardware.spec import Gpu
from .rows import ROW_PROBES, name_of
from .suite import Probe


def group_of(probe: Probe, work: Work, gpu: Gpu) -> tuple[str, Key]:
    """(family, group) of a probe's constants; the stack is filled in by who saves them."""
    match work:
        case Gemm():
            return "gemm", Key(dtype=gemm_type(work))
        case Attend():
            math = "fp32" if work.math == "fp32" else "bf16"
            decoding = work.cached and work.new == 1
            return ("decode" if decoding else "prefill"), Key(dtype=math, kv=math)
        case Pointwise() | Gather():
            return "pointwise", Key(op=name_of(work), dtype=row_type(work.activation_bytes, gpu))
    raise TypeError(f"no class of probes for {work.kind}")


def kept_as(op: str) -> tuple[str, ...]:
    """Under which names a probed kernel's constants are kept: its own, and those the cost model asks for."""
    return ROW_PROBES[op].groups if op in ROW_PROBES else (op,)


def expected_of(probe: Probe, work: Work, clock: Clock) -> Expected:
    """Expected time of a probe by the constants of its class."""
    family, key = group_of(probe, work, clock.gpu)
    if family != "pointwise":
        return clock.expected(work)
    choice = clock.choice(family, key)
    return Expected(TIMES[family].time_s(row_kernel(work), clock.device, choice.params), choice.confidence)


def row_kernel(work: Work) -> RowKernel:
    """A pointwise kernel or a gather as the family of row kernels sees it."""
    if isinstance(work, Gather):
        return RowKernel(work.rows, work.width, work.bytes.total)
    assert isinstance(work, Pointwise)
    return RowKernel(work.rows, work.values // work.rows, work.bytes.total)
