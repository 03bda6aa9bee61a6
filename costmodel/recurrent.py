"""Mixers with a fixed state: state space, linear attention and gated linear recurrences.

Scan FLOPs depend on the algorithm; what is counted here is the recurrent form, token by token,
which is what a decode step runs: a chunked prefill kernel does more of it on matrix units.
"""

from __future__ import annotations

from ..models.cache import CacheSpec
from ..models.recurrent import LinearAttention, Recurrent, ShortConvolution, StateSpace
from ..models.tensor import Tensor
from .build import GATE_FLOPS, NORM_FLOPS, Builder, by_name
from .op import Scan

MAMBA_FLOPS = 7
"""Per channel and state: dt·A, its exponential, B·(dt·x), the decay, the add (1 each), C·h (2).
Source: Mamba, arXiv 2312.00752, section 3.3 in its recurrent form."""
MAMBA2_FLOPS = 5
"""Per channel and state with one decay a head: B·(dt·x), the decay, the add (1 each), C·h (2).
Source: Mamba-2, arXiv 2405.21060, section 3."""
DELTA_FLOPS = 7
"""Per key and value pair: the decay (1), S·k (2), the rank-one correction and its add (2), S·q (2).
Source: Gated DeltaNet, arXiv 2412.06464, section 3."""
LIGHTNING_FLOPS = 5
"""Per key and value pair: the decay, the outer product, its add (1 each), S·q (2).
Source: arXiv 2501.08313, section 2.2."""
RWKV_FLOPS = 20
"""Per channel: two exponentials' worth of a stable running average. Source: arXiv 2305.13048,
section 3.1 and appendix D."""
RGLRU_FLOPS = 12
"""Per channel: two sigmoids, the power of the decay, the gated update. Source: arXiv 2402.19427."""


def _scan(
    b: Builder,
    name: str,
    width: int,
    out_width: int,
    flops: int,
    cache: CacheSpec,
    state: str,
    weights: list[Tensor],
) -> None:
    """A recurrence over every token; the part of the state called `state` goes in and out once."""
    size = sum(part.bytes(b.activation_bytes) for part in cache.state if part.name == state)
    sequences = sum(segment.count for segment in b.step.segments)
    weight = b.weight_bytes(weights)
    tokens = b.step.tokens
    work = Scan(name, sequences, tokens, width, out_width, flops, size, weight, b.activation_bytes)
    b.add(name, work)


def _convolution(b: Builder, channels: int, kernel: int, cache: CacheSpec, weights: list[Tensor]) -> None:
    _scan(b, "conv", channels, channels, 2 * kernel * channels, cache, "conv", weights)


def state_space_ops(b: Builder, block: StateSpace) -> None:
    """In-projection, convolution, (dt, B, C of Mamba), scan, gate, out-projection."""
    t, cache, tokens = by_name(block.tensors(b.hidden)), block.caches()[0], b.step.tokens
    b.gemm("in_proj", tokens, [t["in"]], [t[n] for n in ("in_bias",) if n in t])
    conv = [t[n] for n in ("conv", "conv_bias") if n in t]
    _convolution(b, block.conv_channels, block.conv_kernel, cache, conv)
    inner, state = block.inner, block.state
    if block.heads is None:
        rank = block.dt_rank or 0
        b.gemm("x_proj", tokens, [t["x"]], [])
        if block.inner_norms:
            norms = [t["dt_norm"], t["bc_norm"]]
            b.pointwise("dt_bc_norm", tokens * (rank + 2 * state), 1, 1, NORM_FLOPS, norms)
        b.gemm("dt_proj", tokens, [t["dt"]], [t["dt_bias"]])
        flops = MAMBA_FLOPS * inner * state + (2 + GATE_FLOPS) * inner
        width = 3 * inner + 2 * state
        _scan(b, "scan", width, inner, flops, cache, "recurrent", [t["a_log"], t["skip"]])
    else:
        flops = MAMBA2_FLOPS * inner * state + 2 * inner
        weights = [t["a_log"], t["skip"], t["dt_bias"]]
        width = block.conv_channels + block.heads
        _scan(b, "scan", width, inner, flops, cache, "recurrent", weights)
        b.pointwise("gate_norm", tokens * inner, 2, 1, NORM_FLOPS + GATE_FLOPS, [t["gate_norm"]])
    b.gemm("out_proj", tokens, [t["out"]], [t[n] for n in ("out_bias",) if n in t])


def linear_attention_ops(b: Builder, block: LinearAttention) -> None:
    """Projections, (convolution), the matrix-state recurrence, (norm and gate), out-projection."""
    t, cache, tokens = by_name(block.tensors(b.hidden)), block.caches()[0], b.step.tokens
    pairs = block.value_heads * block.key_dim * block.value_dim
    width = 2 * block.keys + block.values
    if block.kind == "gated_delta":
        b.gemm("in_proj", tokens, [t["in"], t["ba"]], [])
        _convolution(b, block.conv_channels, block.conv_kernel or 1, cache, [t["conv"]])
        weights = [t["a_log"], t["dt_bias"]]
        width += 2 * block.value_heads
        _scan(b, "delta_rule", width, block.values, DELTA_FLOPS * pairs, cache, "recurrent", weights)
        flops = NORM_FLOPS + GATE_FLOPS
        b.pointwise("gate_norm", tokens * block.values, 2, 1, flops, [t["gate_norm"]])
    elif block.kind == "lightning":
        b.gemm("in_proj", tokens, [t["in"], t["gate"]], [])
        _scan(b, "lightning", width, block.values, LIGHTNING_FLOPS * pairs, cache, "recurrent", [])
        flops = NORM_FLOPS + GATE_FLOPS
        b.pointwise("gate_norm", tokens * block.values, 2, 1, flops, [t["out_norm"]])
    else:
        b.gemm("in_proj", tokens, [t["in"]], [])
        weights = [t["decay"], t["mix"]]
        _scan(b, "wkv", width, block.values, RWKV_FLOPS * block.keys, cache, "recurrent", weights)
        _scan(b, "token_shift", 0, 0, 0, cache, "shift", [])
    b.gemm("out_proj", tokens, [t["out"]], [])


def recurrent_ops(b: Builder, block: Recurrent) -> None:
    """Two projections in, convolution, block-diagonal gates, RG-LRU, gate, projection out."""
    t, cache, tokens = by_name(block.tensors(b.hidden)), block.caches()[0], b.step.tokens
    b.gemm("in_proj", tokens, [t["in"]], [t["in_bias"]])
    _convolution(b, block.width, block.conv_kernel, cache, [t["conv"], t["conv_bias"]])
    b.gemm("lru_gates", tokens, [t["gates"]], [t["gates_bias"]], t["gates"].copies)
    flops = RGLRU_FLOPS * block.width
    _scan(b, "rg_lru", 3 * block.width, block.width, flops, cache, "recurrent", [t["decay"]])
    b.pointwise("lru_gate", tokens * block.width, 2, 1, GATE_FLOPS)
    b.gemm("out_proj", tokens, [t["out"]], [t["out_bias"]])


def short_convolution_ops(b: Builder, block: ShortConvolution) -> None:
    """B, C and x from one projection; B·x, the convolution, C times it; projection out."""
    t, cache, tokens = by_name(block.tensors(b.hidden)), block.caches()[0], b.step.tokens
    b.gemm("in_proj", tokens, [t["in"]], [t[n] for n in ("in_bias",) if n in t])
    b.pointwise("conv_gate", tokens * block.width, 2, 1, 1, count=2)
    weights = [t[n] for n in ("conv", "conv_bias") if n in t]
    _convolution(b, block.width, block.kernel, cache, weights)
    b.gemm("out_proj", tokens, [t["out"]], [t[n] for n in ("out_bias",) if n in t])
