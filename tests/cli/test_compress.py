"""`infercost compress`: the ledger's entries on pruning and distillation, consistency, and bad input."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Ask = Callable[..., Any]
Run = Callable[..., Any]
LLAMA = ("compress", "--model", "llama-2-7b")
ONE = ("--prompt", "64", "--gen", "4")


def test_prune_unstructured(ask: Ask) -> None:
    """csr16 12.8, bitmap 7.4, dense 16 bits a weight at 60 %; they pay from 50 and from 6.25 %."""
    got = ask("compress", "--sparsity", "0.6", "--storage", "bitmap")
    bits = {row["storage"]: row["bits_per_weight"] for row in got["storages"]}
    for name, wanted in {"csr16": 12.8, "bitmap": 7.4, "dense": 16}.items():
        assert bits[name] == pytest.approx(wanted, rel=0.0005)
    pays = {row["storage"]: row["pays_from_sparsity"] for row in got["storages"]}
    assert (pays["bitmap"], pays["csr16"]) == (0.0625, 0.5)
    assert got["bits_per_weight"] == pytest.approx(7.4)
    assert got["decode_speedup_at_most"] == pytest.approx(2.16, abs=0.005)


def test_prune_24(ask: Ask) -> None:
    """0.5625 of the 16-bit bytes; the ridge of 153 becomes one of 306."""
    assert ask("compress", "--pattern", "2:4")["of_dense"] == pytest.approx(0.5625, rel=0.0005)
    got = ask("compress", "--model", "llama-7b", "--pattern", "2:4", "--gpu", "a100", *ONE)
    assert got["runs_as"] == "sparse"
    assert got["ridge_flop_per_byte"]["dense"] == pytest.approx(153, abs=0.05)
    assert got["ridge_flop_per_byte"]["sparse"] == pytest.approx(306, abs=0.05)
    assert got["ratios"]["prefill_matmul_flops"] == 1


def test_prune_sheared(ask: Ask) -> None:
    args = ("--structured", "2.7b", "--retrain-tokens", "50e9", "--pretrain-tokens", "2T", "--gpu", "a100")
    got = ask(*LLAMA, *args)
    assert got["training"]["flops"] == pytest.approx(8.1e20, rel=1e-12)
    assert got["training"]["vs_pretraining"] == pytest.approx(0.01, rel=0.02)
    assert got["training"]["gpu_hours"] == pytest.approx(1803, rel=0.02)
    assert got["ratios"]["read_bytes_per_step"] == pytest.approx(0.401, rel=0.02)
    assert got["ratios"]["weight_bytes"] == pytest.approx(0.401, rel=0.02)
    assert got["after"]["e2e_s"] is None


def test_distil(ask: Ask) -> None:
    """140 over 42 FLOPs a parameter and token, which the ledger prints as 3.33; 64 KB of a soft label."""
    got = ask("compress", "--distil", "--teacher", "70b", "--student", "7b", "--vocab", "32000")
    assert got["teacher_over_student"] == pytest.approx(10 / 3, rel=1e-12)
    assert f"{got['teacher_over_student']:.2f}" == "3.33"
    assert got["soft_label_bytes_per_token"] == 64_000
    assert got["flops_per_token"] == {"student": 42e9, "teacher": 140e9, "total": 182e9}


def test_every_entry_on_compression_is_here(shared: Any) -> None:
    import yaml

    entries = yaml.safe_load((shared / "seed" / "ledger.yaml").read_text(encoding="utf-8"))["entries"]
    asked = {e["id"]: e["value"] for e in entries if e["command"].startswith("infercost compress")}
    assert asked == {
        "prune.unstructured": {"csr16": 12.8, "bitmap": 7.4, "dense": 16},
        "prune.24": 0.5625,
        "prune.sheared": {
            "train_FLOP": 8.1e20,
            "vs_pretrain": 0.01,
            "decode_bytes_ratio": 0.401,
            "A100_hours_at_40pct": 1803.0,
        },
        "distil": 3.33,
    }


def test_the_same_request_as_request_says(ask: Ask) -> None:
    args = ("--gpu", "h100", "--prompt", "500", "--gen", "20", "--batch", "3", "--price", "2")
    got = ask("compress", "--model", "llama-3-8b", "--keep-layers", "16", *args)
    plain = ask("request", "--model", "llama-3-8b", *args)
    short = ask("request", "--model", "llama-3-8b", "--layers", "16", *args)
    for side, wanted in (("before", plain), ("after", short)):
        for key in ("ttft_s", "tpot_s", "e2e_s", "usd", "peak_memory_bytes", "fits"):
            assert got[side][key] == wanted[key]
    assert got["ratios"]["e2e_s"]["floor"] == pytest.approx(short["e2e_s"]["floor"] / plain["e2e_s"]["floor"])


def test_zeros_without_a_kernel_save_only_the_file(ask: Ask) -> None:
    args = ("compress", "--model", "llama-7b", "--sparsity", "60%", *ONE)
    dense, file, kernel = (
        ask(*args, *more) for more in ((), ("--storage", "bitmap"), ("--storage", "bitmap", "--kernel"))
    )
    assert dense["before"] == dense["after"]
    assert dense["runs_as"] == file["runs_as"] == "dense"
    assert file["after"]["e2e_s"] == file["before"]["e2e_s"]
    assert file["after"]["weight_bytes"] == file["before"]["weight_bytes"] > file["after"]["stored_bytes"]
    assert kernel["after"]["weight_bytes"] == file["after"]["stored_bytes"]
    stored = ask("weights", "--model", "llama-7b", "--weights", "fp16-bitmap-0.6")["weight_bytes"]
    assert stored == file["after"]["stored_bytes"]
    # Never faster than the pruned matrices alone: 16 / 7.4.
    assert 1 < 1 / kernel["ratios"]["tpot_s"]["bound"] < 16 / 7.4
    assert kernel["ratios"]["prefill_matmul_flops"] == kernel["ratios"]["decode_matmul_flops"] == 1


@pytest.mark.parametrize(
    ("weights", "bits"),
    [
        ("bf16", {"dense": 16, "bitmap": 1 + 8, "csr16": 16, "csr32": 24, "2:4": 8 + 1}),
        ("fp8", {"dense": 8, "bitmap": 1 + 4, "csr16": 12, "csr32": 20, "2:4": 4 + 1}),
    ],
)
def test_half_of_the_values_in_bits(weights: str, bits: dict[str, float], ask: Ask) -> None:
    """A bit each for the map, 16 or 32 for each index of what is left, 2 bits for each of two of four."""
    got = ask("compress", "--model", "llama-7b", "--weights", weights, "--sparsity", "0.5", *ONE)
    assert {each["storage"]: each["bits_per_weight"] for each in got["storages"]} == bits
    for each in got["storages"]:
        assert each["of_dense"] == bits[each["storage"]] / bits["dense"]


def test_two_four_needs_units_for_it(ask: Ask) -> None:
    args = ("compress", "--model", "llama-7b", "--storage", "2:4", *ONE)
    assert ask(*args, "--gpu", "t4")["runs_as"] == "dense"
    assert ask(*args, "--gpu", "h100", "--no-kernel")["runs_as"] == "dense"
    assumed = ask(*args, "--gpu", "t4", "--kernel")
    assert assumed["runs_as"] == "sparse"
    assert assumed["ridge_flop_per_byte"] is None
    experts = ask("compress", "--model", "gpt-oss-20b", "--weights", "bf16", "--storage", "2:4", *ONE)
    assert experts["ratios"]["weight_bytes"] < 0.65


def test_a_model_as_the_target(ask: Ask, tmp_path: Path) -> None:
    """The shape of Sheared-LLaMA-2.7B as a config.json, and the same by what is kept."""
    config = {
        "model_type": "llama",
        "hidden_size": 2560,
        "intermediate_size": 6912,
        "num_hidden_layers": 32,
        "num_attention_heads": 20,
        "vocab_size": 32000,
        "torch_dtype": "float16",
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    target = ask(*LLAMA, "--to", str(path), *ONE)
    kept = ask(*LLAMA, "--keep-hidden", "2560", "--keep-heads", "20", "--keep-ffn", "6912", *ONE)
    for key in ("parameters", "weight_bytes", "cache_bytes", "prefill_matmul_flops", "e2e_s"):
        assert target["after"][key] == kept["after"][key]
    assert kept["after"]["parameters"] == 2_701_560_320


def test_training_is_repaid_by_cheaper_requests(ask: Ask) -> None:
    args = ("--keep-layers", "16", "--retrain-tokens", "1B", "--teacher", "llama-2-7b", "--price", "2", *ONE)
    got = ask(*LLAMA, *args)
    bill = got["training"]
    assert bill["student_flops"] == 6 * got["after"]["active_parameters"] * 1e9
    assert bill["teacher_flops"] == 2 * got["before"]["active_parameters"] * 1e9
    assert bill["flops"] == bill["student_flops"] + bill["teacher_flops"]
    saved = got["before"]["usd"] - got["after"]["usd"]
    assert got["repaid_after_requests"] * saved == pytest.approx(bill["usd"])


def test_text_of_a_teacher_is_priced_as_requests(ask: Ask) -> None:
    served = ("--gpu", "h100", "--tp", "2", "--batch", "32", "--prompt", "300", "--gen", "50", "--price", "2")
    args = ("compress", "--distil", "--teacher", "llama-3-70b", "--student", "8b", "--examples", "1k")
    got = ask(*args, *served)
    plain = ask("request", "--model", "llama-3-70b", *served)
    written = got["generation"]
    assert written["usd"] == pytest.approx(1000 * plain["usd"])
    assert written["gpu_hours"] == pytest.approx(written["usd"] / 2)
    assert written["tokens"] == 1000 * 350
    assert got["training"]["student_flops"] == 6 * 8e9 * 350_000
    assert got["training"]["teacher_flops"] == 0
    assert got["usd"] == pytest.approx(written["usd"] + got["training"]["usd"])
    closed = ask("compress", "--distil", "--student", "8b", "--examples", "1k", "--api-price", "2,8", *served)
    assert closed["generation"]["usd"] == pytest.approx(1000 * (300 * 2 + 50 * 8) / 1e6)


def test_a_teacher_on_ranks_with_a_batch_each(ask: Ask) -> None:
    """--ep alone: 8 ranks write 32 texts each at the same time."""
    served = ("--gpu", "h200", "--ep", "8", "--batch", "32", "--prompt", "300", "--gen", "50", "--price", "2")
    args = ("compress", "--distil", "--teacher", "mixtral-8x7b", "--student", "8b", "--examples", "1k")
    took = ask("request", "--model", "mixtral-8x7b", *served)["e2e_s"]["expected"]
    written = ask(*args, *served)["generation"]
    assert written["s_per_example"] == pytest.approx(took / (8 * 32))
    assert written["gpu_hours"] == pytest.approx(1000 * took / 32 / 3600)
    assert written["usd"] == pytest.approx(2 * written["gpu_hours"])


def test_soft_labels_take_one_vocabulary(ask: Ask, run: Run) -> None:
    pair = ("compress", "--distil", "--teacher", "llama-2-70b", "--student", "llama-2-7b", "--tokens", "1B")
    got = ask(*pair, "--top-k", "64")
    assert got["soft_label_bytes"] == 1e9 * 64 * 4
    assert ask(*pair)["soft_label_bytes"] == 1e9 * 64_000
    odd = run("compress", "--distil", "--teacher", "llama-3-70b", "--student", "llama-2-7b")
    assert odd.code == 2
    assert "one vocabulary" in odd.err


def test_lists_are_points(ask: Ask, run: Run) -> None:
    args = ("compress", "--model", "llama-7b", "--sparsity", "0.5,0.7", "--storage", "dense,bitmap", *ONE)
    got = ask(*args, "--kernel")["points"]
    assert [(p["inputs"]["sparsity"], p["inputs"]["storage"]) for p in got] == [
        (0.5, "dense"),
        (0.5, "bitmap"),
        (0.7, "dense"),
        (0.7, "bitmap"),
    ]
    rows = list(csv.DictReader(io.StringIO(run(*args, "--csv").out)))
    assert len(rows) == 4
    assert len(run(*args, "-q").out.split()) == 4
    assert len(ask("compress", "--sparsity", "0.5,0.7")["points"]) == 2


SCREENS = [
    (*LLAMA, "--keep-layers", "20", "--retrain-tokens", "1B", "--pretrain-tokens", "2T"),
    (*LLAMA, "--to", "2.7b"),
    (*LLAMA, "--storage", "2:4"),
    (*LLAMA, "--sparsity", "0.6", "--storage", "csr"),
    (*LLAMA, "--keep-layers", "20", "--gen", "1", "--calibration", "none"),
    ("compress", "--sparsity", "0.6"),
    ("compress", "--distil", "--teacher", "70b", "--student", "7b"),
    ("compress", "--distil", "--teacher", "llama-2-70b", "--student", "llama-2-7b", "--tokens", "1B"),
]


@pytest.mark.parametrize("args", SCREENS)
def test_every_format(args: tuple[str, ...], run: Run) -> None:
    plain = run(*args)
    assert (plain.code, plain.err) == (0, "")
    document = run(*args, "--json").json
    assert document["schema"] == "infercost.compress/1"
    assert {"inputs", "conventions", "sources"} <= set(document)
    json.dumps(document, allow_nan=False)
    assert list(csv.DictReader(io.StringIO(run(*args, "--csv").out)))
    assert run(*args, "--format", "md").out.startswith("**")
    assert float(run(*args, "-q").out) > 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "needs what to do"),
        (("--keep-layers", "3"), "needs --model"),
        ((*LLAMA[1:], "--keep-layers", "99"), "cannot be kept"),
        ((*LLAMA[1:], "--keep-heads", "-1"), "cannot be kept"),
        ((*LLAMA[1:], "--to", "70b"), "more than the"),
        ((*LLAMA[1:], "--to", "llama-2-13b"), "more than the"),
        ((*LLAMA[1:], "--to", "2.7x"), "--to '2.7x' is not a number"),
        ((*LLAMA[1:], "--to", "llama-2-9b"), "did you mean"),
        ((*LLAMA[1:], "--to", "2b", "--keep-layers", "3"), "--to says all"),
        ((*LLAMA[1:], "--sparsity", "nan"), "is no share"),
        ((*LLAMA[1:], "--sparsity", "1"), "is no share"),
        ((*LLAMA[1:], "--sparsity", "0"), "is no share"),
        ((*LLAMA[1:], "--sparsity", "1e-12"), "is no share"),
        ((*LLAMA[1:], "--sparsity", "0.5,"), "empty part"),
        ((*LLAMA[1:], "--storage", "bitmap"), "needs --sparsity"),
        ((*LLAMA[1:], "--storage", "bitmaps", "--sparsity", "0.5"), "did you mean bitmap"),
        ((*LLAMA[1:], "--storage", "2:4", "--sparsity", "0.6"), "a sparsity of a half"),
        ((*LLAMA[1:], "--keep-layers", "3", "--kernel"), "--kernel and --no-kernel"),
        ((*LLAMA[1:], "--keep-layers", "3", "--retrain-tokens", "-1"), "--retrain-tokens"),
        ((*LLAMA[1:], "--keep-layers", "3", "--teacher", "7b"), "give --retrain-tokens"),
        ((*LLAMA[1:], "--keep-layers", "3", "--mfu", "nan"), "--mfu"),
        ((*LLAMA[1:], "--keep-layers", "3", "--mfu", "0"), "--mfu"),
        ((*LLAMA[1:], "--keep-layers", "3", "--price", "nan"), "--price"),
        ((*LLAMA[1:], "--keep-layers", "3", "--student", "7b"), "give --distil"),
        ((*LLAMA[1:], "--keep-layers", "3", "--gen", "2M"), "at most"),
        (("--model", "gpt-oss-20b", "--storage", "2:4"), "the mix mxfp4-experts"),
        (
            ("--model", "llama-7b", "--weights", "q8_0", "--sparsity", "0.5", "--storage", "bitmap"),
            "weight format",
        ),
        (("--distil",), "needs --student"),
        (("--distil", "--student", "7b"), "needs --teacher"),
        (
            ("--distil", "--student", "7b", "--teacher", "70b", "--sparsity", "0.5"),
            "--sparsity without effect",
        ),
        (("--distil", "--student", "7b", "--teacher", "70b", "--examples", "9"), "must be a model"),
        (("--distil", "--student", "7b", "--teacher", "70b", "--api-price", "1,2"), "give --examples"),
        (("--distil", "--student", "7b", "--examples", "9", "--api-price", "1"), "in and out"),
        (("--distil", "--student", "7b", "--examples", "9", "--api-price", "nan,1"), "in and out"),
        (("--distil", "--student", "7b", "--examples", "0", "--api-price", "1,1"), "--examples"),
        (("--distil", "--student", "7b", "--teacher", "70b", "--vocab", "-4"), "--vocab"),
        (("--distil", "--student", "7b", "--teacher", "70b", "--top-k", "0"), "--top-k"),
        (("--distil", "--student", "7b", "--teacher", "70b", "--tokens", "1e99"), "--retrain-tokens"),
        (("--distil", "--student", "7b", "--teacher", "70b", "--gpu", "a100,h100"), "one GPU"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(args: tuple[str, ...], said: str, run: Run) -> None:
    got = run("compress", *args)
    assert (got.code, got.out) == (2, ""), got.err
    assert said in got.err
    assert got.err.count("\n") == 1
