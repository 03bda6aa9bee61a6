"""What `ops` and `roofline` share: options into plans, and ops into JSON and table rows."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..costmodel.forward import ops as build_ops
from ..costmodel.op import Bytes, Op
from ..costmodel.roofline import (
    Ridge,
    bound_s,
    floor_s,
    intensity,
    math_dtype,
    op_verdict,
    step_floor_s,
    totals,
    work_math,
)
from ..costmodel.step import Plan, Run, Step, decode, prefill
from ..hardware.spec import Gpu
from ..models.recipes import find_recipe
from ..models.spec import Model
from .inputs import choice, encoder_positions, kv_formats
from .text import number, seconds, si

PHASES = ("both", "prefill", "decode")
RIDGES = ("textbook", "datasheet")


class StepOptions(NamedTuple):
    """Everything about how a step is run that is one value for the whole command."""

    phase: str = "both"
    attention: str = "flash"
    mla: str = "auto"
    fusion: str = "engine"
    full_attention: bool = False
    all_logits: bool = False
    skew: float = 0.0
    encoder_seq: str | None = None
    engine: str | None = None

    def checked(self) -> StepOptions:
        choice(self.phase, PHASES, "--phase")
        choice(self.attention, ("flash", "eager"), "--attention")
        choice(self.mla, ("auto", "absorbed", "expanded"), "--mla")
        choice(self.fusion, ("none", "engine", "ideal"), "--fusion")
        if self.engine is not None:
            choice(self.engine, ("hf",), "--engine")
        return self


class Phase(NamedTuple):
    """One step of a point, priced."""

    plan: Plan
    ops: tuple[Op, ...]


def phases(
    model: Model, gpu: Gpu, seq: int, batch: int, weights: str | None, kv: str | None, how: StepOptions
) -> list[Phase]:
    """The steps asked for: a prefill of `seq` tokens, a decode step at a context of `seq`."""
    positions = encoder_positions(model, how.encoder_seq, seq)
    steps: list[Step] = []
    if how.phase in ("both", "prefill"):
        steps.append(prefill(batch, seq, how.all_logits, positions))
    if how.phase in ("both", "decode"):
        steps.append(decode(batch, seq, positions))
    run = Run(
        recipe=None if weights is None else find_recipe(weights),
        kv=kv_formats(kv, model)[0],
        attention=how.attention,
        # The library rebuilds K and V of every cached latent at each step.
        mla="expanded" if how.engine == "hf" and how.mla == "auto" else how.mla,
        fusion=how.fusion,
        full_attention=how.full_attention,
        skew=how.skew,
    )
    plans = [Plan(model, step, run, gpu) for step in steps]
    return [Phase(plan, build_ops(plan)) for plan in plans]


def op_as_json(op: Op, gpu: Gpu) -> dict[str, Any]:
    moved = op.bytes
    return {
        "phase": op.phase,
        "name": op.name,
        "work": op.work.kind,
        "count": op.count,
        "matmul_flops": op.matmul_flops,
        "vector_flops": op.vector_flops,
        "bytes": moved.total,
        "bytes_by_class": moved._asdict(),
        "intensity": intensity(op),
        "verdict": op_verdict(op, gpu),
        "floor_s": op.count * floor_s(op.work, gpu),
        "expected_s": None,
    }


def totals_as_json(phase: Phase, gpu: Gpu) -> dict[str, Any]:
    total = totals(phase.ops)
    return {
        "matmul_flops": total.matmul_flops,
        "vector_flops": total.vector_flops,
        "bytes": total.bytes,
        "bytes_by_class": {name: getattr(total, name) for name in Bytes._fields},
        "bound_s": bound_s(phase.plan, phase.ops, gpu),
        "floor_s": step_floor_s(phase.ops, gpu),
        "expected_s": None,
    }


def dtype_of(phases_: list[Phase], gpu: Gpu) -> str:
    """Type most of the matmul FLOPs are done in, on this GPU."""
    amounts: dict[str, int] = {}
    for op in (op for phase in phases_ for op in phase.ops):
        name = work_math(op.work)
        if name:
            amounts[name] = amounts.get(name, 0) + op.matmul_flops
    return math_dtype(gpu, max(amounts, key=lambda name: amounts[name]))


def substitutions(phases_: list[Phase], gpu: Gpu) -> list[str]:
    """A note for each type the weights ask for and the part does not have."""
    wanted = {work_math(op.work) for phase in phases_ for op in phase.ops} - {""}
    return [
        f"{gpu.name} has no {name}; counted at its {math_dtype(gpu, name)} rate"
        for name in sorted(wanted)
        if gpu.peak(name) is None
    ]


def op_row(op: Op, gpu: Gpu) -> tuple[str, ...]:
    """A line of the table of operations."""
    return (
        op.phase,
        op.name,
        str(op.count),
        si(op.matmul_flops + op.vector_flops, "FLOP") if op.matmul_flops + op.vector_flops else "0",
        si(op.bytes.total, "B"),
        number(intensity(op)),
        op_verdict(op, gpu),
        seconds(op.count * floor_s(op.work, gpu)),
    )


OP_COLUMNS = ("phase", "op", "count", "FLOPs", "bytes", "FLOP/byte", "verdict", "floor")
OP_ALIGN = "<<>>>><>"


def ridge_line(point: Ridge, lead: str) -> str:
    """Both ridges, named, the leading one first."""
    textbook = f"{point.textbook:.1f} FLOP/byte (textbook, GB = 2^30)"
    datasheet = f"{point.datasheet:.1f}"
    if lead == "datasheet":
        return (
            f"ridge {datasheet} FLOP/byte (datasheet, GB = 10^9) · {point.textbook:.1f} (textbook, GB = 2^30)"
        )
    return f"ridge {textbook} · {datasheet} (datasheet, GB = 10^9)"
