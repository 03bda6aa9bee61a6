"""The questions of test_cases.py about architectures, asked with a config.json on standard input.

Figures and their arithmetic: ../shared/cases/cases.csv. CASE-016 and CASE-018 are what llama.cpp
allocates, and not of a configuration.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

Ask = Callable[..., Any]
Config = dict[str, Any]


def config(family: str, layers: int, heads: int, kv_heads: int, head_dim: int, **more: Any) -> Config:
    """A configuration in the keys most families share."""
    return {
        "model_type": family,
        "num_hidden_layers": layers,
        "hidden_size": 512,
        "intermediate_size": 64,
        "vocab_size": 1000,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
        **more,
    }


MOE = {"num_local_experts": 8, "num_experts_per_tok": 2}
GPT_OSS = config(
    *("gpt_oss", 36, 64, 8, 64),
    num_local_experts=8,
    num_experts_per_tok=2,
    sliding_window=128,
    layer_types=["sliding_attention", "full_attention"] * 18,
)
GEMMA_3 = config("gemma3_text", 62, 32, 16, 128, sliding_window=1024, sliding_window_pattern=6)
LINEAR = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
}
QWEN3_NEXT = config("qwen3_next", 48, 16, 2, 256, full_attention_interval=4, **LINEAR)
HYBRID = config("qwen3_next", 64, 16, 4, 256, full_attention_interval=4, **LINEAR)
QWEN3 = config("qwen3", 64, 64, 8, 128)
DEEPSEEK = {
    **config("deepseek_v3", 61, 128, 128, 192),
    "q_lora_rank": 64,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
}
LFM2 = config(
    *("lfm2", 16, 32, 8, 64),
    hidden_size=2048,
    conv_L_cache=3,
    block_multiple_of=256,
    block_auto_adjust_ff_dim=False,
    layer_types=["full_attention" if i in (2, 5, 8, 10, 12, 14) else "conv" for i in range(16)],
)
FALCON = {
    "model_type": "falcon",
    "num_hidden_layers": 32,
    "num_attention_heads": 71,
    "hidden_size": 4544,
    "vocab_size": 65024,
    "multi_query": True,
    "new_decoder_architecture": False,
    "parallel_attn": True,
    "bias": False,
    "alibi": False,
    "torch_dtype": "bfloat16",
}
LLAMA_7B = {**config("llama", 32, 32, 32, 128), "hidden_size": 4096, "intermediate_size": 11008}
MIXTRAL = {**config("mixtral", 32, 32, 8, 128, **MOE), "hidden_size": 4096, "intermediate_size": 14336}
SMALL_MOE = {**config("mixtral", 2, 4, 4, 64, **MOE), "hidden_size": 256, "intermediate_size": 512}
MANY = config("qwen3_moe", 1, 1, 1, 64, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=32)


def growing(ask: Ask, of: Config, seq: int = 32768) -> int:
    got = ask("kv", "--model", "-", "--seq", str(seq), stdin=json.dumps(of))
    return int(got["logical_bytes"] - got["state_bytes"])


def per_token(ask: Ask, of: Config) -> int:
    return int(ask("kv", "--model", "-", "--seq", "1", stdin=json.dumps(of))["bytes_per_token"])


def parameters(ask: Ask, of: Config) -> int:
    return int(ask("weights", "--model", "-", stdin=json.dumps({**of, "vocab_size": 32000}))["parameters"])


def experts(ask: Ask, of: Config, *step: str) -> list[Any]:
    got = ask("ops", "--model", "-", *step, stdin=json.dumps(of))["ops"]
    return [op for op in got if op["name"].startswith("experts.")]


def expert_flops(ask: Ask) -> int:
    found = experts(ask, SMALL_MOE, "--seq", "128", "--phase", "prefill")
    return sum(op["matmul_flops"] for op in found)


def distinct_experts(ask: Ask) -> float:
    found = experts(ask, MANY, "--seq", "9", "--batch", "16", "--phase", "decode")
    return float(sum(op["bytes_by_class"]["weights"] for op in found) / (3 * 512 * 32 * 2))


CASES: dict[str, tuple[float, Callable[[Ask], float]]] = {
    "CASE-001": (73728, lambda a: growing(a, GPT_OSS, 1)),
    "CASE-003": (3120562176, lambda a: growing(a, GEMMA_3)),
    "CASE-005": (805306368, lambda a: growing(a, QWEN3_NEXT)),
    "CASE-006": (8589934592, lambda a: growing(a, QWEN3)),
    "CASE-008": (10.40625, lambda a: growing(a, GEMMA_3, 131072) / 2**30),
    "CASE-010": (16.0, lambda a: growing(a, HYBRID, 262144) / 2**30),
    "CASE-011": (17.15625, lambda a: growing(a, DEEPSEEK, 262144) / 2**30),
    # K and V rows of 576 and 512, as the case has them, less the one latent row that is kept.
    "CASE-013": (2046820352, lambda a: 61 * (576 + 512) * 2 * 32768 - growing(a, DEEPSEEK)),
    "CASE-015": (402653184, lambda a: growing(a, LFM2)),
    "CASE-020": (10737418240, lambda a: growing(a, config("llama", 80, 64, 8, 128))),
    "CASE-021": (131072, lambda a: per_token(a, config("llama", 32, 32, 8, 128))),
    "CASE-023": (71.11111111111111, lambda a: 61 * 128 * (192 + 128) * 2 / per_token(a, DEEPSEEK)),
    "CASE-025": (24576, lambda a: per_token(a, QWEN3_NEXT)),
    "CASE-026": (268435456, lambda a: growing(a, FALCON)),
    "CASE-075": (46702792704, lambda a: parameters(a, MIXTRAL)),
    "CASE-076": (6738415616, lambda a: parameters(a, LLAMA_7B)),
    "CASE-084": (402653184, expert_flops),
    "CASE-089": (82.42251130217052, distinct_experts),
}


@pytest.mark.parametrize("case", CASES)
def test_case_from_config(case: str, ask: Ask) -> None:
    wanted, answer = CASES[case]
    got = answer(ask)
    assert got == wanted if isinstance(wanted, int) else math.isclose(got, wanted, rel_tol=1e-6), got


def test_every_architecture_case_is_asked(shared: Any) -> None:
    import csv

    with (shared / "cases" / "cases.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    assert {name for name, row in rows.items() if row["theme"] == "kv-arch"} <= {
        *CASES,
        "CASE-016",
        "CASE-018",
    }
    for name, (wanted, _) in CASES.items():
        assert float(rows[name]["answer"]) == wanted
