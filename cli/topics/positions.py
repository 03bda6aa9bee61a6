"""Rotary positions, and what stretches them: a step of the same length costs the same, a longer one more."""

from __future__ import annotations

from ... import InputError
from ...costmodel import rope_scaling
from ...costmodel.forward import ops
from ...costmodel.op import Pointwise
from ...costmodel.roofline import totals
from ..text import count, number, percent
from .asked import Asked, Case
from .attention import attention_of
from .explained import Explained, Letter, Line, times


def rope(asked: Asked) -> Explained:
    case = asked.at()
    block = attention_of(case.model, "rope")
    built = ops(case.setting.plan(case.decode_step))
    turned = next((op.work for op in built if op.name == "rope"), None)
    if not isinstance(turned, Pointwise):
        raise InputError(f"explain rope: {case.model.name} rotates nothing")
    without = case.of(case.model.with_attention(rope_dim=0))
    before, after = (totals(ops(each.setting.plan(each.decode_step))) for each in (without, case))
    flops = [each.matmul_flops + each.vector_flops for each in (before, after)]
    letters = (
        Letter("M", case.batch, "new tokens"),
        Letter("Hq", block.heads * block.rotated, "values of their queries that turn"),
        Letter("Hk", block.kv_heads * block.rotated, "values of their keys that turn"),
    )
    return Explained(
        case,
        "3·M·(Hq + Hk)",
        letters,
        turned.vector_flops,
        "FLOP",
        "RoFormer, arXiv 2104.09864; seed 003; seed ledger, rope.cost",
        bill=(
            Line("FLOPs of a decode step", "FLOP", *flops),
            Line("bytes of all kernels", "bytes", before.bytes, after.bytes),
            Line("cache", "bytes", without.cache().logical_bytes, case.cache().logical_bytes),
            *times("decode step", without.decode_cost(), case.decode_cost()),
        ),
        sides=("without RoPE", "with RoPE"),
        differs=f"of a layer and step; {percent((flops[1] - flops[0]) / flops[0])} of a step's FLOPs: "
        "only the new token turns, cached keys are turned already, and fused into its neighbour it moves "
        "no byte. Seed 003's apply_rope multiplies (B, S, heads, D/2) by (S, D/2), which broadcasts over "
        "heads, not positions: it needs [None, :, None, :]; and Q, K must be transposed to (B, heads, S, "
        "D) before QK^T",
        commands=(case.command("ops", "--phase", "decode", "--seq", max(2, case.tokens)),),
    )


def pi(asked: Asked) -> Explained:
    case = asked.at(tokens=4096)
    attention_of(case.model, "pi")
    trained = _trained(case)
    reach = int(trained * case.scale)
    letters = (
        Letter("C", trained, "tokens it was trained on"),
        Letter("s", case.scale, "scale: position m becomes m/s"),
    )
    return _stretched(
        case,
        "C·s",
        letters,
        trained * case.scale,
        "tokens",
        "position interpolation, arXiv 2306.15595",
        f"angles of position m are those of m/{number(case.scale)}; {count(reach)} tokens are within what "
        "was trained",
    )


def ntk(asked: Asked) -> Explained:
    case = asked.at(tokens=4096)
    rotated = _rotated(case, "ntk")
    value = rope_scaling.ntk_base(case.rope_base, case.scale, rotated)
    longest = rope_scaling.longest_wavelength(case.rope_base, rotated)
    letters = (
        Letter("β", case.rope_base, "base of the angles (--rope-base: no sheet has it)"),
        Letter("s", case.scale, "scale"),
        Letter("d", rotated, "values of a head that turn"),
    )
    return _stretched(
        case,
        "β·s^(d/(d - 2))",
        letters,
        value,
        "",
        "NTK-aware scaling: YaRN, arXiv 2309.00071, section 3.1",
        f"the slowest pair turns once in {count(round(longest))} tokens and is stretched "
        f"{number(case.scale)} times, the fastest stays; dynamic NTK takes a new base for each length, "
        "which breaks keys that are cached turned",
    )


def yarn(asked: Asked) -> Explained:
    case = asked.at(tokens=4096)
    _rotated(case, "yarn")
    return _stretched(
        case,
        "0.1·ln(s) + 1",
        (Letter("s", case.scale, "scale"),),
        rope_scaling.yarn_mscale(case.scale),
        "",
        "YaRN, arXiv 2309.00071, section 3.4",
        "the factor on queries and keys, folded into the cosines and sines; slow pairs are interpolated, "
        "fast ones left alone; it asks for a short fine-tuning",
    )


def _rotated(case: Case, topic: str) -> int:
    rotated = attention_of(case.model, topic).rotated
    if rotated <= 2:
        raise InputError(
            f"explain {topic}: {case.model.name} rotates {rotated} values of a head; there is nothing to "
            "scale"
        )
    return rotated


def _trained(case: Case) -> int:
    return case.model.context or case.tokens


def _stretched(
    case: Case,
    formula: str,
    letters: tuple[Letter, ...],
    value: float,
    unit: str,
    source: str,
    how: str,
) -> Explained:
    """A scaling of RoPE: the same step costs the same, the longer reach its cache."""
    trained = _trained(case)
    short, far = case.long(trained), case.long(max(trained, int(trained * case.scale)))
    same = short.decode_cost()
    rows = totals(ops(short.setting.plan(short.decode_step)))
    step = rows.matmul_flops + rows.vector_flops
    return Explained(
        case,
        formula,
        letters,
        value,
        unit,
        f"{source}; seed 003; seed ledger, rope.scaling",
        bill=(
            Line("FLOPs of a decode step, same length", "FLOP", step, step),
            Line("reach", "tokens", short.tokens, far.tokens),
            Line(
                "cache of a sequence that long",
                "bytes",
                short.cache().logical_bytes,
                far.cache().logical_bytes,
            ),
            *times("decode step that far", same, far.decode_cost()),
        ),
        sides=("as trained", f"scale {number(case.scale)}"),
        differs=f"no FLOP and no byte more at the same length, the bill is the longer cache: {how}",
        commands=(
            case.command("kv", "--seq", f"{short.tokens},{far.tokens}", "--batch", case.batch),
            case.command("fit", "--seq", far.tokens),
        ),
    )
