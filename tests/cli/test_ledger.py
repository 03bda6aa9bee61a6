"""Every ledger entry whose command is kv, weights, ops, roofline, models or gpus, asked of the CLI.

Values and relative tolerances (0: exact) are the seed ledger's; `test_ledger_is_the_source` holds
this copy to it where ../shared is at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Ask = Callable[..., Any]
LLAMA = ("--model", "llama-7b")
TABLE = ("ops", *LLAMA, "--batch", "8", "--seq", "1024", "--accounting", "textbook")
KERNEL = ("ops", *LLAMA, "--batch", "8", "--seq", "1024")


def op(document: Any, phase: str, name: str) -> Any:
    return next(o for o in document["ops"] if o["phase"] == phase and o["name"] == name)


def kv(ask: Ask, *args: str) -> Any:
    return ask("kv", *LLAMA, *args)["logical_bytes"]


def per_token(ask: Ask, *args: str) -> Any:
    return ask("kv", *LLAMA, "--seq", "1", *args)["bytes_per_token"]


def gib(ask: Ask, model: str, recipe: str) -> float:
    return ask("weights", "--model", model, "--weights", recipe)["weight_bytes"] / 2**30


def attention_work(ask: Ask, phase: str, seq: str, *more: str) -> Any:
    found = op(ask("ops", *LLAMA, "--phase", phase, "--seq", seq, *more), phase, "attention")
    return found["matmul_flops"] + found["vector_flops"]


def prefill_flops(ask: Ask, seq: str) -> Any:
    return ask("ops", *LLAMA, "--phase", "prefill", "--seq", seq)["totals"]["prefill"]["matmul_flops"]


def paging(ask: Ask) -> dict[str, float]:
    taken = ask("kv", *LLAMA, "--seq", "1000", "--block", "16", "--max-len", "2048")["allocations"]
    paged, static = taken
    return {
        "avg_MiB": paged["waste_average_bytes"] / 2**20,
        "max_MiB": paged["waste_max_bytes"] / 2**20,
        "util_T1000": paged["utilisation"],
        "contig_2048": static["utilisation"],
    }


def concat(ask: Ask) -> Any:
    args = ("--prompt", "512", "--gen", "512", "--alloc", "concat")
    return ask("kv", *LLAMA, *args)["allocations"][0]["copied_bytes"]


def decode_model(ask: Ask) -> dict[str, float]:
    total = ask(*KERNEL, "--phase", "decode")["totals"]["decode"]
    return {
        "matmul_flops": total["matmul_flops"],
        "weights_read_share": total["bytes_by_class"]["weights"] / total["bytes"],
        "bound_s": total["bound_s"],
    }


def prefill_model(ask: Ask) -> dict[str, float]:
    total = ask(*KERNEL, "--phase", "prefill")["totals"]["prefill"]
    return {name: total[name] for name in ("matmul_flops", "vector_flops", "bound_s")}


def saved_by_nf4(ask: Ask) -> float:
    """The entry is arithmetic on Table 9.3's own two measurements, which textbook accounting holds."""
    args = ("weights", *LLAMA, "--weights", "fp16,bnb-nf4", "--accounting", "textbook")
    return ask(*args)["points"][1]["textbook"]["saved_fraction"]


def asymptote(ask: Ask) -> float:
    """FLOP per KV byte of one more sequence, the weights' share gone: linears and attention."""
    small, large = (
        ask("ops", *LLAMA, "--phase", "decode", "--seq", "1024", "--batch", b)["totals"]["decode"]
        for b in ("1000", "2000")
    )
    flops = large["matmul_flops"] - small["matmul_flops"]
    kv_read = ask("kv", *LLAMA, "--seq", "1024")["logical_bytes"] * 1000
    return flops / kv_read


ENTRIES: dict[str, tuple[Any, float, Callable[[Ask], Any]]] = {
    "kv.4096": (2147483648, 0, lambda ask: kv(ask, "--seq", "4096")),
    "kv.32k": (17179869184, 0, lambda ask: kv(ask, "--seq", "32k")),
    "kv.linear": (4.0, 0.0005, lambda ask: kv(ask, "--seq", "8k") / kv(ask, "--seq", "2k")),
    "kv.perlayer": (
        67108864,
        0,
        lambda ask: ask("kv", *LLAMA, "--seq", "4096")["groups"][0]["bytes_per_layer"],
    ),
    "kv.token": (524288, 0, per_token),
    "kv.seed003": (1073741824, 0, lambda ask: ask("kv", *LLAMA, "--seq", "4096")["elements"]),
    "gqa.32to8": (0.25, 0.0005, lambda ask: per_token(ask, "--kv-heads", "8") / per_token(ask)),
    "mqa.1overh": (0.03125, 0.0005, lambda ask: per_token(ask, "--kv-heads", "1") / per_token(ask)),
    "gqa.8heads2groups": (
        0.25,
        0.0005,
        lambda ask: (
            per_token(ask, "--heads", "8", "--kv-heads", "2")
            / per_token(ask, "--heads", "8", "--kv-heads", "8")
        ),
    ),
    "attn.n2": (
        16,
        0,
        lambda ask: (
            attention_work(ask, "prefill", "4k", "--full-attention")
            / attention_work(ask, "prefill", "1k", "--full-attention")
        ),
    ),
    "attn.total_ratio": (4.245, 0.01, lambda ask: prefill_flops(ask, "4k") / prefill_flops(ask, "1k")),
    "attn.decode_linear": (67633152, 0, lambda ask: attention_work(ask, "decode", "4096") / 32),
    "a100.peak": (
        311869440000000.0,
        0.001,
        lambda ask: ask("gpus", "show", "a100-80g-sxm")["derived_flops_per_s"],
    ),
    "a100.bw": (
        2039040000000.0,
        0.0005,
        lambda ask: ask("gpus", "show", "a100-80g-sxm")["bandwidth_bytes_per_s"],
    ),
    "ridge.142": (142.5074, 0.0001, lambda ask: ask("roofline", "--gpu", "a100")["ridge"]["headline"]),
    "ridge.153": (153.0162, 0.0001, lambda ask: ask("roofline", "--gpu", "a100")["ridge"]["datasheet"]),
    "pre.linear": (2730.67, 1e-5, lambda ask: op(ask(*TABLE), "prefill", "Q,K,V = X W")["intensity"]),
    "pre.ffn": (2187.93, 0.01, lambda ask: op(ask(*TABLE), "prefill", "D W^D")["intensity"]),
    "pre.attn": (114.67, 0.0001, lambda ask: op(ask(*TABLE), "prefill", "Attn(Q, K, V)")["intensity"]),
    "dec.linear": (7.984, 0.001, lambda ask: op(ask(*TABLE), "decode", "q,k,v = x W")["intensity"]),
    "dec.attn": (0.999, 0.001, lambda ask: op(ask(*TABLE), "decode", "Attn(q, K, V)")["intensity"]),
    "pre.other": (0.9999, 0.01, lambda ask: op(ask(*TABLE), "prefill", "Add&Norm")["intensity"]),
    "dec.addnorm": (0.8889, 0.0001, lambda ask: op(ask(*TABLE), "decode", "Add&Norm")["intensity"]),
    "pre.model": (
        {"matmul_flops": 108306139971584, "vector_flops": 48804921344, "bound_s": 0.34714},
        0.001,
        prefill_model,
    ),
    "dec.model": (
        {"matmul_flops": 110008205312, "weights_read_share": 0.751, "bound_s": 0.008587},
        0.001,
        decode_model,
    ),
    "dec.asymptote": (25.6, 0.02, asymptote),
    "wall.weights": (13214687232, 0.02, lambda ask: ask("weights", *LLAMA)["read_bytes_per_step"]),
    "w.7b.fp16": (
        14000000000.0,
        0.0005,
        lambda ask: ask("weights", "--params", "7e9", "--bits", "16")["weight_bytes"],
    ),
    "w.int8": (
        7000000000.0,
        0.0005,
        lambda ask: ask("weights", "--params", "7e9", "--bits", "8")["weight_bytes"],
    ),
    "w.int4": (
        3500000000.0,
        0.0005,
        lambda ask: ask("weights", "--params", "7e9", "--bits", "4")["weight_bytes"],
    ),
    "t93.7b.fp16": (12.551, 0.02, lambda ask: gib(ask, "llama-7b", "fp16")),
    "t93.7b.int8": (6.525, 0.02, lambda ask: gib(ask, "llama-7b", "bnb-int8")),
    "t93.7b.int4": (3.881, 0.02, lambda ask: gib(ask, "llama-7b", "bnb-nf4")),
    "t93.13b.fp16": (24.244, 0.02, lambda ask: gib(ask, "llama-13b", "fp16")),
    "t93.13b.int8": (12.435, 0.02, lambda ask: gib(ask, "llama-13b", "bnb-int8")),
    "t93.13b.int4": (7.258, 0.02, lambda ask: gib(ask, "llama-13b", "bnb-nf4")),
    "t93.save69": (0.6868, 0.005, saved_by_nf4),
    "rule.60v30": (
        {"b60": 30000000000.0, "b30": 30000000000.0},
        0.0005,
        lambda ask: {
            "b60": ask("weights", "--params", "60e9", "--bits", "4")["weight_bytes"],
            "b30": ask("weights", "--params", "30e9", "--bits", "8")["weight_bytes"],
        },
    ),
    "rule.2bit": (
        {"b65": 16250000000.0, "b13": 26000000000.0},
        0.0005,
        lambda ask: {
            "b65": ask("weights", "--params", "65e9", "--bits", "2")["weight_bytes"],
            "b13": ask("weights", "--params", "13e9", "--bits", "16")["weight_bytes"],
        },
    ),
    "pg.concat": (410975731712, 0, concat),
    "pg.waste": (
        {"avg_MiB": 3.75, "max_MiB": 7.5, "util_T1000": 0.9921, "contig_2048": 0.4883},
        0.001,
        paging,
    ),
    "kvq.size": (8.25, 0.01, lambda ask: kv(ask, "--seq", "32k", "--kv", "int8-g64") / 2**30),
    "rope.cost": (
        24576,
        0,
        lambda ask: (
            op(ask("ops", *LLAMA, "--phase", "decode", "--seq", "1"), "decode", "rope")["vector_flops"] / 32
        ),
    ),
    "swa": (
        0.125,
        0.0005,
        lambda ask: kv(ask, "--seq", "32k", "--window", "4096") / kv(ask, "--seq", "32k"),
    ),
}

SAID_IN_WORDS = {
    "kv.formula": "`costmodel.kv.row_bytes`; batch and per-layer exceptions in tests/costmodel/test_kv.py",
    "gqa.which_models": "test_which_llama_2_shares_heads",
    "gqa.flops": "test_gqa_leaves_score_flops_alone",
    "int.matmul": "property in tests/costmodel/test_op.py",
    "pre.verdict": "test_prefill_attention_is_near_the_ridge",
    "kvq.error": "README, the textbook page",
}
"""Entries without a number, and where they are answered."""

OTHERS = ("dec.asymptote", "pre.model", "dec.model", "attn.total_ratio", "rule.60v30")
"""Entries of later commands that these can answer already."""


@pytest.mark.parametrize("name", ENTRIES)
def test_ledger(name: str, ask: Ask, holds: Callable[..., None]) -> None:
    wanted, tolerance, answer = ENTRIES[name]
    holds(answer(ask), wanted, tolerance)


def test_which_llama_2_shares_heads(ask: Ask) -> None:
    for model, shares in (("llama-2-7b", False), ("llama-2-13b", False), ("llama-2-70b", True)):
        attention = ask("models", "show", model)["groups"][0]["blocks"][0]
        assert (attention["kv_heads"] < attention["heads"]) is shares


def test_gqa_leaves_score_flops_alone(ask: Ask) -> None:
    """gqa.flops: the cache shrinks to K/N, QK and PV FLOPs stay, intensity rises by N/K."""
    mha, gqa = (
        op(
            ask("ops", *LLAMA, "--phase", "decode", "--seq", "4k", "--kv-heads", k),
            "decode",
            "attention",
        )
        for k in ("32", "8")
    )
    assert gqa["matmul_flops"] == mha["matmul_flops"]
    assert gqa["bytes_by_class"]["kv"] * 4 == mha["bytes_by_class"]["kv"]
    assert gqa["intensity"] / mha["intensity"] == pytest.approx(4, rel=0.01)


def test_prefill_attention_is_near_the_ridge(ask: Ask) -> None:
    """pre.verdict: 114.67 is below 142.51, so "near", not "compute-bound"; bytes-true eager is not."""
    table = op(ask(*TABLE), "prefill", "Attn(Q, K, V)")
    assert table["intensity"] < ask("roofline", "--gpu", "a100")["ridge"]["textbook"]
    assert table["verdict"] == "near the ridge (below)"
    eager = ask(*KERNEL, "--phase", "prefill", "--attention", "eager")
    stages = [op(eager, "prefill", f"attention.{stage}") for stage in ("qk", "softmax", "pv")]
    flops = sum(s["matmul_flops"] + s["vector_flops"] for s in stages)
    assert flops / sum(s["bytes"] for s in stages) == pytest.approx(57.33, abs=0.005)
    assert [round(s["intensity"], 1) for s in stages] == [102.4, 1.0, 102.4]
    assert {s["verdict"] for s in stages} == {"memory-bound"}


def test_every_entry_of_these_commands_is_here(ledger: dict[str, Any]) -> None:
    entries = ledger.values()
    ours = {"kv", "weights", "ops", "roofline", "models", "gpus"}
    asked = {e["id"] for e in entries if e["command"].split()[1:2] and e["command"].split()[1] in ours}
    assert asked <= set(ENTRIES) | set(SAID_IN_WORDS)
    assert set(ENTRIES) - asked == set(OTHERS)


def test_ledger_is_the_source(ledger: dict[str, Any]) -> None:
    for name, (value, tolerance, _) in ENTRIES.items():
        assert (ledger[name]["value"], ledger[name]["tolerance"]) == (value, tolerance), name
