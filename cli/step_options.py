"""What `ops` and `roofline` share: options into plans, and ops into JSON and table rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ..costmodel.forward import ops as build_ops
from ..costmodel.kv import cache_bill
from ..costmodel.memory import within_room
from ..costmodel.op import Bytes, Op
from ..costmodel.roofline import (
    Ridge,
    bound_s,
    floor_s,
    intensity,
    math_dtype,
    op_verdict,
    ridge,
    step_floor_s,
    totals,
    vector_peak,
    work_math,
)
from ..costmodel.step import Plan, Step, decode, prefill
from ..costmodel.times.expected import Clock, Expected
from ..costmodel.weights import weight_bill
from ..hardware.spec import Gpu
from ..models.sparsity import pattern
from ..models.spec import Model
from . import options as o
from .calibrations import clock_of
from .inputs import choice, encoder_positions
from .output.report import Table
from .room import too_much
from .runs import run_of
from .stand_ins import substitutions
from .text import number, plural, seconds, si, size

PHASES = ("both", "prefill", "decode")
MAX_STEPS = 1_000
RIDGES = ("textbook", "datasheet")


class StepOptions(NamedTuple):
    """Everything about how a step is run that is one value for the whole command."""

    phase: o.Phase = "both"
    weights: o.Weights = None
    kv_format: o.Kv = None
    attention: o.AttentionKernel = "flash"
    mla: o.Mla = "auto"
    fusion: o.Fusion = "engine"
    accounting: o.Accounting = "kernel"
    full_attention: o.FullAttention = False
    all_logits: o.AllLogits = False
    skew: o.Skew = 0.0
    encoder_seq: o.EncoderSeq = None
    engine: o.Library = None
    calibration: o.CalibrationOption = "auto"

    def echo(self) -> dict[str, Any]:
        """As the JSON repeats it; formats and encoder positions are resolved point by point."""
        resolved = ("weights", "kv_format", "encoder_seq", "accounting")
        return {name: value for name, value in self._asdict().items() if name not in resolved}

    def checked(self) -> StepOptions:
        choice(self.phase, PHASES, "--phase")
        choice(self.attention, ("flash", "eager"), "--attention")
        choice(self.mla, ("auto", "absorbed", "expanded"), "--mla")
        choice(self.fusion, ("none", "engine", "ideal"), "--fusion")
        choice(self.accounting, ("kernel", "textbook"), "--accounting")
        if self.engine is not None:
            choice(self.engine, ("hf",), "--engine")
        return self


class Phase(NamedTuple):
    """One step of a point, priced: `times` are the expected ones, all launches of an op together (none
    with `--calibration none`)."""

    plan: Plan
    ops: tuple[Op, ...]
    times: tuple[Expected | None, ...]
    total: Expected | None

    def rows(self) -> Iterator[tuple[Op, Expected | None]]:
        return zip(self.ops, self.times, strict=True)


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
    run = run_of(
        model,
        weights,
        kv,
        attention=how.attention,
        # The library rebuilds K and V of every cached latent at each step.
        mla="expanded" if how.engine == "hf" and how.mla == "auto" else how.mla,
        fusion=how.fusion,
        full_attention=how.full_attention,
        skew=how.skew,
    )
    return [_priced(Plan(model, step, run, gpu), clock_of(how.calibration, gpu)) for step in steps]


def _priced(plan: Plan, clock: Clock | None) -> Phase:
    ops = build_ops(plan)
    if clock is None:
        return Phase(plan, ops, (None,) * len(ops), None)
    return Phase(plan, ops, tuple(clock.each(ops)), clock.total(ops))


def op_as_json(op: Op, gpu: Gpu, expected: Expected | None) -> dict[str, Any]:
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
        **expected_as_json(expected),
    }


def expected_as_json(expected: Expected | None) -> dict[str, Any]:
    """Seconds and how far to trust them: the kind, the median error to expect, whose constants."""
    if expected is None:
        return {"expected_s": None, "confidence": None}
    return {
        "expected_s": expected.seconds,
        "confidence": expected.confidence.as_json(),
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
        **expected_as_json(phase.total),
    }


def dtype_of(phases_: list[Phase], gpu: Gpu) -> str:
    """Type most of the matmul FLOPs are done in, on this GPU."""
    amounts: dict[str, int] = {}
    for op in (op for phase in phases_ for op in phase.ops):
        name = work_math(op.work)
        if name:
            amounts[name] = amounts.get(name, 0) + op.matmul_flops
    return math_dtype(gpu, max(amounts, key=lambda name: amounts[name]))


def step_inputs(built: list[Phase]) -> dict[str, Any]:
    """What a point was computed with, names resolved."""
    plan = built[0].plan
    segment = plan.step.segments[0]
    return {
        "model": plan.model.name,
        "seq": segment.context,
        "batch": segment.count,
        "weights": plan.recipe.name,
        "kv": plan.run.kv.name,
        "encoder_seq": (segment.encoder_new or segment.encoder_past) or None,
    }


def step_notes(built: list[Phase], gpu: Gpu, lead: str) -> list[str]:
    """Ridges of the types the operations compute in, what stands in for what, and whether it fits."""
    plan = built[0].plan
    inputs = step_inputs(built)
    main = dtype_of(built, gpu)
    with_encoder = f", {plural(inputs['encoder_seq'], 'encoder position')}" if inputs["encoder_seq"] else ""
    notes = [
        f"{ridge_line(ridge(gpu, main), lead)}, {main}; "
        f"weights {plan.recipe.name}, KV {plan.run.kv.name}{with_encoder}"
    ]
    wanted = {work_math(op.work) for phase in built for op in phase.ops} - {""}
    others = sorted({math_dtype(gpu, name) for name in wanted} - {main})
    notes += [f"{ridge_line(ridge(gpu, name), lead)}, {name}" for name in others]
    notes += substitutions(wanted, gpu)
    bill = weight_bill(plan.model, plan.recipe, inputs["batch"], plan.run.skew)
    narrow = bill.weight_bytes * 8 < 12 * bill.parameters and not pattern(plan.recipe.name)
    if narrow and wanted <= {"bf16", "fp16"}:
        notes.append(f"{plan.recipe.name} weights are converted on the way: products are in {main}")
    if vector_peak(gpu) is None and any(op.vector_flops for phase in built for op in phase.ops):
        notes.append(f"{gpu.name} has no fp32 peak on its sheet: vector work is not in the floors")
    cached = cache_bill(
        plan.model, inputs["seq"], inputs["batch"], plan.run.kv, inputs["encoder_seq"] or 0
    ).logical_bytes
    if within_room(bill.weight_bytes + cached, gpu.capacity_bytes) is False:
        notes.append(
            f"does not fit one {gpu.name}: weights {size(bill.weight_bytes)} + KV and state {size(cached)}, "
            f"{too_much(bill.weight_bytes + cached, gpu)}; times are as if it did"
        )
    return notes


def named(op: Op) -> str:
    """`qkv ×32`: an operation and how often the step launches it."""
    return op.name if op.count == 1 else f"{op.name} ×{op.count:,}"


def op_table(phase: Phase, gpu: Gpu) -> Table:
    """A line an operation, all its launches together."""
    table = Table(OP_COLUMNS, "<>>><>>>", title=phase.plan.step.phase)
    for op, expected in phase.rows():
        flops = op.matmul_flops + op.vector_flops
        table.rows.append(
            (
                named(op),
                si(flops, "FLOP") if flops else "0",
                si(op.bytes.total, "B"),
                number(intensity(op)),
                op_verdict(op, gpu),
                seconds(op.count * floor_s(op.work, gpu)),
                *expected_cells(expected),
            )
        )
    return table


OP_COLUMNS = ("op", "FLOPs", "bytes", "FLOP/byte", "verdict", "floor", "expected", "±")


def expected_cells(expected: Expected | None) -> tuple[str, str]:
    """An expected time and its median error: `t` after the error of transferred constants, `a` assumed."""
    if expected is None:
        return "-", "-"
    error = f"{expected.confidence.error:.0%}"
    return seconds(expected.seconds), error + CONFIDENCE_LETTERS[expected.confidence.kind]


CONFIDENCE_LETTERS = {"calibrated": "", "transferred": " t", "assumed": " a"}


def confidence_note(built: list[Phase]) -> list[str]:
    """What the expected times rest on, and what the letters of the last column mean."""
    totals_ = [phase.total for phase in built if phase.total]
    if not totals_:
        return ["no calibration asked for: floors only"]
    seen = {each.confidence.kind for phase in built for each in phase.times if each}
    said = [f"{phase.plan.step.phase} {phase.total.confidence}" for phase in built if phase.total]
    notes = [f"expected times: {', '.join(said)}; ± is the median error of like kernels kept out of the fit"]
    if "transferred" in seen:
        notes.append("t: constants of another group or GPU by the transfer rule")
    if "assumed" in seen:
        notes.append("a: no measured kernel is like it; assumed constants")
    return notes


def ridge_line(point: Ridge, lead: str) -> str:
    """Both ridges, named, the leading one first."""
    textbook = f"{point.textbook:.1f} FLOP/byte (textbook, GB = 2^30)"
    datasheet = f"{point.datasheet:.1f}"
    if lead == "datasheet":
        return (
            f"ridge {datasheet} FLOP/byte (datasheet, GB = 10^9) · {point.textbook:.1f} (textbook, GB = 2^30)"
        )
    return f"ridge {textbook} · {datasheet} (datasheet, GB = 10^9)"
