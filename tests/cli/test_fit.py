"""`infercost fit`: the ledger, measured peaks of transformers, and laws of a budget."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infercost.costmodel.memory import Load, largest_batch, longest
from infercost.costmodel.setting import Setting
from infercost.costmodel.sharding import Parallel
from infercost.costmodel.step import Run
from infercost.hardware.catalogue import load_gpu
from infercost.models.catalogue import load_model

Ask = Callable[..., Any]
SHARED = Path(__file__).parents[3] / "shared" / "end_to_end" / "memory.csv"
GIB = 1 << 30
PEAKS = ((1, 25.617), (2, 26.7867), (4, 29.1355), (8, 33.8238), (16, 43.2022), (32, 61.9581))
"""Batch and GiB at 768 tokens: Llama-2-13B in fp16, huggingface/optimum-benchmark, short_report.csv."""


def terms(document: Any) -> dict[str, int]:
    return {term["name"]: term["bytes"] for term in document["terms"]}


def test_the_ledger(ask: Ask) -> None:
    """kv.context_claims: fits the whole card and fails once a reserve is kept."""
    args = ("fit", "--model", "llama-7b", "--seq", "128k", "--gpu", "a100-80g")
    kept, raw = ask(*args), ask(*args, "--share", "1")
    assert terms(raw)["cache"] == 68_719_476_736
    assert terms(raw)["weights"] == pytest.approx(13.477e9, rel=1e-4)
    spare = (raw["free_bytes"] + terms(raw)["activations"]) / GIB
    assert spare == pytest.approx(3.45, abs=0.005)
    assert (raw["fits"], kept["fits"]) == (True, False)
    assert next(change["kv"] for change in kept["would_fit"]) == "fp8"


@pytest.mark.parametrize(("batch", "gib"), PEAKS)
def test_peaks_of_a_cache_that_is_concatenated(batch: int, gib: float, ask: Ask) -> None:
    args = ("--gpu", "a100-80g", "--seq", "768", "--batch", str(batch), "--engine", "hf")
    got = ask("fit", "--model", "llama-2-13b", *args)
    assert got["total_bytes"] / GIB == pytest.approx(gib, rel=0.02)


# The repository is tested without ../shared, too; PEAKS above are the fp16 rows of this file.
@pytest.mark.skipif(not SHARED.exists(), reason="../shared/end_to_end/memory.csv is not here")
def test_every_measured_peak_of_transformers(ask: Ask) -> None:
    with SHARED.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["what"] == "max_memory_allocated"]
    assert len(rows) == 16
    for row in rows:
        recipe = {"f16": "fp16"}.get(row["quant"], "gptq")
        args = ("--gpu", "a100-80g", "--seq", row["seq"], "--batch", row["batch"], "--weights", recipe)
        got = ask("fit", "--model", row["model"], *args, "--engine", "hf")
        measured = float(row["value_gib"])
        if recipe == "fp16":
            assert got["total_bytes"] / GIB == pytest.approx(measured, rel=0.02)
        else:
            # Beyond weights and cache by the same at every batch (2.4 % of the least): ExLlamaV2's scratch.
            assert measured - got["total_bytes"] / GIB == pytest.approx(0.87, abs=0.03)


@settings(max_examples=40, deadline=None)
@given(
    tokens=st.integers(1, 1 << 17),
    batch=st.integers(1, 64),
    share=st.floats(0.05, 1),
    model=st.sampled_from(["llama-7b", "gemma-3-27b", "deepseek-v3", "jamba-v0.1"]),
    tp=st.sampled_from([1, 2, 4, 8]),
)
def test_the_longest_fits_and_one_more_does_not(
    tokens: int, batch: int, share: float, model: str, tp: int
) -> None:
    setting = Setting(load_model(model), Run(), load_gpu("h200"), Parallel(tp=tp))
    load = Load(tokens, batch, share)
    memory = load.memory(setting)
    assert memory.total == sum(memory)
    length, most = longest(load, setting), largest_batch(load, setting)
    assert length is not None
    assert most is not None
    assert load.fits(setting) == (tokens <= length) == (batch <= most)
    if length:
        assert load._replace(tokens=length).fits(setting)
    assert not load._replace(tokens=length + 1).fits(setting)
    assert not load._replace(batch=most + 1).fits(setting)


def test_ranks_and_what_they_hold(ask: Ask) -> None:
    args = ("fit", "--model", "llama-3-70b", "--gpu", "h100", "--seq", "8k")
    one, four = ask(*args), ask(*args, "--tp", "4")
    assert (one["fits"], one["gpus_needed"], one["gpus_as"]) == (False, 2, {"tp": 2, "pp": 1})
    assert terms(one)["cache"] == 4 * terms(four)["cache"]
    # More ranks than KV heads: a copy on each, so no less than an eighth.
    args = ("fit", "--model", "llama-3-70b", "--gpu", "h100", "--seq", "8k")
    assert terms(ask(*args, "--tp", "16"))["cache"] == terms(ask(*args, "--tp", "8"))["cache"]
    latent = ("fit", "--model", "deepseek-v3", "--gpu", "h200", "--seq", "8k")
    assert terms(ask(*latent, "--tp", "8"))["cache"] == terms(ask(*latent))["cache"]


def test_which_gpu(ask: Ask) -> None:
    got = ask("fit", "--model", "llama-3-70b", "--gpu", "all", "--seq", "8k")["points"]
    by_name = {point["inputs"]["gpu"]: point for point in got}
    assert len(by_name) > 60
    assert (by_name["b200"]["fits"], by_name["t4"]["fits"]) == (True, False)
    assert not any(name.startswith("cpu") for name in by_name)


def test_a_state_has_no_longest_context(ask: Ask) -> None:
    got = ask("fit", "--model", "mamba-130m", "--gpu", "t4", "--seq", "1M")
    assert got["max_seq"] is None
    assert got["max_batch"] > 1000


def test_an_encoder_grows_with_the_prompt(ask: Ask) -> None:
    args = ("fit", "--model", "flan-t5-xl", "--gpu", "rtx4090", "--seq")
    longest_ = ask(*args, "512")["max_seq"]
    assert ask(*args, str(longest_))["fits"]
    assert not ask(*args, str(longest_ + 1))["fits"]


def test_many_short_sequences_have_many_logits(ask: Ask) -> None:
    """51,200 rows of 128,256 logits of two bytes, whatever the chunk."""
    got = ask("fit", "--model", "llama-3-8b", "--gpu", "h100", "--seq", "1", "--batch", "50k", "--chunk", "1")
    assert terms(got)["activations"] > 51_200 * 128_256 * 2


def test_what_was_seen_beside_the_terms(run: Callable[..., Any]) -> None:
    args = ("fit", "--model", "llama-3-8b", "--gpu", "h100", "--seq", "8k", "--actual")
    assert "CUDA graphs" in run(*args, "20GB").out
    assert "takes its pool" in run(*args, "72 GiB").out
    assert "less is held" in run(*args, "10GiB").out
    assert run(*args, "some").code == 2


def test_require_is_an_exit(run: Callable[..., Any]) -> None:
    args = ("fit", "--model", "llama-3-70b", "--seq", "8k", "--require")
    assert run(*args, "--gpu", "b200").code == 0
    failed = run(*args, "--gpu", "h100")
    assert failed.code == 1
    assert "does not fit" in failed.err
    assert run("fit", "--model", "llama-7b", "--seq", "1k", "-q").out.strip().replace(".", "").isdigit()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--seq", "1k", "--share", "0"), "--share"),
        (("--seq", "1k", "--tp", "64"), "does not divide"),
        (("--seq", "1k", "--engine", "vlm"), "did you mean vllm"),
        (("--seq", "1k", "--engine", "gpt-fast"), "--engine"),
        (("--seq", "1k", "--kv-budget", "1GiB"), "--engine"),
        (("--seq", "1k", "--engine", "vllm", "--dcp", "0"), "--dcp"),
        (("--seq", "1k", "--capacity", "much"), "--capacity"),
    ],
)
def test_what_cannot_be(args: tuple[str, ...], said: str, run: Callable[..., Any]) -> None:
    got = run("fit", "--model", "llama-7b", *args)
    assert got.code == 2
    assert said in got.err


def test_without_a_length_the_whole_context(ask: Ask, run: Callable[..., Any]) -> None:
    """Of each model its own; a model that names none asks for one."""
    args = ("fit", "--model", "llama-3-8b,llama-3.1-8b", "--gpu", "h100")
    whole = ask(*args)["points"]
    assert [point["inputs"]["seq"] for point in whole] == [8_192, 131_072]
    assert whole == [ask(*args, "--seq", seq)["points"][i] for i, seq in enumerate(("8192", "131072"))]
    none = run("fit", "--model", "mamba-130m")
    assert none.code == 2
    assert "give --seq" in none.err


def chunk_of(ask: Callable[..., Any], gpu: str, *args: str) -> int:
    got = ask("fit", "--model", "gemma-3-27b", "--gpu", gpu, "--seq", "128k", "--engine", "vllm", *args)
    return int(got["inputs"]["chunk"])


def test_vllms_step_depends_on_the_card(ask: Callable[..., Any], run: Callable[..., Any]) -> None:
    """vllm/engine/arg_utils.py get_batch_defaults; `kv` names no card, so it says all."""
    args = ("fit", "--model", "gemma-3-27b", "--gpu", "a100-80g", "--seq", "128k", "--engine", "vllm")
    plain, given = ask(*args), ask(*args, "--max-num-batched-tokens", "2048")
    assert plain["terms"] == given["terms"]
    assert chunk_of(ask, "a100-80g") == 2048
    assert chunk_of(ask, "h100") == 8192
    assert chunk_of(ask, "b200") == 16384
    assert chunk_of(ask, "a100-80g", "--max-num-batched-tokens", "8192") == 8192
    assert "steps of 2,048 tokens of at most 256 sequences" in run(*args).out
    kv = run("kv", "--model", "gemma-3-27b", "--seq", "128k", "--engine", "vllm").out
    assert "steps of 8,192 tokens (--max-num-batched-tokens); the engine's own, from 160 GiB 16,384" in kv
    assert "A100 2,048, below 70 GiB 2,048" in kv


def test_a_number_of_blocks_decides(ask: Callable[..., Any], run: Callable[..., Any]) -> None:
    """1,000 blocks of 16 tokens of 128 KiB: 16,000 tokens, whatever the card has beside them."""
    args = ("fit", "--model", "llama-3.1-8b", "--gpu", "h100", "--engine", "vllm")
    blocks, room = ("--num-gpu-blocks", "1000"), ("--kv-budget", f"{1000 * 16 * 128}KiB")
    for limit in (blocks, room):
        got = ask(*args, "--seq", "32k", *limit)
        assert (got["fits"], got["max_seq"], got["max_batch"]) == (False, 16000, 0)
        assert got["pool"]["blocks"] == 1000
        assert got["smallest_share"] is None
        assert [change["weights"] for change in got["would_fit"]] == []
        assert run(*args, "--seq", "32k", *limit, "--require").code == 1
    narrow = ask(*args, "--seq", "16000", *blocks)
    assert (narrow["fits"], narrow["max_batch"]) == (True, 1)
    assert ask(*args, "--seq", "4000", *blocks)["max_batch"] == 4
    assert ask(*args, "--seq", "4000", *blocks, "--kv-budget", "1GiB")["max_batch"] == 4, "blocks go first"
    none = run("fit", "--model", "llama-3.1-8b", "--gpu", "h100", "--engine", "llama.cpp", *blocks)
    assert none.code == 2
    assert "--num-gpu-blocks without effect on `fit --engine llama.cpp`" in none.err


def test_a_given_share_is_in_the_foot_note(run: Callable[..., Any]) -> None:
    args = ("fit", "--model", "llama-3.1-8b", "--gpu", "h100", "--seq", "8k", "--engine", "llama.cpp")
    assert "budget: 0.5 of 79.65 GiB" in run(*args, "--share", "0.5").out
    assert "budget: all of 79.65 GiB" in run(*args).out


def test_help_for_formats_of_long_blocks(ask: Callable[..., Any]) -> None:
    """q4_k has blocks of 256 values, as Gemma 3 12B has them to a head."""
    got = ask("fit", "--model", "gemma-3-12b", "--gpu", "rtx3060", "--seq", "4k", "--kv", "q4_k")
    assert not got["fits"]
    assert {change["kv"] for change in got["would_fit"]} == {"q4_k"}


def test_encoders_of_several_sequences(ask: Callable[..., Any]) -> None:
    """8,192 tokens of a step hold 5 sequences of Whisper's 1,500 positions: their widest kernel is the MLP's
    activation, 5,120 values in and out of 2 bytes, beside 1,280 of each token of the decoder."""
    args = ("fit", "--model", "whisper-large-v3", "--gpu", "h100", "--seq", "200", "--batch")
    one, three, many = (
        next(term["bytes"] for term in ask(*args, batch)["terms"] if term["name"] == "activations")
        for batch in ("1", "3", "32")
    )
    encoder, token = 1500 * 2 * 5120 * 2, 1280 * 2
    assert one == encoder + 200 * token
    assert three == 3 * encoder + 3 * 200 * token
    assert many == 5 * encoder + 32 * 200 * token
