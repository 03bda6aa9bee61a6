"""Sharding: what a rank holds, what does not divide, and sums over ranks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infercost import InputError
from infercost.costmodel.forward import ops
from infercost.costmodel.kv import cache_bill
from infercost.costmodel.parallel import link_ops, shard
from infercost.costmodel.roofline import totals
from infercost.costmodel.sharding import Parallel
from infercost.costmodel.step import Plan, Run, decode, prefill
from infercost.costmodel.weights import weight_bill
from infercost.models.attention import Attention
from infercost.models.catalogue import load_model
from infercost.models.dimensions import kv_heads_per_rank
from infercost.models.formats import find_format
from infercost.models.recipes import find_recipe


def test_listed_cases() -> None:
    """CASE-055: Qwen3-32B on 4 ranks keeps 65,536 bytes a token each; CASE-057: 8 KV heads on 32."""
    rank = shard(Plan(load_model("qwen3-32b"), decode(1, 10)), Parallel(tp=4)).model
    assert cache_bill(rank, 1, 1, find_format("bf16")).bytes_per_token == 65536
    assert kv_heads_per_rank(8, 32) == 1, "so that 32 ranks hold each of 8 heads four times"


def test_latent_cache_is_on_every_rank() -> None:
    rank = shard(Plan(load_model("deepseek-v3"), decode(1, 10)), Parallel(tp=8)).model
    assert cache_bill(rank, 1, 1, find_format("bf16")).bytes_per_token == 70272


@given(st.sampled_from([1, 2, 4, 8]), st.integers(1, 8), st.integers(1, 500))
def test_ranks_share_the_work_of_layers(tp: int, batch: int, tokens: int) -> None:
    """Matmul FLOPs over tp ranks sum to the whole, the head's padded vocabulary aside."""
    plan = Plan(load_model("llama-3-70b"), prefill(batch, tokens))
    whole = totals(op for op in ops(plan) if op.name != "lm_head").matmul_flops
    rank = totals(op for op in ops(shard(plan, Parallel(tp=tp))) if op.name != "lm_head").matmul_flops
    assert rank * tp == whole


def test_pipeline_stages_are_the_whole() -> None:
    """Layers as even as they can be; FLOPs and weights of the stages sum to the model's own."""
    plan = Plan(load_model("llama-3.1-405b"), decode(1, 10))
    stages = [shard(plan, Parallel(pp=4), stage) for stage in range(4)]
    assert [len(stage.model.layers) for stage in stages] == [32, 32, 31, 31]
    assert sum(totals(ops(stage)).matmul_flops for stage in stages) == totals(ops(plan)).matmul_flops
    assert sum(stage.model.parameters for stage in stages) == plan.model.parameters
    names = [[op.name for op in link_ops(plan, Parallel(pp=4), stage)] for stage in range(4)]
    assert names == [["send"], ["send"], ["send"], []]
    (send, *_) = link_ops(plan, Parallel(pp=4))
    assert send.work.bytes.total == 0
    assert send.work.wire_bytes == 16384 * 2


def test_tensor_parallel_halves_by_hand() -> None:
    """MLA heads, experts' width, Mamba channels, the vocabulary: each op's outer width over two ranks."""

    def widths(name: str, tp: int) -> dict[str, tuple[int, int]]:
        model = load_model(name)
        plan = Plan(model, decode(1, 8), Run(mla="absorbed"))
        built = ops(shard(plan, Parallel(tp=tp)))
        return {op.name: (op.work.inner, op.work.outer) for op in built if hasattr(op.work, "inner")}

    whole, half = widths("deepseek-v3", 1), widths("deepseek-v3", 2)
    assert whole["q_b"] == (1536, 128 * 192)
    assert half["q_b"] == (1536, 64 * 192)
    assert half["o_proj"] == (64 * 128, 7168)
    assert half["q_kv_a"] == whole["q_kv_a"], "the latents are computed on every rank"
    assert half["experts.gate_up"] == (7168, 2 * 1024)
    assert half["shared.down"] == (1024, 7168)
    assert half["lm_head"] == (7168, 129280 // 2)
    mamba = widths("jamba-v0.1", 2)
    assert mamba["in_proj"] == (4096, 2 * 4096)
    assert mamba["out_proj"] == (4096, 4096)
    gpt = widths("falcon-7b", 1)
    assert gpt["qkv"] == (4544, 71 * 64 + 2 * 64)


def test_reductions_of_a_rank() -> None:
    """One all-reduce a block (one for both side by side), one for the embedding, one inside Mamba-1."""

    def counts(name: str, stage: int = 0, **split: int) -> dict[str, int]:
        plan = Plan(load_model(name), decode(1, 8))
        return {op.name: op.count for op in link_ops(plan, Parallel(**split), stage)}

    assert counts("llama-3-8b", tp=2) == {"all_reduce": 65, "gather_logits": 1}
    assert counts("gpt-j-6b", tp=2) == {"all_reduce": 29, "gather_logits": 1}
    assert counts("jamba-v0.1", tp=2) == {"all_reduce": 65, "reduce_dt_bc": 28, "gather_logits": 1}
    assert counts("llama-3-8b", tp=2, pp=4) == {"all_reduce": 17, "send": 1}
    assert counts("llama-3-8b", 3, tp=2, pp=4) == {"all_reduce": 16, "gather_logits": 1}
    # Projections are whole on every rank: 30 layers of attention, MLP and experts; 30 of attention and MLP;
    # 45 of a mixer alone and 9 of attention, MLP and mixer.
    assert counts("gemma-4-26b-a4b", tp=2)["all_reduce"] == 1 + 30 * 3
    assert counts("gemma-3n-e2b", tp=2)["all_reduce"] == 1 + 30 * 2
    assert counts("zamba2-2.7b", tp=2)["all_reduce"] == 1 + 45 + 9 * 3


def test_side_projections_add_to_no_residual() -> None:
    """Gemma 4: 30 layers of three residual adds, each fused with one of seven norms."""
    plan = Plan(load_model("gemma-4-26b-a4b"), decode(1, 8))
    counts = {op.name: op.count for op in ops(plan)}
    assert (counts["add_norm"], counts["norm"]) == (30 * 3, 30 * (7 - 3))


def test_a_stage_holds_the_weights_it_borrows() -> None:
    """Zamba 2's two shared blocks (q, k, v of 5120 x 5120, o, an MLP of three 2560 x 10240) stand in both
    stages, as its tied table does, and what a stage's kernels read of them is in its bill."""
    plan = Plan(load_model("zamba2-2.7b"), decode(1, 8), Run(find_recipe("bf16")))
    stages = [shard(plan, Parallel(pp=2), stage) for stage in range(2)]
    shared = 3 * 5120 * 5120 + 5120 * 2560 + 3 * 2560 * 10240
    assert (
        sum(stage.model.parameters for stage in stages) == plan.model.parameters + 2 * shared + 32000 * 2560
    )
    held = weight_bill(stages[1].model, plan.recipe).weight_bytes
    own = [block for layer in stages[1].model.layers for block in layer.blocks]
    used = sum(isinstance(block, Attention) for block in own)
    assert totals(ops(stages[1])).weights == held + (used - 2) * 2 * shared


def test_an_expert_parallel_rank_holds_its_share() -> None:
    model = load_model("deepseek-v3")
    rank = shard(Plan(model, decode(1, 8)), Parallel(ep=64)).model
    assert rank.active_parameters <= rank.parameters
    bill = weight_bill(rank, find_recipe("bf16"), batch=8)
    local = 58 * 3 * 7168 * 2048 * 2
    distinct = 4 * (1 - (1 - 8 / 256) ** 8)
    others = bill.read_bytes_per_step - distinct * local
    assert others == pytest.approx(2 * (rank.parameters - 129280 * 7168) - 4 * local, rel=1e-12)


@pytest.mark.parametrize(
    "name", ["jamba-v0.1", "mamba2-2.7b", "qwen3-next-80b-a3b", "gpt-oss-20b", "whisper-large-v3"]
)
def test_every_mixer_shards(name: str) -> None:
    model = load_model(name)
    plan = Plan(model, decode(2, 50, 10 if model.encoder else 0))
    rank = shard(plan, Parallel(tp=2))
    assert totals(ops(rank)).matmul_flops < totals(ops(plan)).matmul_flops


@pytest.mark.parametrize(
    ("model", "parallel", "said"),
    [
        ("llama-7b", {"tp": 5}, "heads 32 does not divide over 5"),
        ("qwen2.5-7b", {"tp": 3}, "does not divide|neither divides"),
        ("mixtral-8x7b", {"ep": 3}, "experts 8 does not divide"),
        ("llama-7b", {"pp": 33}, "pp 33 is more than the 32 layers"),
        ("llama-7b", {"tp": 2, "ep": 4}, "ep is 1, equal to tp"),
        ("llama-7b", {"tp": 0}, "tp must be between"),
    ],
)
def test_what_does_not_divide_is_refused(model: str, parallel: dict[str, int], said: str) -> None:
    with pytest.raises(InputError, match=said):
        shard(Plan(load_model(model), decode(1, 10)), Parallel(**parallel))
