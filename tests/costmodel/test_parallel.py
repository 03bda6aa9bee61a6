"""Sharding: what a rank holds, what does not divide, and sums over ranks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infercost import InputError
from infercost.costmodel.forward import ops
from infercost.costmodel.kv import cache_bill
from infercost.costmodel.parallel import Parallel, kv_copies, kv_heads_per_rank, link_ops, shard
from infercost.costmodel.roofline import totals
from infercost.costmodel.step import Plan, decode, prefill
from infercost.models.catalogue import load_model
from infercost.models.formats import find_format


def test_listed_cases() -> None:
    """CASE-055: Qwen3-32B on 4 ranks keeps 65,536 bytes a token each; CASE-057: 8 KV heads on 32."""
    rank = shard(Plan(load_model("qwen3-32b"), decode(1, 10)), Parallel(tp=4)).model
    assert cache_bill(rank, 1, 1, find_format("bf16")).bytes_per_token == 65536
    assert kv_copies(8, 32) == 4
    assert kv_heads_per_rank(8, 32) == 1


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


def test_pipeline_stages_hold_all_layers() -> None:
    plan = Plan(load_model("llama-3.1-405b"), decode(1, 10))
    stages = [shard(plan, Parallel(pp=4), stage).model for stage in range(4)]
    assert [len(stage.layers) for stage in stages] == [32, 32, 32, 30]
    assert link_ops(plan, Parallel(pp=4))[-1].work.kind == "collective"


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
