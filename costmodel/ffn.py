"""Feed-forward blocks: a dense MLP, and experts of which only the touched ones are read."""

from __future__ import annotations

from ..models.ffn import Dense, Experts, Projections
from ..models.tensor import Tensor
from .arith import least
from .build import ACTIVATION_FLOPS, GATE_FLOPS, Builder, by_name
from .op import Gather, Gemm, GroupedGemm, Number, whole


def expected_distinct(total: int, top_k: int, tokens: Number, skew: float = 0.0) -> Number:
    """Expected distinct experts that `tokens` tokens touch: E·(1 - (1 - k/E)^tokens).

    With `skew` s > 0, expert r is wanted in proportion to r^-s (Zipf) and the sum runs over
    experts: Σ 1 - (1 - q_r)^tokens, where the q_r are its chances to be among a token's top_k
    (they sum to k, none above 1). An expectation over random routing, not a count.
    Source: vLLM PR 54228; seed cases 089 and 090.
    """
    if skew == 0 or total == top_k:
        return total * (1 - (1 - top_k / total) ** tokens)
    return sum(1 - (1 - q) ** tokens for q in inclusion_chances(total, top_k, skew))


def local_distinct(block: Experts, tokens: Number, skew: float = 0.0) -> Number:
    """Expected distinct experts of those this rank holds: all of them off one rank, its share on one."""
    total = block.total or block.count
    return expected_distinct(total, block.top_k, tokens, skew) * block.count / total


def inclusion_chances(total: int, top_k: int, skew: float) -> list[float]:
    """Chance of each expert to be chosen by a token: proportional to r^-skew, capped at 1."""
    weights = [(rank + 1) ** -skew for rank in range(total)]
    left, certain, scale = sum(weights), 0, 0.0
    while certain < top_k:
        scale = (top_k - certain) / left
        if weights[certain] * scale <= 1:
            break
        left -= weights[certain]
        certain += 1
    else:
        scale = 0.0
    return [1.0] * certain + [weight * scale for weight in weights[certain:]]


def dense_ops(b: Builder, block: Dense, prefix: str = "") -> None:
    """Gate and up in one GEMM (two matrices when not gated), the activation, down."""
    tokens = b.step.encoder_tokens if prefix else b.step.tokens
    t = by_name(block.tensors(b.hidden))
    _mlp(b, t, block.width, block.gated, tokens, prefix)
    if block.mixed:
        b.gemm("receptance", tokens, [t["receptance"]], [t["mix"]])
        b.pointwise("mix", tokens * b.hidden, 2, 1, GATE_FLOPS)


def _mlp(b: Builder, t: dict[str, Tensor], width: int, gated: bool, tokens: Number, prefix: str = "") -> None:
    into = [t[n] for n in ("gate", "up") if n in t]
    name = "gate_up" if gated else "up"
    b.gemm(f"{prefix}{name}", tokens, into, [t["up_bias"]] if "up_bias" in t else [])
    activation(b, tokens * width, gated, prefix)
    b.gemm(f"{prefix}down", tokens, [t["down"]], [t["down_bias"]] if "down_bias" in t else [])


def activation(b: Builder, values: Number, gated: bool, prefix: str = "") -> None:
    """SiLU(g)·u in one kernel (two without fusion), or the activation alone."""
    if not gated:
        b.pointwise(f"{prefix}activation", values, 1, 1, ACTIVATION_FLOPS)
    elif b.run.fusion == "none":
        b.pointwise(f"{prefix}silu", values, 1, 1, ACTIVATION_FLOPS)
        b.pointwise(f"{prefix}mul", values, 2, 1, GATE_FLOPS - ACTIVATION_FLOPS)
    else:
        b.pointwise(f"{prefix}silu_mul", values, 2, 1, GATE_FLOPS)


def projection_ops(b: Builder, block: Projections) -> None:
    """One GEMM a matrix; vectors are read with the first of them, or alone."""
    tokens = b.step.tokens
    t = by_name(block.tensors(b.hidden))
    loose = [t["vectors"]] if "vectors" in t else []
    for index in range(len(block.matrices())):
        matrix = t[f"projection_{index}"]
        biases = [t[name] for name in (f"projection_{index}_bias",) if name in t]
        b.gemm("projection", tokens, [matrix], [*biases, *loose], matrix.copies)
        loose = []
    for inner, outer, copies in block.products():
        math = b.plan.activation
        b.add("projection", Gemm(tokens, inner, outer, 0, math, b.activation_bytes, batch=copies))
    if loose:
        b.add("vectors", Gather(1, 0, b.weight_bytes(loose)))


def expert_ops(b: Builder, block: Experts) -> None:
    """Router, grouped GEMMs over the expected distinct experts, combination, shared experts.

    On one rank of an expert-parallel group the experts are the local ones, `block.total` all of
    them, and `tokens` those of the whole group: see `costmodel.parallel`.
    """
    tokens = b.step.tokens
    every = block.tensors(b.hidden)
    t = by_name(tensor for tensor in every if tensor.component == "experts")
    router = by_name(tensor for tensor in every if tensor.component == "router")
    total = block.total or block.count
    seen = tokens * b.run.expert_ranks
    b.gemm("router", tokens, [router["router"]], [router[n] for n in ("router_bias",) if n in router])
    b.pointwise("route", tokens * total, 1, 0, ACTIVATION_FLOPS)
    distinct = local_distinct(block, seen, b.run.skew)
    routed = seen * block.top_k
    rows = routed if block.count == total else whole(routed * block.count / total)

    def grouped(name: str, input_rows: Number, matrices: list[Tensor], others: list[str]) -> None:
        one = [x._replace(copies=1) for x in matrices] + [t[n]._replace(copies=1) for n in others if n in t]
        outer = sum(matrix.rows for matrix in matrices)
        work = GroupedGemm(
            rows,
            input_rows,
            matrices[0].cols,
            outer,
            distinct,
            b.weight_bytes(one),
            b.math(matrices[0]),
            b.activation_bytes,
            b.stored(matrices[0]),
        )
        b.add(name, work)

    into = [t[n] for n in ("gate", "up") if n in t]
    arriving = least(rows, seen)
    if b.run.fusion == "none" and block.gated:
        grouped("experts.gate", arriving, [t["gate"]], [])
        into = [t["up"]]
    grouped("experts.gate_up" if len(into) > 1 else "experts.up", arriving, into, ["up_bias"])
    activation(b, rows * block.width, block.gated, "experts.")
    grouped("experts.down", rows, [t["down"]], ["down_bias"])
    b.pointwise("combine", tokens * b.hidden, block.top_k, 1, 2 * block.top_k)
    if block.shared:
        shared = by_name(tensor for tensor in every if tensor.component == "shared_experts")
        _mlp(b, shared, block.shared_total_width, block.gated, tokens, "shared.")
        if block.shared_gate:
            b.gemm("shared.gate", tokens, [shared["shared_gate"]], [])
            b.pointwise("shared.mix", tokens * b.hidden, 2, 1, 2)
