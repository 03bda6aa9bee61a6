"""Structured pruning: the shapes of Sheared LLaMA, what follows from what is kept, 2:4 on the roofline."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infercost import InputError
from infercost.costmodel.compression import Kept, pruned
from infercost.costmodel.distillation import (
    compute_bill,
    repaid_after,
    soft_label_bytes,
    teaching_flops,
    training_flops,
)
from infercost.costmodel.kv import cache_bill
from infercost.costmodel.op import Gemm, Op
from infercost.costmodel.request import Request
from infercost.costmodel.roofline import floor_s, op_verdict
from infercost.costmodel.setting import Setting, step_cost
from infercost.costmodel.step import Run
from infercost.hardware.catalogue import load_gpu
from infercost.models.attention import Attention
from infercost.models.catalogue import load_model
from infercost.models.formats import find_format
from infercost.models.recipes import find_recipe
from infercost.models.spec import Model

LLAMA = "llama-2-7b"


def llama_parameters(hidden: int, layers: int, ffn: int, heads: int) -> int:
    """Tables and head, q k v o, gate up down, the norms: counted here by hand."""
    matrices = 4 * hidden * heads * 128 + 3 * hidden * ffn + 2 * hidden
    return 2 * 32000 * hidden + layers * matrices + hidden


@pytest.mark.parametrize(
    ("kept", "wanted"),
    [
        # princeton-nlp/LLM-Shearing, configs/llama2/7b.yaml (target_model) and 1.3b.yaml.
        (Kept(hidden=2560, heads=20, ffn=6912), 2_701_560_320),
        (Kept(hidden=2048, heads=16, ffn=5504, layers=24), 1_345_423_360),
    ],
)
def test_sheared_llama(kept: Kept, wanted: int) -> None:
    small = pruned(load_model(LLAMA), kept)
    assert small.parameters == wanted
    assert wanted == llama_parameters(kept.hidden or 0, kept.layers or 32, kept.ffn or 0, kept.heads or 0)


@settings(max_examples=40, deadline=None)
@given(
    layers=st.integers(1, 32),
    heads=st.integers(1, 32),
    ffn=st.integers(1, 11008),
    hidden=st.integers(1, 4096),
)
def test_any_part_of_a_llama(layers: int, heads: int, ffn: int, hidden: int) -> None:
    whole = load_model(LLAMA)
    small = pruned(whole, Kept(layers, heads, None, ffn, None, hidden))
    assert small.parameters == llama_parameters(hidden, layers, ffn, heads) <= whole.parameters
    cached = [cache_bill(each, 100, 1, find_format("fp16")).logical_bytes for each in (small, whole)]
    assert cached[0] * 32 * 32 == cached[1] * layers * heads


def attention_of(model: Model) -> Attention:
    return next(block for block in model.layers[0].blocks if isinstance(block, Attention))


def test_kv_heads_follow_only_where_each_query_has_its_own() -> None:
    mha = attention_of(pruned(load_model(LLAMA), Kept(heads=16)))
    assert (mha.heads, mha.kv_heads, mha.head_dim) == (16, 16, 128)
    gqa = attention_of(pruned(load_model("llama-3-8b"), Kept(heads=16)))
    assert (gqa.heads, gqa.kv_heads) == (16, 8)
    both = attention_of(pruned(load_model("llama-3-8b"), Kept(heads=12, kv_heads=4)))
    assert (both.heads, both.kv_heads) == (12, 4)


def test_a_half_of_the_layers_is_a_half_of_a_step() -> None:
    """Structured pruning takes FLOPs and bytes with it: seed ledger, "Pruning"."""
    whole, half = load_model("llama-7b"), pruned(load_model("llama-7b"), Kept(layers=16))
    step = Request(1024, 1).prefill()
    gpu = load_gpu("a100")
    flops = [step_cost(Setting(each, Run(), gpu), step).matmul_flops for each in (whole, half)]
    head = 2 * 4096 * 32000
    assert flops[0] - head == 2 * (flops[1] - head)


def test_what_is_kept_of_everything_is_the_model_itself() -> None:
    model = load_model("jamba-v0.1")
    assert pruned(model, Kept()) is model
    same = pruned(model, Kept(layers=32, heads=32, hidden=4096))
    assert same.layers == model.layers
    assert same.parameters == model.parameters


@pytest.mark.parametrize(
    ("model", "kept", "said"),
    [
        (LLAMA, Kept(layers=33), "33 layers cannot be kept of llama-2-7b's 32"),
        (LLAMA, Kept(layers=0), "0 layers cannot be kept"),
        (LLAMA, Kept(experts=4), "has no experts to prune"),
        ("mamba-130m", Kept(heads=4), "has no heads to prune"),
        ("llama-3-8b", Kept(heads=12), "kv_heads must divide"),
        ("mixtral-8x7b", Kept(experts=1), "top_k 2 is more than count 1"),
        ("whisper-large-v3", Kept(hidden=1024), "it has an encoder"),
    ],
)
def test_what_cannot_be_kept(model: str, kept: Kept, said: str) -> None:
    with pytest.raises(InputError, match=said):
        pruned(load_model(model), kept)


def test_two_four_doubles_the_peak_and_moves_the_ridge() -> None:
    """prune.24: 9/16 of the bytes; ridge 153 to 306 of the dense product. The T4 has no such units."""
    a100, t4 = load_gpu("a100"), load_gpu("t4")
    dense = Gemm(1 << 20, 4096, 4096, 2 * 4096**2, "fp16", stored="fp16")
    sparse = Gemm(1 << 20, 4096, 4096, 9 * 4096**2 // 8, "fp16", stored="fp16-2:4")
    assert floor_s(sparse, a100) == pytest.approx(floor_s(dense, a100) / 2)
    assert floor_s(sparse, t4) == pytest.approx(floor_s(dense, t4))
    assert sparse.matmul_flops == dense.matmul_flops
    # At 128 rows 120.5 FLOP/byte dense, under a ridge of 142.5 to 153; 204.8 sparse, under 285 to 306.
    few = [
        Op("decode", "x", Gemm(128, 4096, 4096, w.weight_bytes, "fp16", stored=w.stored), 1)
        for w in (dense, sparse)
    ]
    assert [op_verdict(op, a100) for op in few] == ["near the ridge (below)", "memory-bound"]


def test_no_sparse_kernel_was_measured() -> None:
    from infercost.cli.calibrations import clock_of

    gpu = load_gpu("a100")
    for name in ("fp16-2:4", "fp16-bitmap-0.6"):
        run = Run(find_recipe(name))
        cost = step_cost(
            Setting(load_model("llama-7b"), run, gpu, clock=clock_of("auto", gpu)), Request(64, 1).prefill()
        )
        assert cost.confidence is not None
        assert cost.confidence.kind == "assumed"
        assert cost.bound <= cost.floor <= cost.expected


def test_the_training_bill() -> None:
    """prune.sheared: 6 x 2.7e9 x 50e9; distil: 2 x 70e9 over 6 x 7e9."""
    flops = training_flops(2.7e9, 50e9)
    assert flops == 8.1e20
    bill = compute_bill(flops, load_gpu("a100"), 0.4, 2.0)
    assert bill.gpu_hours == pytest.approx(1803, abs=0.5)
    assert bill.usd == pytest.approx(2 * bill.gpu_hours)
    assert compute_bill(flops, load_gpu("a100"), 0.4, None).usd is None
    assert teaching_flops(70e9, 1) / training_flops(7e9, 1) == pytest.approx(10 / 3)


def test_soft_labels() -> None:
    """V x 2 bytes; the top k with 16-bit indexes, 32-bit ones beyond 65,536 words."""
    assert soft_label_bytes(32000) == 64_000
    assert soft_label_bytes(32000, 10) == 10 * 4
    assert soft_label_bytes(65536, 10) == 10 * 4
    assert soft_label_bytes(65537, 10) == 10 * 6


def test_when_training_is_repaid() -> None:
    assert repaid_after(100.0, 3.0, 1.0) == 50
    assert repaid_after(100.0, 1.0, 1.0) is None
    assert repaid_after(None, 3.0, 1.0) is None
