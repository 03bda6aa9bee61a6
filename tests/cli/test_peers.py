"""The reference answers other tools were held to, and none of their mistakes.

Figures: ../shared/peers/peers.md, section 0 (derived there) and W1 to W21 (found by running them).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Ask = Callable[..., Any]


def total(ask: Ask, model: str, gpu: str, seq: str, batch: str, phase: str, *more: str) -> Any:
    args = ("--model", model, "--gpu", gpu, "--seq", seq, "--batch", batch, "--phase", phase)
    return ask("ops", *args, *more)["totals"][phase]


def op(ask: Ask, name: str, model: str, gpu: str, seq: str, batch: str, phase: str, *more: str) -> Any:
    args = ("--model", model, "--gpu", gpu, "--seq", seq, "--batch", batch, "--phase", phase)
    return next(o for o in ask("ops", *args, *more)["ops"] if o["name"] == name)


COLUMNS = {
    # model, gpu, seq, batch: KV, weights, causal and full prefill FLOPs, decode FLOPs, decode bound in ms
    ("llama-2-7b", "a100", "1024", "8"): (
        *(4294967296, 13476831232, 1.0831e14, 1.1050e14, 1.1001e11, 8.587, 1.0),
    ),
    ("llama-2-7b", "a100", "32768", "1"): (
        *(17179869184, 13476831232, 7.0590e14, 9.8736e14, 3.0394e10, 14.907, 1.0),
    ),
    ("llama-3-70b", "h100", "4096", "16"): (
        *(21474836480, 141107412992, 9.3240e15, 9.6757e15, 2.3959e12, 47.905, 8.0),
    ),
}


@pytest.mark.parametrize("column", COLUMNS, ids=lambda c: "-".join(c))
def test_reference_answers(column: tuple[str, str, str, str], ask: Ask) -> None:
    model, _, seq, batch = column
    kv, weights, causal, full, decode, bound_ms, intensity = COLUMNS[column]
    assert ask("kv", "--model", model, "--seq", seq, "--batch", batch)["logical_bytes"] == kv
    assert ask("weights", "--model", model)["weight_bytes"] == weights
    before = total(ask, *column, "prefill")
    assert before["matmul_flops"] == pytest.approx(causal, rel=1e-4)
    square = total(ask, *column, "prefill", "--full-attention")
    assert square["matmul_flops"] == pytest.approx(full, rel=1e-4)
    step = total(ask, *column, "decode")
    assert step["matmul_flops"] == pytest.approx(decode, rel=1e-4)
    assert step["bound_s"] * 1e3 == pytest.approx(bound_ms, abs=6e-4)
    attention = op(ask, "attention", *column, "decode")
    assert attention["intensity"] == pytest.approx(intensity, rel=0.02)


def test_prefill_compute_floors(ask: Ask) -> None:
    assert total(ask, "llama-2-7b", "a100", "1024", "8", "prefill")["bound_s"] == pytest.approx(
        0.3471, abs=5e-5
    )
    assert total(ask, "llama-2-7b", "a100", "32768", "1", "prefill")["bound_s"] == pytest.approx(
        2.2625, abs=5e-5
    )
    whole = total(ask, "llama-3-70b", "h100", "4096", "16", "prefill")["bound_s"]
    assert whole / 4 == pytest.approx(2.3560, abs=5e-5), "over four GPUs"


def test_w1_decode_under_gqa_reads_kv_heads_not_heads(ask: Ask) -> None:
    found = op(ask, "attention", "llama-3-70b", "h100", "4096", "16", "decode")
    assert found["bytes_by_class"]["kv"] == 21474836480
    assert found["intensity"] == pytest.approx(8.0, rel=0.02)


def test_w2_flash_output_is_tokens_by_head_dim(ask: Ask) -> None:
    """6.71e7 bytes a layer at 1k and batch 8, 2.684e8 at 32k and batch 1: Q, K, V, O are alike."""
    for seq, batch, output in (("1024", "8", 67108864), ("32768", "1", 268435456)):
        found = op(ask, "attention", "llama-2-7b", "a100", seq, batch, "prefill")
        assert found["bytes"] / 32 == 4 * output
    assert found["verdict"] == "compute-bound"


def test_w3_head_activation_and_table(ask: Ask) -> None:
    head = op(ask, "lm_head", "llama-2-7b", "a100", "1024", "8", "decode")
    assert head["matmul_flops"] == 2097152000
    assert head["bytes_by_class"]["activations"] == 8 * (4096 + 32000) * 2
    gate = op(ask, "silu_mul", "llama-2-7b", "a100", "1024", "8", "decode")
    assert gate["bytes"] / 32 == 3 * 8 * 11008 * 2
    parts = {c["name"] for c in ask("weights", "--model", "llama-2-7b")["components"]}
    assert {"embedding", "head"} <= parts


def test_w4_a_bare_name_says_which_part(run: Callable[..., Any], ask: Ask) -> None:
    assert ask("gpus", "show", "a100")["name"] == "a100-80g-sxm"
    assert "a100 = A100 SXM4 80GB" in run("roofline", "--gpu", "a100").out
    assert ask("gpus", "show", "h100")["bandwidth_bytes_per_s"] == 3.35e12


def test_w5_times_use_decimal_bandwidth(ask: Ask) -> None:
    assert total(ask, "llama-2-7b", "a100", "1024", "8", "decode")["bound_s"] * 1e3 == pytest.approx(
        8.587, abs=5e-4
    )


def test_w6_a_batch_reads_more_than_top_k_experts(ask: Ask) -> None:
    """Mixtral at batch 16 touches 7.92 of 8 experts: 87,966 MiB of weights."""
    read = ask("weights", "--model", "mixtral-8x7b", "--batch", "16")["read_bytes_per_step"]
    distinct = 8 * (1 - (6 / 8) ** 16)
    assert distinct == pytest.approx(7.92, abs=5e-3)
    dense = 2 * (46702792704 - 32 * 8 * 3 * 4096 * 14336 - 32000 * 4096)
    assert read == pytest.approx(dense + distinct * 32 * 3 * 4096 * 14336 * 2)
    assert read / 2**20 == pytest.approx(87966, rel=2e-3)


def test_w7_an_embedding_is_a_lookup_and_logits_are_of_the_last_token(ask: Ask) -> None:
    args = ("llama-2-7b", "a100", "1024", "8", "prefill")
    assert op(ask, "embedding", *args)["matmul_flops"] == 0
    assert op(ask, "lm_head", *args)["matmul_flops"] == 2 * 8 * 4096 * 32000
    assert op(ask, "lm_head", *args, "--all-logits")["matmul_flops"] == 2 * 8 * 1024 * 4096 * 32000


def test_w9_no_hidden_beams_and_dense_peaks(ask: Ask) -> None:
    assert (
        op(ask, "qkv", "llama-2-7b", "a100", "1024", "8", "decode")["matmul_flops"]
        == 32 * 2 * 8 * 4096 * 12288
    )
    for gpu in ("gh200-96g", "gb200", "b100", "h100"):
        dense = {"gh200-96g": 989.4e12, "gb200": 2500e12, "b100": 1750e12, "h100": 989.4e12}[gpu]
        assert ask("gpus", "show", gpu)["peaks_flops_per_s"]["fp16"] == pytest.approx(dense)


def test_w10_a_step_writes_one_token_and_attends_to_its_context(ask: Ask) -> None:
    assert (
        op(ask, "kv_append", "llama-2-7b", "a100", "32768", "1", "decode")["bytes_by_class"]["kv"] == 524288
    )
    step = total(ask, "llama-2-7b", "a100", "32768", "1", "decode")
    assert step["bytes_by_class"]["kv"] == 17179869184 + 524288
    assert step["matmul_flops"] == pytest.approx(3.0394e10, rel=1e-4)


@pytest.mark.parametrize(("model", "parameters"), [("llama-2-7b", 6738415616), ("llama-3-70b", 70553706496)])
def test_w11_untied_tables_count_twice_and_mlps_are_gated(model: str, parameters: int, ask: Ask) -> None:
    assert ask("weights", "--model", model)["parameters"] == parameters


def test_w12_kv_has_two_halves_and_shares_heads(ask: Ask) -> None:
    assert ask("kv", "--model", "llama-2-7b", "--seq", "4096")["logical_bytes"] == 2 * 2**30
    seventy = ask("kv", "--model", "llama-3-70b", "--seq", "4096", "--batch", "16")["logical_bytes"]
    assert seventy == 20 * 2**30
    assert ask("weights", "--model", "llama-2-7b")["weight_bytes"] / 2**30 == pytest.approx(12.55, abs=5e-3)


def test_w13_the_width_of_the_sheet_is_the_one_used(ask: Ask) -> None:
    """FFN of LLaMA-2-7B over 8 x 1024 tokens: 7.092e13."""
    args = ("llama-2-7b", "a100", "1024", "8", "prefill")
    ffn = op(ask, "gate_up", *args)["matmul_flops"] + op(ask, "down", *args)["matmul_flops"]
    assert ffn == pytest.approx(7.092e13, rel=1e-3)


def test_w14_every_matrix_is_read(ask: Ask) -> None:
    """A layer's QKV and O weights take 48.9 us to read at 2.7 TB/s or so: they are in the bill."""
    for name, outer in (("qkv", 12288), ("o_proj", 4096)):
        found = op(ask, name, "llama-2-7b", "a100", "1024", "8", "decode")
        assert found["bytes_by_class"]["weights"] == 32 * 4096 * outer * 2
        assert found["floor_s"] >= found["bytes_by_class"]["weights"] / 2.039e12


def test_w15_a_ring_all_reduce_moves_each_byte_twice() -> None:
    from infercost.costmodel.op import Collective

    assert Collective("all_reduce", 1000.0, 4).wire_bytes == 2 * 3 / 4 * 1000
    assert Collective("all_reduce", 1000.0, 8).wire_bytes < 2 * 1000


@pytest.mark.parametrize(("model", "gib"), [("mixtral-8x7b", 87.0), ("deepseek-v3", 1249.9)])
def test_w16_all_experts_are_resident(model: str, gib: float, ask: Ask) -> None:
    size = ask("weights", "--model", model, "--weights", "bf16")["weight_bytes"] / 2**30
    assert size == pytest.approx(gib, abs=0.06)


def test_w17_the_folder_does_not_matter(ask: Ask, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    here = total(ask, "llama-2-7b", "a100", "1024", "8", "prefill")
    monkeypatch.chdir(tmp_path)
    assert total(ask, "llama-2-7b", "a100", "1024", "8", "prefill") == here


def test_w18_attention_is_counted(ask: Ask) -> None:
    """56.5 % of the matmul FLOPs at 32k would be missing without it (full square)."""
    args = ("llama-2-7b", "a100", "32768", "1", "prefill", "--full-attention")
    share = op(ask, "attention", *args)["matmul_flops"] / total(ask, *args)["matmul_flops"]
    assert share == pytest.approx(0.565, abs=0.01)


def test_w19_a_fresh_prompt_visits_half_the_square_and_scales_take_room(ask: Ask) -> None:
    found = op(ask, "attention", "llama-2-7b", "a100", "2048", "1", "prefill")
    assert found["matmul_flops"] == 32 * 4 * 32 * 128 * 2048 * 2049 // 2
    bill = ask("weights", "--model", "llama-2-7b", "--weights", "gptq")
    quantised = sum(c["bytes"] for c in bill["components"] if c["format"] == "int4-g128")
    assert quantised == 6476005376 // 2 + 6476005376 // 128 * 2


def test_w20_a_latent_row_holds_its_rotated_part_once(ask: Ask) -> None:
    assert ask("kv", "--model", "deepseek-v3", "--seq", "1")["bytes_per_token"] == 61 * (512 + 64) * 2


def test_w21_the_shipping_a100_has_108_cores(ask: Ask) -> None:
    shown = ask("gpus", "show", "a100")
    assert (shown["cores"], shown["peaks_flops_per_s"]["fp16"]) == (108, 312e12)
