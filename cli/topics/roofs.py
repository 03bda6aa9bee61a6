"""The roofline and the times under it: what a step needs at least, and how much of the device it uses."""

from __future__ import annotations

import shlex

from ... import InputError
from ...costmodel.forward import ops
from ...costmodel.op import Attend, Gemm, GroupedGemm
from ...costmodel.roofline import (
    compulsory,
    default_dtype,
    floor_s,
    op_verdict,
    peak_flops,
    verdict,
)
from ...costmodel.roofline import (
    intensity as intensity_of,
)
from ...costmodel.roofline import (
    ridge as ridge_of,
)
from ...costmodel.setting import Cost
from ...costmodel.step import Step
from ...costmodel.textbook import prefill_table, shape_of
from ..text import number, percent, seconds, si
from .asked import Asked, Case
from .explained import Explained, Letter, Line, summed, three_times

ROOFLINE = "Roofline, Williams et al., CACM 52 (2009) 65"


def ridge(asked: Asked) -> Explained:
    case = asked.at()
    dtype = default_dtype(case.gpu)
    point = ridge_of(case.gpu, dtype)
    letters = (
        Letter("P", peak_flops(case.gpu, dtype), f"dense peak in {dtype}", "FLOP/s"),
        Letter("g", case.gpu.memory.bandwidth_gb_per_s, "bandwidth in GB/s, read as 2^30 bytes"),
    )
    return Explained(
        case,
        "P / (g·2^30)",
        letters,
        point.textbook,
        "FLOP/byte",
        f"{ROOFLINE}; seed 001, section 2; seed ledger, ridge.142 and ridge.153",
        differs=f"the textbook reads the datasheet's GB as 2^30 bytes: {point.textbook:.1f}. They are "
        f"10^9: {point.datasheet:.1f}. Both are printed everywhere; times use bytes per second",
        commands=(shlex.join(("infercost", "roofline", "--gpu", case.gpu_name)),),
        scope="gpu",
    )


def intensity(asked: Asked) -> Explained:
    case = asked.at(batch=8)
    built = ops(case.setting.plan(case.prompt_step))
    products = [
        op for op in built if isinstance(op.work, Gemm) and op.work.weight_bytes and op.work.batch == 1
    ]
    if not products:
        raise InputError(f"{case.model.name} has no plain matrix product to explain intensity by")
    widest = max(products, key=lambda op: op.matmul_flops)
    work = widest.work
    assert isinstance(work, Gemm)
    letters = (
        Letter("M", work.rows, f"rows: tokens of a prefill, of {widest.name}"),
        Letter("I", work.inner, "inner width"),
        Letter("O", work.outer, "outer width"),
        Letter("a", work.activation_bytes, "bytes of an activation"),
        Letter("W", work.weight_bytes, "bytes of the weights", "bytes"),
    )
    later = {op.name: op for op in ops(case.setting.plan(case.decode_step))}
    lines = [
        Line(op.name, "FLOP/byte", intensity_of(op), intensity_of(later[op.name]))
        for op in built
        if op.name in later and isinstance(op.work, Gemm | GroupedGemm | Attend) and intensity_of(op)
    ]
    value = intensity_of(widest)
    return Explained(
        case,
        "2·M·I·O / (a·M·I + W + a·M·O)",
        letters,
        value,
        "FLOP/byte",
        f"{ROOFLINE}; seed 001, section 2 (Tables 9.1 and 9.2); seed ledger, int.matmul",
        bill=tuple(lines),
        sides=("prefill", "decode step"),
        differs=f"{_textbook(case)}; {number(value)} is {op_verdict(widest, case.gpu)} on {case.gpu.title}",
        commands=(
            case.command("ops", "--seq", case.tokens, "--batch", case.batch),
            "infercost ops --model llama-7b --batch 8 --seq 1024 --accounting textbook",
        ),
    )


def _textbook(case: Case) -> str:
    """What Table 9.1 makes of the case."""
    said = "the textbook counts elements, drops the 2 of a multiply-add against fp16's bytes and the output"
    try:
        table = prefill_table(shape_of(case.model), case.batch, case.tokens)
    except InputError:
        return f"{said} (its tables are of multi-head attention)"
    linear, _, scores, *_ = table
    return f"{said}: {linear.intensity:,.2f} for Q, K, V and {scores.intensity:.2f} for attention"


def attention_verdict(case: Case) -> str:
    """The textbook's prefill attention, and ours, against the ridge."""
    found = [op for op in ops(case.setting.plan(case.prompt_step)) if isinstance(op.work, Attend)]
    if not found:
        return "there is no attention in it"
    ours = number(intensity_of(found[0]))
    said = f"attention as run here, {ours} FLOP/byte, is {op_verdict(found[0], case.gpu)}"
    try:
        table = prefill_table(shape_of(case.model), case.batch, case.tokens)
    except InputError:
        return said
    point = ridge_of(case.gpu, default_dtype(case.gpu))
    value = table[2].intensity
    return f"the textbook's attention, {value:.1f} FLOP/element, is {verdict(value, point)}; {said}"


def flops(asked: Asked) -> Explained:
    case = asked.at(batch=8)
    plan = case.setting.plan(case.prompt_step)
    sums = {"S": 0, "U": 0, "G": 0}
    for op in ops(plan):
        scores = isinstance(op.work, Attend)
        sums["S" if scores else "U" if op.name == "lm_head" else "G"] += op.matmul_flops
    letters = (
        Letter("G", sums["G"], "matrices of the layers", "FLOP"),
        Letter("S", sums["S"], "scores and values, the causal half", "FLOP"),
        Letter("U", sums["U"], "head, of the last position of each prompt", "FLOP"),
    )
    total = sum(sums.values())
    rule = 2 * case.model.active_parameters * case.batch * case.tokens
    longer = case.long(4 * case.tokens).prefill_cost().matmul_flops
    return Explained(
        case,
        summed(letters),
        letters,
        total,
        "FLOP",
        "seed 001, section 2; seed ledger, pre.model; Kaplan et al., arXiv 2001.08361, section 2.1",
        bill=(Line("matrix FLOPs of the prompt", "FLOP", total, longer),),
        sides=("this prompt", "four times as long"),
        differs=f"the rule 2·P·tokens gives {si(rule, 'FLOP')}; attention is {percent(sums['S'] / total)} "
        "of it, so four times the prompt are not 16 times the FLOPs: only scores grow so",
        commands=(
            case.command(
                "ops",
                "--phase",
                "prefill",
                "--seq",
                case.tokens,
                "--batch",
                case.batch,
            ),
        ),
    )


def bounded(case: Case, step: Step, cost: Cost) -> tuple[str, tuple[Letter, ...]]:
    """The bound of a step in letters: max(F/P, (W + C)/β)."""
    plan = case.setting.plan(step)
    moved = compulsory(plan, ops(plan))
    letters = (
        Letter("F", cost.matmul_flops, "FLOPs of the matrix products", "FLOP"),
        Letter(
            "P",
            cost.matmul_flops / cost.compute_s,
            f"dense peak of {case.gpu.title} in their types",
            "FLOP/s",
        ),
        Letter("W", moved.weights, "weights, each read once", "bytes"),
        Letter("C", moved.cached, "cache rows and states, each touched once", "bytes"),
        Letter("β", case.gpu.bandwidth, "bandwidth, 10^9 to a GB", "B/s"),
    )
    return "max(F/P, (W + C)/β)", letters


def bound(asked: Asked) -> Explained:
    case = asked.at(batch=8)
    cost = case.decode_cost()
    formula, letters = bounded(case, case.decode_step, cost)
    return Explained(
        case,
        formula,
        letters,
        cost.bound,
        "s",
        f"{ROOFLINE}; seed ledger, dec.model",
        differs=f"nothing can beat it from cold memory, and no engine reaches it: {three_times(cost)}",
        commands=(_ops(case),),
    )


def floor(asked: Asked) -> Explained:
    case = asked.at(batch=8)
    each: dict[str, float] = {}
    for op in ops(case.setting.plan(case.decode_step)):
        each[op.name] = each.get(op.name, 0.0) + op.count * floor_s(op.work, case.gpu)
    letters = tuple(
        Letter(name, s, "longest of products, vector work and bytes", "s") for name, s in each.items()
    )
    cost = case.decode_cost()
    return Explained(
        case,
        summed(letters),
        letters,
        cost.floor,
        "s",
        "the bound kernel by kernel: Σ max(matmul/P, vector/V, bytes/β); seed ledger, dec.model",
        differs=f"a bound lets all kernels overlap, a floor none of them: {three_times(cost)}",
        commands=(_ops(case),),
    )


def expected(asked: Asked) -> Explained:
    case = asked.at(batch=8)
    clock = case.setting.clock
    if clock is None:
        raise InputError("explain expected: with --calibration none nothing is expected")
    each: dict[str, float] = {}
    built = ops(case.setting.plan(case.decode_step))
    for op, time in zip(built, clock.each(built), strict=True):
        each[op.name] = each.get(op.name, 0.0) + time.seconds
    letters = tuple(Letter(name, s, "its kernels by the time model", "s") for name, s in each.items())
    cost = case.decode_cost()
    return Explained(
        case,
        summed(letters),
        letters,
        cost.best,
        "s",
        "the kernel-time model (docs/times.md) with the GPU's calibration",
        differs=f"{three_times(cost)}; the host's time between kernels is not in it",
        commands=(_ops(case),),
    )


def _ops(case: Case) -> str:
    args = ("--phase", "decode", "--seq", case.tokens, "--batch", case.batch)
    return case.command("ops", *args)


def mfu(asked: Asked) -> Explained:
    case = asked.at(batch=8)
    cost = case.prefill_cost()
    letters = (
        Letter("F", cost.matmul_flops, "FLOPs of the matrix products", "FLOP"),
        Letter("P", cost.matmul_flops / cost.compute_s, "dense peak in their types", "FLOP/s"),
        Letter("t", cost.best, _which(cost), "s"),
    )
    return Explained(
        case,
        "F / (P·t)",
        letters,
        cost.mfu,
        "share",
        "PaLM, arXiv 2204.02311, section 4.1",
        bill=(
            Line("MFU", "share", cost.mfu, case.decode_cost().mfu),
            Line("MBU", "share", cost.mbu, case.decode_cost().mbu),
        ),
        sides=("prefill", "decode step"),
        differs="peaks are dense: against a datasheet's sparse peak it is half; a decode step's MFU is "
        "low because it waits for memory, and MBU judges it",
        commands=(_request(case),),
    )


def mbu(asked: Asked) -> Explained:
    case = asked.at(batch=8)
    cost = case.decode_cost()
    plan = case.setting.plan(case.decode_step)
    moved = compulsory(plan, ops(plan))
    letters = (
        Letter("W", moved.weights, "weights, each read once", "bytes"),
        Letter("C", moved.cached, "cache rows and states touched", "bytes"),
        Letter("β", case.gpu.bandwidth, "bandwidth, 10^9 to a GB", "B/s"),
        Letter("t", cost.best, _which(cost), "s"),
    )
    return Explained(
        case,
        "(W + C) / (β·t)",
        letters,
        cost.mbu,
        "share",
        'Databricks, "LLM Inference Performance Engineering: Best Practices" (model bandwidth utilization)',
        differs=f"of all parameters, the input table's are not read; {seconds(cost.best)} is of kernels "
        "alone, and an engine's host comes on top",
        commands=(_request(case),),
    )


def _which(cost: Cost) -> str:
    return (
        f"the floor: {seconds(cost.floor)}" if cost.expected is None else f"expected time, {cost.confidence}"
    )


def _request(case: Case) -> str:
    args = ("--prompt", case.tokens, "--gen", case.gen, "--batch", case.batch)
    return case.command("request", *args)
