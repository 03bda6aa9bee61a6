"""The vocabulary carries what comes later: each step here is counted by hand, on small numbers."""

from __future__ import annotations

from typing import Any

import pytest

from infercost.costmodel.forward import ops
from infercost.costmodel.op import Collective, Op
from infercost.costmodel.parallel import link_ops, shard
from infercost.costmodel.sharding import Parallel
from infercost.costmodel.step import Plan, Run, Segment, Step, decode
from infercost.models.attention import Attention, LatentAttention
from infercost.models.ffn import Dense, Experts
from infercost.models.recurrent import LinearAttention, StateSpace
from infercost.models.spec import Layer, Model


def model(*layers: Layer, hidden: int = 16, vocab: int = 50) -> Model:
    return Model("small", hidden, vocab, layers, "made up for this test")


def named(plan: Plan) -> dict[str, Op]:
    return {op.name: op for op in ops(plan)}


def test_mla_decode_absorbed() -> None:
    """3 sequences at a context of 7; 4 heads, latent 8 + 2 rotated, nope 6, V 5, query rank 10."""
    block = LatentAttention(4, kv_lora_rank=8, nope_dim=6, rope_dim=2, v_head_dim=5, q_lora_rank=10)
    found = named(Plan(model(Layer((block, Dense(12)))), decode(3, 7), Run(mla="absorbed")))
    assert found["q_kv_a"].matmul_flops == 2 * 3 * 16 * (10 + 10)
    assert found["q_b"].matmul_flops == 2 * 3 * 10 * (4 * 8)
    assert found["q_absorb"].matmul_flops == 2 * 3 * 4 * 6 * 8
    attention = found["attention.absorbed"]
    assert attention.matmul_flops == 2 * 3 * 4 * 7 * (10 + 8)
    assert attention.vector_flops == 4 * 3 * 4 * 7
    assert attention.bytes.kv == 3 * 7 * 10 * 2, "the latent row once: V is a slice of K"
    assert attention.bytes.activations == 3 * 4 * (10 + 8) * 2
    assert found["v_up"].matmul_flops == 2 * 3 * 4 * 8 * 5
    assert found["q_absorb"].bytes.weights + found["v_up"].bytes.weights == 4 * (6 + 5) * 8 * 2
    assert found["kv_append"].bytes.kv == 3 * 10 * 2
    assert found["o_proj"].matmul_flops == 2 * 3 * 4 * 5 * 16
    assert "kv_b" not in found


def test_mla_prefill_expanded() -> None:
    """1 sequence: 4 new tokens after 3; K and V are rebuilt for all 7 positions."""
    block = LatentAttention(2, kv_lora_rank=8, nope_dim=6, rope_dim=2, v_head_dim=5)
    step = Step("prefill", (Segment(1, 4, 3),))
    found = named(Plan(model(Layer((block, Dense(12)))), step, Run(mla="expanded")))
    assert found["kv_b"].matmul_flops == 2 * 7 * 8 * 2 * (6 + 5)
    assert found["latent_read"].bytes.kv == 3 * 10 * 2
    attention = found["attention.expanded"]
    assert attention.matmul_flops == 2 * 2 * (4 + 5 + 6 + 7) * (8 + 5)
    assert attention.bytes.kv == 0, "the rebuilt K and V are activations"
    assert attention.bytes.activations == (4 * 2 * (8 + 5) + 7 * 2 * (8 + 5)) * 2


def test_mla_chooses_the_cheaper_kernel() -> None:
    block = LatentAttention(128, kv_lora_rank=512, nope_dim=128, rope_dim=64, v_head_dim=128)
    big = model(Layer((block, Dense(64))), hidden=512)
    assert "attention.absorbed" in named(Plan(big, decode(8, 4096)))
    assert "attention.expanded" in named(Plan(big, Step("prefill", (Segment(1, 2048),))))


def test_moe_layer_under_expert_parallelism() -> None:
    """8 experts, top 2, on 4 ranks of 4 tokens each: 16 tokens meet at 2 local experts a rank."""
    block = Experts(count=8, top_k=2, width=6, shared=1)
    plan = Plan(model(Layer((Attention(2, 2, 8), block))), decode(4, 9))
    split = Parallel(ep=4)
    found = named(shard(plan, split))
    distinct = 2 * (1 - (1 - 2 / 8) ** 16)
    rows = 16 * 2 * 2 // 8
    gate_up, down = found["experts.gate_up"], found["experts.down"]
    assert gate_up.matmul_flops == 2 * rows * 16 * (2 * 6)
    assert gate_up.bytes.weights == pytest.approx(distinct * 2 * 6 * 16 * 2)
    assert gate_up.bytes.activations == rows * (16 + 12) * 2
    assert down.matmul_flops == 2 * rows * 6 * 16
    assert found["router"].matmul_flops == 2 * 4 * 16 * 8, "a rank routes its own tokens over all experts"
    assert found["shared.gate_up"].matmul_flops == 2 * 4 * 16 * 12
    links = link_ops(plan, split)
    assert [op.name for op in links] == ["dispatch", "combine"]
    for op in links:
        assert op.work == Collective("all_to_all", 4 * 16 * 2 * 2, 4)
        assert op.work.wire_bytes == 4 * 16 * 2 * 2 * 3 / 4


def test_tensor_parallel_layer() -> None:
    """8 heads and 2 KV heads over 4 ranks: 2 heads, and one KV head of which 2 ranks hold a copy."""
    plan = Plan(model(Layer((Attention(8, 2, 8), Dense(32)))), decode(3, 5))
    found = named(shard(plan, Parallel(tp=4)))
    assert found["qkv"].matmul_flops == 2 * 3 * 16 * (2 + 1 + 1) * 8
    assert found["attention"].bytes.kv == 3 * 5 * 2 * 8 * 2
    assert found["down"].matmul_flops == 2 * 3 * 8 * 16
    reduce, gather = link_ops(plan, Parallel(tp=4))
    assert (reduce.work.name, reduce.count) == ("all_reduce", 2 + 1)
    assert reduce.work.message_bytes == 3 * 16 * 2
    assert reduce.work.wire_bytes == 3 * 16 * 2 * 2 * 3 / 4
    assert gather.work.message_bytes == 3 * 50 * 2


def test_chunk_of_prefill_with_decodes_riding_along() -> None:
    """256 tokens of a prompt after its first 512, beside 8 decodes at a context of 1024."""
    chunk, riders = Segment(1, 256, 512, logits=0), Segment(8, 1, 1023)
    plan = Plan(model(Layer((Attention(4, 2, 8), Dense(32)))), Step("mixed", (chunk, riders)))
    got = ops(plan)
    qkv = next(op for op in got if op.name == "qkv")
    assert qkv.matmul_flops == 2 * (256 + 8) * 16 * (4 + 2 + 2) * 8, "one pass over the weights"
    first, second = (op for op in got if op.name == "attention")
    assert first.matmul_flops == 2 * 4 * (256 * 512 + 256 * 257 // 2) * 16
    assert first.bytes.kv == (512 + 256) * 2 * 2 * 8 * 2
    assert second.matmul_flops == 2 * 8 * 4 * 1024 * 16
    assert second.bytes.kv == 8 * 1024 * 2 * 2 * 8 * 2
    head = next(op for op in got if op.name == "lm_head")
    assert head.matmul_flops == 2 * 8 * 16 * 50, "logits for the decodes only"


def test_hybrid_model() -> None:
    """One Mamba-2, one gated-delta and one windowed layer: a state is read and written, rows are capped."""
    mamba = StateSpace(inner=32, state=4, conv_kernel=4, heads=8)
    delta = LinearAttention("gated_delta", 2, 4, 8, 8, conv_kernel=4)
    layers = (
        Layer((mamba,), norms=1),
        Layer((delta, Dense(32))),
        Layer((Attention(2, 2, 8, window=6), Dense(32))),
    )
    found = named(Plan(model(*layers), decode(3, 100)))
    assert found["scan"].bytes.state == 2 * 3 * 32 * 4 * 4
    assert found["scan"].vector_flops == 3 * (5 * 32 * 4 + 2 * 32)
    assert found["delta_rule"].bytes.state == 2 * 3 * 4 * 8 * 8 * 4
    assert found["delta_rule"].vector_flops == 3 * 7 * 4 * 8 * 8
    conv: list[Any] = [op for op in ops(Plan(model(*layers), decode(3, 100))) if op.name == "conv"]
    assert [op.bytes.state for op in conv] == [
        2 * 3 * (32 + 2 * 4) * 3 * 2,
        2 * 3 * (2 * 16 + 32) * 3 * 2,
    ]
    windowed = found["attention.w6"]
    assert windowed.bytes.kv == 3 * 6 * 2 * 2 * 8 * 2
    assert windowed.matmul_flops == 2 * 3 * 2 * 6 * 16


def test_speculative_verify() -> None:
    """4 sequences verify 4 drafted tokens and the one before: 5 new after 100, 5 logits each."""
    step = Step("verify", (Segment(4, 5, 100, logits=5),))
    found = named(Plan(model(Layer((Attention(2, 1, 8), Dense(32)))), step))
    pairs = 101 + 102 + 103 + 104 + 105
    assert found["attention"].matmul_flops == 2 * 4 * 2 * pairs * 16
    assert found["attention"].bytes.kv == 4 * 105 * 2 * 8 * 2, "the cache is read once for all five"
    assert found["lm_head"].matmul_flops == 2 * 20 * 16 * 50
    assert found["qkv"].matmul_flops == 2 * 20 * 16 * (2 + 1 + 1) * 8


def test_prefix_hit_and_ragged_batch() -> None:
    """A hit on 1,000 cached tokens prefills only the rest; lengths may differ within a step."""
    hit, short = Segment(1, 24, 1000), Segment(2, 10)
    got = ops(Plan(model(Layer((Attention(2, 2, 8), Dense(32)))), Step("prefill", (hit, short))))
    first, second = (op for op in got if op.name == "attention")
    assert first.matmul_flops == 2 * 2 * (24 * 1000 + 24 * 25 // 2) * 16
    assert second.matmul_flops == 2 * 2 * 2 * 55 * 16
    assert second.bytes.kv == 0, "a fresh prompt attends to what it just computed"


def test_shared_cache_stores_nothing() -> None:
    """A layer that reads another's cache projects queries only and appends nothing."""
    own, borrowed = Attention(4, 2, 8), Attention(4, 2, 8, shared_from=0)
    small = model(Layer((own, Dense(32))), Layer((borrowed, Dense(32))))
    got = ops(Plan(small, decode(1, 9)))
    assert [op.matmul_flops for op in got if op.name == "qkv"] == [2 * 16 * 64, 2 * 16 * 32]
    assert sum(op.count for op in got if op.name == "kv_append") == 1
    assert sum(op.count for op in got if op.name == "attention") == 2, "both read the rows"


def test_norms_are_fused_with_the_adds_there_are() -> None:
    """Two adds a layer: two fused norms, Gemma's other two alone; side by side there is one add of two."""
    blocks = (Attention(2, 2, 8), Dense(32))
    sandwich = named(Plan(model(Layer(blocks, norms=4)), decode(3, 5)))
    assert sandwich["add_norm"].count == sandwich["norm"].count == 2
    assert sandwich["add_norm"].work.bytes.activations == 3 * 16 * 4 * 2
    assert sandwich["norm"].work.bytes.activations == 3 * 16 * 2 * 2
    assert sandwich["norm"].work.vector_flops == 3 * 16 * 4
    side_by_side = named(Plan(model(Layer(blocks, norms=1, parallel=True)), decode(3, 5)))
    assert side_by_side["add_norm"].count == 1
    assert side_by_side["add_norm"].work.bytes.activations == 3 * 16 * (3 + 2) * 2


def test_a_token_is_read_once_for_all_its_experts() -> None:
    block = Experts(count=8, top_k=2, width=6)
    found = named(Plan(model(Layer((Attention(2, 2, 8), block))), decode(4, 9)))
    assert found["experts.gate_up"].bytes.activations == (4 * 16 + 4 * 2 * 12) * 2
    assert found["experts.down"].bytes.activations == 4 * 2 * (6 + 16) * 2
