"""`kv` on every sheet, and `ops` on every sheet x three GPUs, run without error and make sense."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from infercost.models.catalogue import load_model, model_names


@pytest.mark.parametrize("model", model_names())
def test_kv_and_ops_on_every_sheet(model: str, ask: Callable[..., Any]) -> None:
    cache = ask("kv", "--model", model, "--seq", "1k", "--batch", "2")
    assert cache["logical_bytes"] > 0
    for gpu in ("a100", "b200", "apple-m3-max"):
        document = ask("ops", "--model", model, "--seq", "1k", "--batch", "2", "--gpu", gpu)
        assert len(document["ops"]) > 5
        for op in document["ops"]:
            numbers = (op["matmul_flops"], op["vector_flops"], op["bytes"], op["floor_s"])
            assert all(math.isfinite(n) and n >= 0 for n in numbers)
        step = document["totals"]["decode"]
        assert 0 < step["bound_s"] <= step["floor_s"] < 10
        read = ask("weights", "--model", model, "--batch", "2")["read_bytes_per_step"]
        assert step["bytes_by_class"]["weights"] >= read * (1 - 1e-12)
    whole = ask("request", "--model", model, "--prompt", "1k", "--gen", "4", "--batch", "2")
    for key in ("ttft_s", "tpot_s", "e2e_s"):
        assert 0 < whole[key]["bound"] <= whole[key]["floor"] <= whole[key]["expected"] < 100
    assert 0 < whole["mbu"] <= 1
    if load_model(model).encoder is None:
        drafted = ask("speculate", "--model", model, "--draft", "lookup", "--alpha", "0.8", "--gamma", "2")
        assert 0 < drafted["speedups"]["bound"] <= drafted["tokens_per_round"] * (1 + 1e-9)
    explained = ask("explain", "bound", "--model", model)
    assert explained["value"] > 0
    held = ask("fit", "--model", model, "--seq", "1k", "--batch", "2")
    assert sum(term["bytes"] for term in held["terms"]) == held["total_bytes"]
    narrow = ask("quant", "--model", model, "--seq", "1k", "--scheme", "llm-int8,lora-2bit")["points"]
    assert narrow[2]["weight_bytes"] < narrow[0]["weight_bytes"]
    assert all(line["extra"]["bytes"] > 0 for line in narrow[1:])
    served = ask("serve", "--model", model, "--prompt", "1k", "--gen", "4", "--batch", "1,2", "--gpu", "h100")
    for point in served["points"]:
        assert 0 < point["tpot_s"] < 100
        assert point["requests_per_s"] * point["e2e_s"] == pytest.approx(point["batch"])


@pytest.mark.parametrize(
    "gpu", ["gaudi3", "tpu-v7", "groq-lpu-v1", "cpu-epyc-9654", "cpu-generic-2ch", "mi250x"]
)
def test_unusual_parts(gpu: str, ask: Callable[..., Any], run: Callable[..., Any]) -> None:
    """Parts without fp16, without an fp32 figure, without a memory of their own."""
    document = ask("ops", "--model", "llama-7b", "--seq", "128", "--gpu", gpu)
    assert document["totals"]["prefill"]["floor_s"] > 0
    assert ask("roofline", "--gpu", gpu)["ridge"]["headline"] > 0
    assert run("gpus", "show", gpu).code == 0


@pytest.mark.parametrize("fusion", ["none", "engine", "ideal"])
@pytest.mark.parametrize("attention", ["flash", "eager"])
def test_every_way_of_running(fusion: str, attention: str, ask: Callable[..., Any]) -> None:
    args = ("--fusion", fusion, "--attention", attention, "--all-logits", "--full-attention", "--seq", "64")
    experts = ("--skew", "1")
    for model, own in (
        ("deepseek-v3", ("--mla", "expanded", *experts)),
        ("qwen3-next-80b-a3b", experts),
        ("whisper-large-v3", ()),
    ):
        document = ask("ops", "--model", model, *args, *own)
        assert document["totals"]["decode"]["bound_s"] <= document["totals"]["decode"]["floor_s"]
