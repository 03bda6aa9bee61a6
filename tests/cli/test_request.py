"""`infercost request`: the ledger's figures, laws that hold of any request, and degenerate sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infercost.cli.calibrations import clock_of
from infercost.costmodel.request import Request
from infercost.costmodel.setting import Setting, step_cost, summed
from infercost.costmodel.sharding import Parallel
from infercost.costmodel.step import Run
from infercost.hardware.catalogue import load_gpu
from infercost.models.catalogue import load_model

Ask = Callable[..., Any]
LLAMA = ("request", "--model", "llama-7b")
SIZES = st.integers(1, 4096)


def test_the_ledger(ask: Ask) -> None:
    """Values and tolerances of ../shared/seed/ledger.yaml, by the commands it names."""
    short, long = ask(*LLAMA, "--phase", "prefill", "--seq", "1k,4k")["points"]
    flops = [point["phases"]["prefill"]["matmul_flops"] for point in (short, long)]
    assert flops[1] / flops[0] == pytest.approx(4.245, rel=0.01)  # attn.total_ratio
    assert ask(*LLAMA, "--prompt", "1k", "--out", "100")["decode_steps"] == 99  # decode.steps
    whole = ask(*LLAMA, "--phase", "prefill", "--batch", "8", "--seq", "1024", "--gpu", "a100-80g-sxm")
    assert whole["phases"]["prefill"]["matmul_flops"] == 108_306_139_971_584  # pre.model
    assert whole["ttft_s"]["bound"] == pytest.approx(0.34714, rel=0.001)
    assert whole["ttft_s"]["floor"] == pytest.approx(0.3727, rel=0.001)
    step = ask(*LLAMA, "--phase", "decode", "--batch", "8", "--seq", "1024")
    decoding = step["phases"]["decode"]
    assert decoding["matmul_flops"] == 110_008_205_312  # dec.model
    assert decoding["weight_bytes"] / decoding["bytes"] == pytest.approx(0.751, rel=0.001)
    assert (step["token_passes"], step["decode_steps"]) == (1, 1)
    assert step["tpot_s"]["bound"] == pytest.approx(0.008587, rel=0.001)
    assert step["tpot_s"]["floor"] == pytest.approx(0.008631, rel=0.001)
    recount = ask(*LLAMA, "--prompt", "2048", "--gen", "256", "--no-cache")  # seed3.recount
    assert (recount["no_cache"]["token_passes"], recount["token_passes"]) == (556_928, 2_303)
    assert recount["no_cache"]["e2e_s"]["floor"] > 10 * recount["e2e_s"]["floor"]


def setting(model: str = "llama-3-8b", gpu: str = "h100", **ranks: int) -> Setting:
    one = load_gpu(gpu)
    return Setting(load_model(model), Run(), one, Parallel(**ranks), clock_of("auto", one))


@settings(max_examples=25, deadline=None)
@given(prompt=SIZES, gen=st.integers(1, 40), batch=st.integers(1, 64), extra=SIZES)
def test_laws_of_a_request(prompt: int, gen: int, batch: int, extra: int) -> None:
    np = pytest.importorskip("numpy")
    run = setting()
    asked = Request(prompt, gen, batch).checked()
    ttft = step_cost(run, asked.prefill())
    assert 0 < ttft.bound <= ttft.floor <= ttft.best
    assert 0 < ttft.mfu <= 1
    assert 0 < ttft.mbu <= 1
    longer = step_cost(run, Request(prompt + extra, gen, batch).prefill())
    assert longer.floor > ttft.floor
    hit = step_cost(run, Request(prompt + extra, gen, batch, cached=extra).prefill())
    assert ttft.floor <= hit.floor < longer.floor
    if gen > 1:
        contexts = np.arange(prompt + 1, prompt + gen)
        every = summed([(step_cost(run, asked.decode(contexts)), len(contexts))])
        alone = summed([(step_cost(run, asked.decode(int(each))), 1) for each in contexts])
        assert every.confidence is not None
        assert alone.confidence is not None
        assert every.confidence.error == pytest.approx(alone.confidence.error, rel=1e-6)
        for a, b in zip(every._replace(confidence=None), alone._replace(confidence=None), strict=True):
            assert a is b or a == pytest.approx(b, rel=1e-9)


@pytest.mark.parametrize(
    "model", ["llama-3-8b", "deepseek-v3", "mamba-130m", "whisper-large-v3", "gemma-3-27b"]
)
def test_parts_make_the_whole(model: str, ask: Ask) -> None:
    got = ask("request", "--model", model, "--prompt", "300", "--gen", "20", "--batch", "2", "--price", "3")
    for key in ("bound", "floor", "expected"):
        parts = got["ttft_s"][key] + got["decode_steps"] * got["tpot_s"][key]
        assert got["e2e_s"][key] == pytest.approx(parts, rel=1e-9)
    rates = got["usd_per_million"]
    read = 300 + (got["inputs"]["encoder_seq"] or 0)
    paid = (rates["input"] * read + rates["output"] * 19) / 1e6
    assert got["usd"] == pytest.approx(paid, rel=1e-9)
    assert got["usd"] == pytest.approx(3 / 3600 * got["e2e_s"]["expected"] / 2, rel=1e-9)
    assert got["energy_j"] == pytest.approx(400 * got["e2e_s"]["expected"] / 2, rel=1e-9)
    held = ask("kv", "--model", model, "--seq", "319", "--batch", "2")["logical_bytes"]
    if model != "whisper-large-v3":
        assert got["memory"]["cache_bytes"] == held
    assert got["timeline"][-1]["end_s"] == pytest.approx(got["e2e_s"]["expected"], rel=1e-9)
    assert sum(b["steps"] for b in got["timeline"] if b["phase"] == "decode") == 19
    ops = ask("ops", "--model", model, "--seq", "300", "--batch", "2", "--phase", "prefill")
    assert got["ttft_s"]["floor"] == pytest.approx(ops["totals"]["prefill"]["floor_s"], rel=1e-9)


def test_cached_tokens_have_a_price_of_their_own(ask: Ask) -> None:
    args = ("--gpu", "h100", "--prompt", "8k", "--cached", "6k", "--gen", "10", "--price", "2")
    got = ask("request", "--model", "llama-3-8b", *args)
    rates = got["usd_per_million"]
    assert 0 < rates["cached_input"] < rates["input"]
    paid = rates["input"] * 2048 + rates["cached_input"] * 6144 + rates["output"] * 9
    assert got["usd"] == pytest.approx(paid / 1e6, rel=1e-9)
    whole = ask("request", "--model", "llama-3-8b", "--gpu", "h100", "--prompt", "8k", "--gen", "10")
    assert got["ttft_s"]["expected"] < whole["ttft_s"]["expected"]
    assert got["peak_memory_bytes"] < whole["peak_memory_bytes"]


def test_ranks_share_the_work_and_pay_the_link(ask: Ask) -> None:
    args = ("request", "--model", "llama-3-70b", "--gpu", "h100", "--prompt", "2k", "--gen", "8")
    one, four, stages = (ask(*args, *more) for more in ((), ("--tp", "4"), ("--pp", "4")))
    assert one["ttft_s"]["bound"] == pytest.approx(4 * four["ttft_s"]["bound"], rel=0.01)
    assert one["ttft_s"]["bound"] == pytest.approx(stages["ttft_s"]["bound"], rel=1e-9)
    assert four["e2e_s"]["expected"] < one["e2e_s"]["expected"] < 4 * four["e2e_s"]["expected"]
    assert four["peak_memory_bytes"] < one["peak_memory_bytes"] / 3
    assert (one["fits"], four["fits"], four["devices"]) == (False, True, 4)


def test_ranks_with_a_batch_each_all_count(ask: Ask) -> None:
    """--ep alone: 8 ranks of 4 requests, 16 tokens each; 8 GPUs at 3 dollars an hour for 32 requests."""
    got = ask(
        *("request", "--model", "mixtral-8x7b", "--gpu", "h200", "--ep", "8", "--prompt", "512"),
        *("--gen", "16", "--batch", "4", "--price", "3"),
    )
    took = got["e2e_s"]["expected"]
    assert got["output_tokens_per_s"] == pytest.approx(8 * 4 * 16 / took, rel=1e-9)
    assert got["usd"] == pytest.approx(8 * 3 / 3600 * took / 32, rel=1e-9)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "needs --prompt"),
        (("--prompt", "0"), "must be between 1"),
        (("--prompt", "5", "--gen", "0"), "must be between 1"),
        (("--prompt", "5", "--cached", "5"), "all but one at most"),
        (("--prompt", "5", "--ep", "2"), "no experts"),
        (("--prompt", "5", "--tp", "64"), "does not divide"),
        (("--prompt", "5", "--pp", "2", "--model", "hunyuan-large"), "share caches"),
        (("--prompt", "5", "--pp", "64"), "more than the 32 layers"),
        (("--prompt", "5", "--phase", "decode", "--no-cache"), "--no-cache"),
        (("--prompt", "1", "--phase", "decode"), "needs one before it"),
        (("--prompt", "5", "--price", "-1"), "--price"),
        (("--prompt", "5", "--gen", "2M"), "at most"),
        (("--prompt", "1000M", "--no-cache"), "64-bit"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(args: tuple[str, ...], said: str, run: Callable[..., Any]) -> None:
    got = run(*LLAMA, *args)
    assert got.code == 2
    assert said in got.err
    assert got.err.count("\n") == 1


@pytest.mark.parametrize(
    "args",
    [
        ("--prompt", "1", "--gen", "1"),
        ("--prompt", "1", "--gen", "2"),
        ("--prompt", "100k", "--gen", "3"),
        ("--prompt", "10", "--window", "4096"),
        ("--prompt", "10", "--calibration", "none"),
        ("--prompt", "10", "--tp", "32"),
        ("--prompt", "10", "--gpu", "gaudi3"),
        ("--prompt", "10", "--gpu", "cpu-generic-2ch", "--kv", "int8-g64", "--weights", "q4_k_m"),
    ],
)
def test_the_smallest_and_the_odd(args: tuple[str, ...], ask: Ask, run: Callable[..., Any]) -> None:
    got = ask(*LLAMA, *args)
    assert math.isfinite(got["e2e_s"]["floor"])
    screen = run(*LLAMA, *args)
    assert screen.code == 0
    assert screen.err == ""


def test_an_engine_adds_its_host(ask: Ask) -> None:
    args = ("request", "--model", "llama-3-8b", "--gpu", "a100", "--prompt", "512", "--gen", "32")
    alone, eager = ask(*args), ask(*args, "--engine", "vllm-2023")
    assert eager["tpot_s"]["floor"] == alone["tpot_s"]["floor"]
    assert eager["tpot_s"]["expected"] > alone["tpot_s"]["expected"]
    assert eager["inputs"]["engine"] == "vllm-2023"
    guessed = ask(*args, "--engine", "hf")
    assert guessed["confidence"]["kind"] == "assumed"
    assert ask(*args, "--engine", "vllm-2023", "--calibration", "none")["tpot_s"]["expected"] is None


def test_prefill_on_gpus_of_its_own(ask: Ask) -> None:
    """The prompt's 8,192 x 131,072 bytes over 50 GB/s, once, and the two parts as each GPU does them."""
    args = ("request", "--model", "llama-3-8b", "--prompt", "8k", "--gen", "32", "--price", "2")
    here, there = ask(*args, "--gpu", "a100"), ask(*args, "--gpu", "h100")
    apart = ask(*args, "--gpu", "a100", "--prefill-gpu", "h100")
    assert apart["kv_transfer_s"] == pytest.approx(8192 * 131072 / 50e9)
    assert apart["ttft_s"] == there["ttft_s"]
    assert apart["tpot_s"] == here["tpot_s"]
    for kind in ("bound", "floor", "expected"):
        parts = there["ttft_s"][kind] + apart["kv_transfer_s"] + 31 * here["tpot_s"][kind]
        assert apart["e2e_s"][kind] == pytest.approx(parts)
    both = there["ttft_s"]["expected"] + 31 * here["tpot_s"]["expected"]
    assert apart["usd"] == pytest.approx(2 / 3600 * both)
    # 700 W while an H100 reads, 400 W while an A100 writes.
    joules = 700 * there["ttft_s"]["expected"] + 400 * 31 * here["tpot_s"]["expected"]
    assert apart["energy_j"] == pytest.approx(joules)
    shared = ask(*args, "--gpu", "a100", "--prefill-gpu", "h100", "--prefill-tp", "4")
    assert shared["kv_transfer_s"] == pytest.approx(apart["kv_transfer_s"] / 4)


def test_a_run_beside_the_prediction(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text(
        '[{"n_prompt": 512, "n_gen": 0, "avg_ts": 6800.0}, {"n_prompt": 0, "n_gen": 128, "avg_ts": 1e5}]',
        encoding="utf-8",
    )
    args = ("request", "--model", "llama-3-8b", "--gpu", "rtx4090", "--engine", "llama.cpp")
    args = (*args, "--weights", "q4_k_m")
    got = ask(*args, "--measured", str(path))
    read, token = got["measured"]["rows"]
    assert read["measured_s"] == pytest.approx(512 / 6800)
    alone = ask(*args, "--prompt", "512", "--gen", "1")["ttft_s"]["expected"]
    assert read["error"] == pytest.approx(alone * 6800 / 512 - 1)
    assert token["impossible"]
    assert got["inputs"]["prompt"] == 512


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (("--engine", "vlm"), "did you mean"),
        (("--engine", "vllm", "--offload-layers", "99"), "layers"),
        (("--cp", "0"), "cp"),
        (("--prefill-tp", "2"), "--prefill-gpu"),
        (("--prefill-gpu", "h100", "--pp", "2"), "--prefill-gpu"),
        (("--transfer", "nan"), "--transfer"),
        (("--offload-kv", "--host-link", "0"), "--host-link"),
        (("--measured", "no-such.json"), "no-such.json"),
        (("--ep", "4"), "no experts"),
        (("--tp", "7"), "7"),
        (("--pp", "64"), "layers"),
    ],
)
def test_what_cannot_be_run(args: tuple[str, ...], word: str, run: Callable[..., Any]) -> None:
    got = run("request", "--model", "llama-3-8b", "--gpu", "h100", "--prompt", "64", "--gen", "4", *args)
    assert got.code == 2
    assert word in got.err
    assert got.err.count("\n") == 1


def test_more_ranks_than_heads_copy_them(ask: Ask) -> None:
    """8 KV heads on 16 ranks: each is held twice; 32 query heads still divide."""
    got = ask(
        "request", "--model", "llama-3-8b", "--gpu", "h100", "--prompt", "64", "--gen", "4", "--tp", "16"
    )
    alone = ask("request", "--model", "llama-3-8b", "--gpu", "h100", "--prompt", "64", "--gen", "4")
    assert got["memory"]["cache_bytes"] * 8 == alone["memory"]["cache_bytes"]


def test_speed_and_what_it_waits_for_stand_below_the_answer(run: Callable[..., Any], ask: Ask) -> None:
    """MFU and MBU of the JSON; neither roof is named where a phase uses little of both."""
    args = ("request", "--model", "llama-3-8b", "--gpu", "h100", "--prompt", "8k", "--batch", "16")
    prefill, step, rate = run(*args).out.splitlines()[1].split("; ")
    point = ask(*args)
    phases = point["phases"]
    assert prefill.endswith(f"waits for arithmetic (MFU {100 * phases['prefill']['mfu']:.1f} %)")
    assert step.endswith(f"a token, waits for memory (MBU {100 * phases['decode']['mbu']:.1f} %)")
    assert rate == f"{point['output_tokens_per_s']:,.0f} output tokens/s end to end"
    small = run("request", "--model", "gpt2", "--gpu", "h100", "--prompt", "16").out.splitlines()[1]
    assert small.count("waits for neither roof (MFU ") == 2
    one = run("request", "--model", "llama-3-8b", "--phase", "decode", "--seq", "8k").out.splitlines()[1]
    assert "first token" not in one
