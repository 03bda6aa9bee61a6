"""Questions about engines, ranks, budgets and rates that users got wrong answers to elsewhere.

Figures and their arithmetic: ../shared/cases/cases.csv (id, answer, tolerance). See test_cases.py for those
about a model's own bytes.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Ask = Callable[..., Any]
GIB = 1 << 30
GPU = (
    "name: card\ntitle: a card\nvendor: V\nsource: the case\n"
    "peak_tflops: {{fp16: 100, bf16: 100, fp32: 50}}\n"
    "memory: {{bandwidth_gb_per_s: {bandwidth}, usable_bytes: {usable}}}\n"
)


def sheet(layers: int, *kinds: str, pattern: str = "", vocab: int = 1000, hidden: int = 512) -> str:
    """A sheet on standard input: one layer kind, or several under letters with a pattern."""
    head = f"name: case\nsource: the case\nhidden: {hidden}\nvocab: {vocab}\nlayers: {layers}\n"
    if len(kinds) == 1:
        return head + f"layer: {{{kinds[0]}, dense: {{width: 64}}}}\n"
    body = "".join(f"  {c}: {{{k}, dense: {{width: 64}}}}\n" for c, k in zip("abc", kinds, strict=False))
    return head + f"kinds:\n{body}pattern: {pattern}\n"


def attention(kv_heads: int, head_dim: int, **more: int) -> str:
    extra = "".join(f", {key}: {value}" for key, value in more.items())
    return f"attention: {{heads: {kv_heads}, kv_heads: {kv_heads}, head_dim: {head_dim}{extra}}}"


def kv(ask: Ask, model: str, *args: str, key: str, stdin: str = "") -> Any:
    return ask("kv", "--model", model, *args, **({"stdin": stdin} if stdin else {}))[key]


def fit(ask: Ask, *args: str, model: str = "llama-3-8b", seq: str = "16") -> Any:
    return ask("fit", "--model", model, "--gpu", "h100", "--seq", seq, *args)


def window_buffer(ask: Ask) -> float:
    """A windowed cache of 160 MiB at 4,096 cells: ten layers of eight heads of 128."""
    text = sheet(10, attention(8, 128, window=512))
    args = ("--seq", "4096", "--engine", "llama.cpp", "--ubatch", "1024")
    assert kv(ask, "-", "--seq", "4096", key="bytes_per_token", stdin=text) * 4096 == 160 << 20
    return float(kv(ask, "-", *args, key="allocated_bytes", stdin=text) / (1 << 20))


def rules(ask: Ask) -> float:
    """The pool of a share of what is free less that of the same share of the total, in GiB."""
    args = ("--capacity", "80GiB", "--non-kv", "20GiB", "--share", "0.9")
    free, total = (fit(ask, *args, "--engine", engine) for engine in ("tensorrt-llm", "vllm"))
    return float((free["budget_bytes"] - total["budget_bytes"]) / GIB)


def lmdeploy(ask: Ask) -> float:
    args = ("--weight-bytes", "18GiB", "--capacity", "24GiB", "--share", "0.1", "--tp", "2")
    got = fit(ask, *args, "--engine", "lmdeploy")
    beside = sum(term["bytes"] for term in got["terms"] if term["name"] != "cache")
    return float((got["budget_bytes"] - beside) / GIB)


def heads_of_a_draft(ask: Ask) -> int:
    """The head and the table of a draft that shares the target's: two components of such a sheet."""
    text = sheet(1, attention(8, 128), vocab=248320, hidden=5120)
    parts = ask("weights", "--model", "-", stdin=text)["components"]
    return sum(part["bytes"] for part in parts if part["name"] in ("embedding", "head"))


def with_a_draft(ask: Ask, tmp_path: Path) -> int:
    """KV of one more token, target and draft together."""
    paths = []
    for layers in (36, 28):
        path = tmp_path / f"{layers}.yaml"
        path.write_text(sheet(layers, attention(2, 128)), encoding="utf-8")
        paths.append(str(path))
    held = [
        next(
            term["bytes"]
            for term in fit(ask, "--draft", paths[1], model=paths[0], seq=seq)["terms"]
            if term["name"] == "cache"
        )
        for seq in ("101", "100")
    ]
    return int(held[0] - held[1])


def local_experts(ask: Ask) -> float:
    """Expert bytes of one rank's step over those of one expert: 8 ranks of one sequence each."""
    text = (
        "name: case\nsource: the case\nhidden: 64\nvocab: 100\nlayers: {layers}\n"
        "layer: {{attention: {{heads: 1, kv_heads: 1, head_dim: 64}}, "
        "experts: {{count: 128, top_k: 8, width: 32}}}}\n"
    )
    args = ("request", "--model", "-", "--phase", "decode", "--seq", "9", "--ep", "8", "--batch", "1")
    two, one = (
        ask(*args, stdin=text.format(layers=layers))["phases"]["decode"]["weight_bytes"] for layers in (2, 1)
    )
    each = 3 * 64 * 32 * 2
    beside = (4 * 64 * 64 + 64 * 128 + 2 * 64) * 2
    return float((two - one - beside) / each)


def causal(ask: Ask) -> float:
    totals = [
        ask("ops", "--model", "llama-65b", "--seq", "64k", "--phase", "prefill", "--all-logits", *more)
        for more in (("--full-attention",), ())
    ]
    full, half = (got["totals"]["prefill"]["matmul_flops"] for got in totals)
    return float(full / half)


def too_fast(ask: Ask, tmp_path: Path) -> float:
    """GB/s of a product that beat its memory: what `validate` flags, over the floor's bandwidth."""
    gpu, rows = tmp_path / "gpu.yaml", tmp_path / "gemm.csv"
    gpu.write_text(GPU.format(bandwidth=108, usable=8 * GIB), encoding="utf-8")
    rows.write_text(
        "source,gpu,framework,kernel_source,dtype,m,n,k,time_us\ncase,x,onednn,eager,bf16,1024,4096,8,26.458\n",
        encoding="utf-8",
    )
    (flagged,) = ask("validate", "--kernels", str(rows), "--gpu", str(gpu))["flagged"]
    return float(108 * flagged["floor_s"] / flagged["measured_s"])


def links(ask: Ask) -> float:
    """NVLink 4 against PCIe 5 x16, one way: the sheets sum both directions."""
    nvlink, pcie = (ask("gpus", "show", name)["link_bytes_per_s"] for name in ("h100", "rtx5090"))
    return float(nvlink / 2 / (pcie / 2))


VLLM = ("--engine", "vllm")
CASES: dict[str, tuple[float, float, Callable[..., Any]]] = {
    "CASE-016": (
        3240099840,
        0,
        lambda a: kv(a, "gpt-oss-20b", "--seq", "131072", "--engine", "llama.cpp", key="allocated_bytes"),
    ),
    "CASE-018": (60.0, 0, window_buffer),
    "CASE-041": (
        1.123952714334902,
        1e-3,
        lambda a: kv(
            *(a, "gpt-oss-120b", "--seq", "131072", *VLLM, "--kv-budget", "5.38GiB"), key="max_concurrency"
        ),
    ),
    "CASE-042": (
        15275130880,
        0,
        lambda a: kv(
            *(a, "gemma-3-27b", "--seq", "131072", *VLLM, "--max-num-batched-tokens", "8192"),
            key="allocated_bytes",
        ),
    ),
    "CASE-047": (
        1.5408,
        1e-2,
        lambda a: kv(
            *(a, "llama-3-8b", "--seq", "40000", *VLLM, "--num-gpu-blocks", "3852"), key="max_concurrency"
        ),
    ),
    "CASE-055": (
        65536,
        0,
        lambda a: kv(a, "qwen3-32b", "--seq", "1", "--tp", "4", key="bytes_per_token_per_rank"),
    ),
    "CASE-057": (4, 0, lambda a: kv(a, "llama-3-8b", "--seq", "1", "--tp", "32", key="kv_copies")),
    "CASE-059": (1.5, 1e-9, lmdeploy),
    "CASE-060": (2.0, 1e-9, rules),
    "CASE-062": (
        0.541301551267499,
        1e-3,
        lambda a: fit(a, *VLLM, "--share", "0.62", "--graphs", "6.24GiB", "--capacity", "79.29GiB")[
            "share_without_graphs"
        ],
    ),
    "CASE-064": (
        302.5,
        1e-6,
        lambda a: (
            a(
                *("fit", "--model", "-", "--gpu", "h100", "--seq", "16", "--batch", "1024"),
                stdin=sheet(1, attention(8, 128), vocab=154880),
            )["logits_bytes"]
            / (1 << 20)
        ),
    ),
    "CASE-065": (5085593600, 0, heads_of_a_draft),
    "CASE-067": (65536, 0, with_a_draft),
    "CASE-069": (
        125,
        0,
        lambda a: fit(
            a, "--tp", "4", "--capacity", "80GiB", "--chunk", "1", model="llama-3.1-70b", seq="4096"
        )["max_batch"],
    ),
    "CASE-070": (
        113.07369995117188,
        1e-4,
        lambda a: fit(a, "--capacity", "118566368KiB", "--share", "1")["budget_bytes"] / GIB,
    ),
    "CASE-087": (1.3971317876835863, 1e-3, causal),
    "CASE-090": (6.4524884186685085, 1e-6, local_experts),
    "CASE-101": (7.03125, 1e-3, links),
    "CASE-102": (320.1499735429738, 1e-3, too_fast),
    "CASE-108": (
        0.46296296296296297,
        1e-6,
        lambda a: a("serve", "--actual", "12000", "--tp", "8", "--price", "2.50")["usd_per_million_output"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_case(case: str, ask: Ask, tmp_path: Path) -> None:
    wanted, tolerance, answer = CASES[case]
    got = answer(ask, tmp_path) if answer in (with_a_draft, too_fast) else answer(ask)
    assert got == wanted if tolerance == 0 else math.isclose(got, wanted, rel_tol=tolerance), got


NOT_HERE = {
    "CASE-080": "answered in test_cases.py",
    "CASE-082": "answered in test_cases.py",
    "CASE-084": "answered in test_cases.py",
    "CASE-085": "FLOPs of a hand-written module that calls one layer three times: no language model",
    "CASE-089": "answered in test_cases.py",
    "CASE-092": "answered in test_cases.py",
    "CASE-094": "answered in test_cases.py",
    "CASE-096": "answered in test_cases.py",
    "CASE-097": "answered in test_cases.py",
    "CASE-099": "answered in test_cases.py",
    "CASE-104": "how many iterations Triton's benchmark chooses for its own flush",
    "CASE-106": "loss between two clocks that are given",
    "CASE-107": "one given clock over another; probes record clocks and mark a slowed run (docs/probes)",
}


def test_every_case_of_these_themes_is_answered_or_explained(shared: Any) -> None:
    with (shared / "cases" / "cases.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    themes = ("tp", "budget", "flops", "bench", "cost", "peaks")
    asked = {name for name, row in rows.items() if row["theme"] in themes}
    assert asked <= set(CASES) | set(NOT_HERE)
    own = ("kv-arch", "kv-quant", "kv-engine", "weights")
    assert {row["theme"] for row in rows.values()} == {*themes, *own}
    for name, (wanted, tolerance, _) in CASES.items():
        stated = 0.0 if rows[name]["tol"] == "exact" else float(rows[name]["tol"])
        assert math.isclose(float(rows[name]["answer"]), wanted, rel_tol=1e-6), name
        assert tolerance == stated, name
