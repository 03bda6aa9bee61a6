"""Every mixer's steps counted by hand, on small numbers: FLOPs, bytes by class, what is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infercost.costmodel.forward import ops
from infercost.costmodel.kv import allocate, cache_bill
from infercost.costmodel.op import Op
from infercost.costmodel.roofline import bound_s, floor_s, step_floor_s
from infercost.costmodel.step import Plan, Run, decode, prefill
from infercost.hardware.catalogue import load_gpu
from infercost.models.attention import Attention, CrossAttention, LatentAttention
from infercost.models.block import Block
from infercost.models.catalogue import load_model
from infercost.models.ffn import Dense
from infercost.models.formats import find_format
from infercost.models.recipes import find_recipe
from infercost.models.recurrent import LinearAttention, Recurrent, ShortConvolution, StateSpace
from infercost.models.spec import Encoder, Layer, Model

FP16 = find_format("fp16")
FFN = Dense(12)


def model(*blocks: Block, hidden: int = 16, encoder: Encoder | None = None) -> Model:
    return Model("small", hidden, 50, (Layer(blocks),), "made up for this test", encoder=encoder)


def named(plan: Plan) -> dict[str, Op]:
    return {op.name: op for op in ops(plan)}


def test_values_narrower_than_keys() -> None:
    """4 query heads over 2 KV heads, K of 6 and V of 10: projections, rows kept and products follow each."""
    block = Attention(4, 2, 6, v_head_dim=10)
    small = model(block, FFN)
    found = named(Plan(small, decode(3, 7)))
    assert found["qkv"].matmul_flops == 2 * 3 * 16 * (4 * 6 + 2 * 6 + 2 * 10)
    assert found["kv_append"].bytes.kv == 3 * 2 * (6 + 10) * 2
    assert found["attention"].matmul_flops == 2 * 3 * 4 * 7 * (6 + 10)
    assert found["attention"].bytes.kv == 3 * 7 * 2 * (6 + 10) * 2
    assert found["attention"].bytes.activations == 3 * 4 * (6 + 10) * 2
    assert found["o_proj"].matmul_flops == 2 * 3 * 4 * 10 * 16
    assert cache_bill(small, 7, 3, FP16).logical_bytes == 3 * 7 * 2 * (6 + 10) * 2


def test_scaled_rows() -> None:
    """fp8-row: a byte a value and 4 bytes of scale for each row of K and of V."""
    small = model(Attention(4, 2, 6), FFN)
    row = find_format("fp8-row")
    assert cache_bill(small, 7, 3, row).logical_bytes == 3 * 7 * 2 * 2 * (6 + 4)
    found = named(Plan(small, decode(3, 7), Run(kv=row)))
    assert found["attention"].bytes.kv == 3 * 7 * 2 * 2 * (6 + 4)


def test_shared_rows_are_kept_once() -> None:
    own, borrowed = Attention(4, 2, 8), Attention(4, 2, 8, shared_from=0)
    both = Model("small", 16, 50, (Layer((own, FFN)), Layer((borrowed, FFN))), "made up")
    assert cache_bill(both, 9, 2, FP16).logical_bytes == 2 * 9 * 2 * 2 * 8 * 2


INDEXED = LatentAttention(
    *(4, 8, 6, 2, 5, 10),
    index_heads=3,
    index_dim=4,
    index_top_k=5,
)


def test_an_indexer_scores_every_key_and_attention_reads_the_chosen() -> None:
    """2 sequences at a context of 20, of which 5 tokens are attended; the indexer keeps 4 values a token."""
    small = model(INDEXED, FFN)
    found = named(Plan(small, decode(2, 20), Run(mla="absorbed")))
    assert found["index_q"].matmul_flops == 2 * 2 * 10 * (3 * 4)
    assert found["index_k"].matmul_flops == 2 * 2 * 16 * (4 + 3)
    assert found["attention.absorbed"].matmul_flops == 2 * 2 * 4 * 5 * (10 + 8)
    assert found["attention.absorbed"].bytes.kv == 2 * 5 * 10 * 2
    assert found["index_scores"].bytes.kv == 2 * 20 * 4 * 2
    assert cache_bill(small, 20, 2, FP16).logical_bytes == 2 * 20 * (10 + 4) * 2


@given(st.integers(1, 40), st.integers(1, 4), st.sampled_from(["absorbed", "expanded", "auto"]))
def test_the_bound_stays_below_the_floor_with_an_indexer(context: int, batch: int, mla: str) -> None:
    gpu = load_gpu("h100")
    for step in (decode(batch, context), prefill(batch, context)):
        plan = Plan(model(INDEXED, FFN), step, Run(mla=mla))
        built = ops(plan)
        assert bound_s(plan, built, gpu) <= step_floor_s(built, gpu) * (1 + 1e-12)


def test_cross_attention_projects_the_source_once() -> None:
    """2 sequences, 5 positions of a source 24 wide; 3 new tokens, then one token of a decode step."""
    block = CrossAttention(2, 2, 8, source_width=24)
    encoder = Encoder(24, (Layer((Attention(2, 2, 12, causal=False), Dense(8))),))
    small = model(Attention(2, 2, 8), block, FFN, encoder=encoder)
    first = named(Plan(small, prefill(2, 3, encoder=5)))
    assert first["cross_q"].matmul_flops == 2 * 2 * 3 * 16 * 16
    assert first["cross_kv"].matmul_flops == 2 * 2 * 5 * 24 * 32
    assert first["cross_append"].bytes.kv == 2 * 5 * 2 * 2 * 8 * 2
    assert first["cross_attention"].matmul_flops == 2 * 2 * 2 * 3 * 5 * 16
    assert first["cross_attention"].bytes.kv == 0, "just projected: activations"
    assert first["cross_attention"].bytes.activations == (2 * 3 * 2 * 16 + 2 * 5 * 2 * 16) * 2
    step = named(Plan(small, decode(2, 9, encoder=5)))
    assert "cross_kv" not in step
    assert step["cross_attention"].matmul_flops == 2 * 2 * 2 * 1 * 5 * 16
    assert step["cross_attention"].bytes.kv == 2 * 5 * 2 * 2 * 8 * 2


def test_mamba() -> None:
    """One Mamba layer of 32 channels x 4, step sizes through rank 3, 2 sequences of 5 tokens.

    A channel and state takes 7 FLOPs a token, the skip 2 and the gate's SiLU product 5 a channel; the
    state (fp32) goes in and out once a sequence, the convolution's 3 columns in 16 bit likewise.
    """
    small = model(StateSpace(32, 4, conv_kernel=4, dt_rank=3), FFN)
    found = named(Plan(small, prefill(2, 5)))
    assert found["in_proj"].matmul_flops == 2 * 10 * 16 * 64
    assert found["conv"].vector_flops == 10 * 2 * 4 * 32
    assert found["conv"].bytes.state == 2 * 2 * 32 * 3 * 2
    assert found["x_proj"].matmul_flops == 2 * 10 * 32 * (3 + 2 * 4)
    assert found["dt_proj"].matmul_flops == 2 * 10 * 3 * 32
    assert found["scan"].vector_flops == 10 * (7 * 32 * 4 + 7 * 32)
    assert found["scan"].bytes.state == 2 * 2 * 32 * 4 * 4
    assert found["scan"].bytes.activations == 10 * (3 * 32 + 2 * 4 + 32) * 2
    assert found["out_proj"].matmul_flops == 2 * 10 * 32 * 16
    assert cache_bill(small, 5, 2, FP16).logical_bytes == 2 * (32 * 3 * 2 + 32 * 4 * 4)


def test_gated_linear_recurrence() -> None:
    """RG-LRU of width 24 in 3 blocks of 8: two gates a block, 12 FLOPs a channel and token."""
    small = model(Recurrent(24, 3, 4), FFN)
    found = named(Plan(small, decode(5, 100)))
    assert found["in_proj"].matmul_flops == 2 * 5 * 16 * 48
    assert found["lru_gates"].matmul_flops == 2 * 5 * (2 * 3) * 8 * 8
    assert found["rg_lru"].vector_flops == 5 * 12 * 24
    assert found["rg_lru"].bytes.state == 2 * 5 * 24 * 4
    assert found["conv"].bytes.state == 2 * 5 * 24 * 3 * 2
    assert found["out_proj"].matmul_flops == 2 * 5 * 24 * 16


def test_lightning_attention() -> None:
    """3 heads with a state of 4 x 6 each: 5 FLOPs a pair and token, nothing that grows."""
    small = model(LinearAttention("lightning", 3, 3, 4, 6), FFN)
    found = named(Plan(small, decode(2, 50)))
    assert found["in_proj"].matmul_flops == 2 * 2 * 16 * (3 * (4 + 4 + 6) + 3 * 6)
    assert found["lightning"].vector_flops == 2 * 5 * 3 * 4 * 6
    assert found["lightning"].bytes.state == 2 * 2 * 3 * 4 * 6 * 4
    assert cache_bill(small, 50, 2, FP16).logical_bytes == 2 * 3 * 4 * 6 * 4


def test_rwkv() -> None:
    """16 channels with three fp32 numbers each, and the last input in 16 bit."""
    small = model(LinearAttention("rwkv", 1, 1, 16, 16), FFN)
    found = named(Plan(small, decode(2, 50)))
    assert found["in_proj"].matmul_flops == 2 * 2 * 16 * 3 * 16
    assert found["wkv"].vector_flops == 2 * 20 * 16
    assert found["wkv"].bytes.state == 2 * 2 * 3 * 16 * 4


def test_short_convolution() -> None:
    """LFM2: 3 projections of 16 channels, 3 taps, of which 2 columns are kept."""
    small = model(ShortConvolution(16, 3), FFN)
    found = named(Plan(small, decode(2, 50)))
    assert found["in_proj"].matmul_flops == 2 * 2 * 16 * 48
    assert found["conv"].vector_flops == 2 * 2 * 3 * 16
    assert found["conv"].bytes.state == 2 * 2 * 16 * 2 * 2
    assert found["conv_gate"].vector_flops == 2 * 2 * 16, "B·x before and C· after"
    assert cache_bill(small, 50, 2, FP16).logical_bytes == 2 * 16 * 2 * 2


def test_fusion_of_pointwise_kernels() -> None:
    """Alone, an add reads two and writes one; with the norm, two and two; ideal, nothing is left to move."""
    small = model(Attention(2, 2, 8), FFN)
    none = named(Plan(small, decode(3, 5), Run(fusion="none")))
    assert none["add"].bytes.activations == 2 * 3 * 16 * 3 * 2
    assert none["norm"].bytes.activations == 2 * 3 * 16 * 2 * 2
    engine = named(Plan(small, decode(3, 5)))
    assert engine["add_norm"].bytes.activations == 2 * 3 * 16 * 4 * 2
    by_fusion = [
        sum(op.bytes.total for op in ops(Plan(small, decode(3, 5), Run(fusion=fusion))))
        for fusion in ("none", "engine", "ideal")
    ]
    assert by_fusion[0] > by_fusion[1] > by_fusion[2]


def test_the_vector_units_can_be_the_roof() -> None:
    """A long scan on an H100: 7 FLOPs a channel and state beside 4 bytes of input: fp32 peak decides."""
    gpu = load_gpu("h100")
    scan = named(Plan(model(StateSpace(512, 64, 4, dt_rank=8), FFN), prefill(1, 4096)))["scan"]
    fp32 = gpu.peak("fp32")
    assert fp32 is not None
    assert floor_s(scan.work, gpu) == pytest.approx(scan.work.vector_flops / fp32)
    assert scan.work.bytes.total / gpu.bandwidth < floor_s(scan.work, gpu)


def test_allocators_with_windows_and_states() -> None:
    """A window of 10 and a state: pages hold the window, a static buffer at most the window."""
    windowed, mamba = Attention(2, 2, 8, window=10), StateSpace(32, 4, conv_kernel=4, dt_rank=3)
    layers = (Layer((windowed, FFN)), Layer((Attention(2, 2, 8), FFN)), Layer((mamba, FFN)))
    mixed = Model("small", 16, 50, layers, "made up")
    state, row = 32 * 3 * 2 + 32 * 4 * 4, 2 * 2 * 8 * 2
    used = (10 + 30) * row + state
    paged = allocate(mixed, "paged", 30, 1, FP16, block=16)
    assert paged.allocated_bytes == (16 + 32) * row + state
    assert paged.utilisation == used / paged.allocated_bytes
    assert paged.waste_max_bytes == 15 * 2 * row
    static = allocate(mixed, "static", 30, 1, FP16, reserved=100)
    assert static.allocated_bytes == (10 + 100) * row + state
    concat = allocate(mixed, "concat", 8, 1, FP16, prompt=5)
    assert concat.copied_bytes == 2 * 2 * row * (5 + 6)
    past_the_window = allocate(mixed, "concat", 14, 1, FP16, prompt=8)
    assert past_the_window.copied_bytes == 2 * row * ((8 + 9 + 10 + 10 + 10) + (8 + 9 + 10 + 11 + 12))


def test_the_capacity_is_the_tightest_known() -> None:
    assert load_gpu("a100-40g-sxm").memory.usable_bytes == load_gpu("a100-40g-sxm").capacity_bytes
    seen = load_gpu("a100")
    assert seen.memory.usable_bytes is None
    assert seen.memory.driver_mib is not None
    assert seen.capacity_bytes == seen.memory.driver_mib << 20


def test_layers_of_a_pattern_repeat() -> None:
    """`--layers` of a windowed model keeps its own order of layers."""
    gemma = load_model("gemma-3-27b").with_layers(12)
    assert [layer.caches()[0].window for layer in gemma.layers] == [1024] * 5 + [None] + [1024] * 5 + [None]


def test_quantised_weights_move_less_and_compute_as_much() -> None:
    small = load_model("llama-7b").with_layers(2)
    plain, packed = (
        ops(Plan(small, decode(4, 100), Run(recipe=find_recipe(name)))) for name in ("fp16", "bnb-nf4")
    )
    assert sum(op.matmul_flops for op in plain) == sum(op.matmul_flops for op in packed)
    down = [next(op for op in built if op.name == "down").bytes.weights for built in (plain, packed)]
    assert down == [2 * 11008 * 4096 * 2, 2 * (11008 * 4096 // 2 + 11008 * 4096 // 64 * 4)]
