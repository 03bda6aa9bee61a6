"""Questions users got wrong answers to elsewhere, asked of the command line.

Figures and their arithmetic: ../shared/cases/cases.csv (id, answer, tolerance). Cases about engines'
own accounting, ranks, budgets and rates: test_cases_engines.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

Ask = Callable[..., Any]


def sheet(layers: int, *kinds: str, pattern: str = "", hidden: int = 512) -> str:
    """A sheet on standard input: one layer kind, or several under letters with a pattern."""
    head = f"name: case\nsource: the case\nhidden: {hidden}\nvocab: 1000\nlayers: {layers}\n"
    if len(kinds) == 1:
        return head + f"layer: {{{kinds[0]}, dense: {{width: 64}}}}\n"
    body = "".join(f"  {c}: {{{k}, dense: {{width: 64}}}}\n" for c, k in zip("abc", kinds, strict=False))
    return head + f"kinds:\n{body}pattern: {pattern}\n"


def attention(kv_heads: int, head_dim: int, heads: int | None = None, **more: int) -> str:
    extra = "".join(f", {key}: {value}" for key, value in more.items())
    return f"attention: {{heads: {heads or kv_heads}, kv_heads: {kv_heads}, head_dim: {head_dim}{extra}}}"


LATENT = "latent_attention: {heads: 128, kv_lora_rank: 512, nope_dim: 128, rope_dim: 64, v_head_dim: 128}"
DELTA = (
    "linear_attention: {kind: gated_delta, key_heads: 16, value_heads: 32, key_dim: 128, value_dim: 128,"
    " conv_kernel: 4}"
)


def kv(ask: Ask, text: str, seq: object, *more: str, key: str = "logical_bytes") -> Any:
    return ask("kv", "--model", "-", "--seq", str(seq), *more, stdin=text)[key]


def named(ask: Ask, model: str, seq: object, *more: str, key: str = "logical_bytes") -> Any:
    return ask("kv", "--model", model, "--seq", str(seq), *more)[key]


def weights(ask: Ask, model: str, key: str, *more: str) -> Any:
    return ask("weights", "--model", model, *more)[key]


def v_less(ask: Ask) -> Any:
    """A cache of K rows 576 and V rows 512 against the latent row alone."""
    both = kv(ask, sheet(61, attention(1, 576, 128, v_head_dim=512)), 32768)
    return both - kv(ask, sheet(61, LATENT), 32768)


def materialised(ask: Ask) -> float:
    """Per-head K of 192 and V of 128 against the latent row."""
    heads = kv(ask, sheet(61, attention(128, 192, v_head_dim=128)), 1)
    return heads / kv(ask, sheet(61, LATENT), 1)


def growing(ask: Ask, model: str, seq: int) -> Any:
    answer = ask("kv", "--model", model, "--seq", str(seq))
    return answer["logical_bytes"] - answer["state_bytes"]


def attention_flops(ask: Ask, heads: int, seq: int, head_dim: int, batch: int = 1) -> Any:
    text = sheet(1, attention(heads, head_dim))
    got = ask(
        *("ops", "--model", "-", "--seq", str(seq), "--batch", str(batch), "--phase", "prefill"),
        "--full-attention",
        stdin=text,
    )
    return next(op for op in got["ops"] if op["name"] == "attention")["matmul_flops"]


def expert_flops(ask: Ask) -> Any:
    text = (
        "name: case\nsource: the case\nhidden: 256\nvocab: 1000\nlayers: 2\n"
        f"layer: {{{attention(4, 64)}, experts: {{count: 8, top_k: 2, width: 512}}}}\n"
    )
    got = ask("ops", "--model", "-", "--seq", "128", "--phase", "prefill", stdin=text)["ops"]
    return sum(op["matmul_flops"] for op in got if op["name"].startswith("experts."))


def distinct(ask: Ask) -> float:
    """Expert bytes of a step of 16 tokens over those of one expert."""
    text = (
        "name: case\nsource: the case\nhidden: 64\nvocab: 100\nlayers: 1\n"
        f"layer: {{{attention(1, 64)}, experts: {{count: 128, top_k: 8, width: 32}}}}\n"
    )
    got = ask("ops", "--model", "-", "--seq", "9", "--batch", "16", "--phase", "decode", stdin=text)["ops"]
    read = sum(op["bytes_by_class"]["weights"] for op in got if op["name"].startswith("experts."))
    return float(read / (3 * 64 * 32 * 2))


def vllm_draft(ask: Ask) -> Any:
    return sum(kv(ask, sheet(layers, attention(2, 128)), 1) for layers in (36, 28))


STORIES = (
    "name: stories\nsource: llama2.c\nhidden: 288\nvocab: 32000\ntied: true\nlayers: 6\n"
    "layer: {attention: {heads: 6, kv_heads: 6, head_dim: 48}, dense: {width: 768}}\n"
)
"""A model whose table is its head, as llama2.c trains it."""
CASES: dict[str, tuple[float, float, Callable[[Ask], Any]]] = {
    "CASE-001": (
        73728,
        0,
        lambda a: kv(a, sheet(36, attention(8, 64, window=128), attention(8, 64), pattern="a b"), 1),
    ),
    "CASE-003": (3120562176, 0, lambda a: named(a, "gemma-3-27b", "32k")),
    "CASE-005": (805306368, 0, lambda a: growing(a, "qwen3-next-80b-a3b", 32768)),
    "CASE-006": (8589934592, 0, lambda a: named(a, "qwen3-32b", "32k")),
    "CASE-008": (10.40625, 1e-3, lambda a: named(a, "gemma-3-27b", "128k") / 2**30),
    "CASE-010": (
        16.0,
        1e-6,
        lambda a: (
            (lambda d: d["logical_bytes"] - d["state_bytes"])(
                a(
                    *("kv", "--model", "-", "--seq", "262144"),
                    stdin=sheet(64, DELTA, attention(4, 256), pattern="a*3 b"),
                )
            )
            / 2**30
        ),
    ),
    "CASE-011": (17.15625, 1e-3, lambda a: named(a, "deepseek-v3", "256k") / 2**30),
    "CASE-013": (2046820352, 0, v_less),
    "CASE-015": (
        402653184,
        0,
        lambda a: growing_of(a, sheet(16, DELTA, attention(8, 64), pattern="a*5 b*3"), 32768),
    ),
    "CASE-020": (10737418240, 0, lambda a: named(a, "llama-3.1-70b", "32k")),
    "CASE-021": (131072, 0, lambda a: named(a, "llama-3-8b", 1, key="bytes_per_token")),
    "CASE-023": (71.11111111111111, 1e-6, materialised),
    "CASE-025": (24576, 0, lambda a: named(a, "qwen3-next-80b-a3b", 1, key="bytes_per_token")),
    "CASE-026": (268435456, 0, lambda a: named(a, "falcon-7b", "32k")),
    "CASE-028": (1166.625, 1e-4, lambda a: named(a, "deepseek-v3", "32k", "--kv", "q8_0") / 2**20),
    "CASE-030": (
        7218.75,
        1e-4,
        lambda a: kv(a, sheet(28, attention(8, 128)), 500 * 256, "--kv", "int8-row") / 2**20,
    ),
    "CASE-032": (36864, 0, lambda a: named(a, "llama-3-8b", 1, "--kv", "nvfp4", key="bytes_per_token")),
    "CASE-033": (
        76,
        0,
        lambda a: kv(a, sheet(1, attention(1, 128)), 1, "--kv", "nvfp4-row", key="bytes_per_token") / 2,
    ),
    "CASE-035": (92160, 0, lambda a: named(a, "llama-3-70b", 1, "--kv", "nvfp4", key="bytes_per_token")),
    "CASE-037": (1024.0, 0, lambda a: named(a, "llama-3-8b", 8192) / 2**20),
    "CASE-046": (77266944, 0, lambda a: named(a, "qwen3-next-80b-a3b", 1, key="state_bytes")),
    "CASE-049": (16.100341796875, 1e-3, lambda a: kv(a, sheet(28, attention(4, 128)), 301472) / 2**30),
    "CASE-051": (82074796032, 0, lambda a: kv(a, sheet(48, attention(4, 128)), 1669816) / 2),
    "CASE-052": (33.246517181396484, 1e-3, lambda a: named(a, "deepseek-v3", 508000) / 2**30),
    # Tokens that four slots keep: bytes of the whole over bytes of one token.
    "CASE-054": (
        16384,
        0,
        lambda a: (
            named(a, "llama-3-8b", 4096, "--batch", "4")
            // named(a, "llama-3-8b", 4096, key="bytes_per_token")
        ),
    ),
    "CASE-067": (65536, 0, vllm_draft),
    "CASE-071": (141107412992, 0, lambda a: weights(a, "llama-3.1-70b", "weight_bytes")),
    "CASE-073": (
        15191712,
        0,
        lambda a: a("weights", "--model", "-", stdin=STORIES)["parameters"],
    ),
    "CASE-075": (46702792704, 0, lambda a: weights(a, "mixtral-8x7b", "parameters")),
    "CASE-076": (6738415616, 0, lambda a: weights(a, "llama-2-7b", "parameters")),
    "CASE-080": (12582912, 0, lambda a: attention_flops(a, 12, 64, 64)),
    "CASE-082": (8589934592, 0, lambda a: attention_flops(a, 16, 1024, 64, batch=2)),
    "CASE-084": (402653184, 0, expert_flops),
    "CASE-089": (82.42251130217052, 1e-6, distinct),
    "CASE-094": (
        0.3279563371740449,
        5e-3,
        lambda a: 1.04 * peak(a, "a100", "fp16") / peak(a, "h100", "bf16"),
    ),
    "CASE-092": (0.4851425106124924, 5e-3, lambda a: 480e12 / peak(a, "h100", "bf16")),
    "CASE-096": (0.4, 1e-6, lambda a: 0.8 * peak(a, "h100", "tf32") / peak(a, "h100", "bf16")),
    "CASE-097": (
        0.7676240208877284,
        1e-3,
        lambda a: 147e12 / (peak(a, "mi250x", "bf16") / a("gpus", "show", "mi250x")["dies"]),
    ),
    "CASE-099": (
        200.64308681672026,
        1e-3,
        lambda a: a("roofline", "--gpu", "a100-40g-sxm")["ridge"]["datasheet"],
    ),
}


def peak(ask: Ask, gpu: str, dtype: str) -> float:
    return float(ask("gpus", "show", gpu)["peaks_flops_per_s"][dtype])


def growing_of(ask: Ask, text: str, seq: int) -> Any:
    answer = ask("kv", "--model", "-", "--seq", str(seq), stdin=text)
    return answer["logical_bytes"] - answer["state_bytes"]


@pytest.mark.parametrize("case", CASES)
def test_case(case: str, ask: Ask) -> None:
    wanted, tolerance, answer = CASES[case]
    got = answer(ask)
    assert got == wanted if tolerance == 0 else math.isclose(got, wanted, rel_tol=tolerance), got


NOT_HERE = {
    "CASE-016": "answered in test_cases_engines.py",
    "CASE-018": "answered in test_cases_engines.py",
    "CASE-039": "two figures of one log line, multiplied: no model is named",
    "CASE-041": "answered in test_cases_engines.py",
    "CASE-042": "answered in test_cases_engines.py",
    "CASE-044": "one figure of one log line, inverted: no model is named",
    "CASE-047": "answered in test_cases_engines.py",
    "CASE-078": "parameters from a file size and bits per weight: division of two given figures",
}
"""kv-*, weights and format cases that these commands alone do not answer."""


def test_every_case_of_these_themes_is_answered_or_explained(shared: Any) -> None:
    import csv

    with (shared / "cases" / "cases.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    themes = ("kv-arch", "kv-quant", "kv-engine", "weights")
    asked = {name for name, row in rows.items() if row["theme"] in themes}
    assert asked <= set(CASES) | set(NOT_HERE)
    for name, (wanted, tolerance, _) in CASES.items():
        assert float(rows[name]["answer"]) == wanted, name
        stated = 0.0 if rows[name]["tol"] == "exact" else float(rows[name]["tol"])
        assert tolerance == stated, name
