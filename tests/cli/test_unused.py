"""Options that nothing would read are refused, each with the one that would make them count."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import infercost

Run = Callable[..., Any]
LLAMA = ("--model", "llama-3-8b")
REQUEST = ("request", *LLAMA, "--gpu", "h100", "--prompt", "64")
SERVE = ("serve", *LLAMA, "--gpu", "h100", "--prompt", "64", "--gen", "8", "--batch", "1,2,4")
KV = ("kv", *LLAMA, "--seq", "1k")
FIT = ("fit", *LLAMA, "--seq", "1k")
NOMINAL = ("weights", "--params", "7e9", "--bits", "16")
SEEN = ("serve", "--actual", "12000")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((*NOMINAL, "--batch", "8", "--skew", "9"), "--batch, --skew without effect on `weights --params`"),
        ((*NOMINAL, "--accounting", "textbook"), "--accounting without effect on `weights --params`"),
        (("weights", "--formats", "--model", "nonsense"), "--model without effect on `weights --formats`"),
        (("explain", "--model", "nonsense"), "--model without effect on `explain`: without a topic"),
        (("probe", "--list", "--save"), "--save without effect on `probe --list`"),
        (("probe", "--list", "--results", "x", "--strict"), "--results, --strict without effect"),
        (("probe", "--list", "--batch", "2"), "--batch without effect on `probe`: they are of --model"),
        ((*SEEN, "--price", "2.5", "--gpu", "nonsense,foo"), "--gpu without effect on `serve --actual`"),
        ((*SEEN, "--trace", "nofile", "--batch", "x"), "--trace, --batch without effect"),
        ((*SEEN, "--plot", "x.svg"), "--plot without effect on `serve --actual`: the rest is of a model"),
        (("compress", "--sparsity", "0.5", "--prompt", "xx", "--tp", "77"), "--prompt, --tp without effect"),
        (("compress", "--sparsity", "0.5", "--retrain-tokens", "1e9"), "--retrain-tokens without effect"),
        (("quant", "--values", "1,2", "--gpu", "nonsense"), "--gpu belongs to --model or --same-memory"),
        (("quant", "--scheme", "awq", "--batch", "1"), "--batch without effect on `quant --scheme`"),
        (("quant", "--formats", "--sym", "--gpu", "a100"), "--symmetric, --gpu without effect"),
        (("speculate", "--walk", "1", "--batch", "3"), "--batch without effect on `speculate --walk`"),
        (
            ("speculate", "--alpha", "0.5", "--exits", "1:1", "--gamma", "3"),
            "--alpha, --gamma without",
        ),
        ((*SERVE, "--seed", "3"), "--seed without effect on `serve`: give --simulate"),
        ((*SERVE, "--requests", "9"), "--requests without effect on `serve`: give --simulate"),
        ((*SERVE, "--slack", "0.2"), "--slack without effect on `serve`: give --policy chunked"),
        ((*SERVE, "--link", "50"), "--link without effect on `serve`: give --policy disaggregated"),
        ((*KV, "--max-num-batched-tokens", "2048"), "--max-num-batched-tokens without effect on `kv`"),
        ((*KV, "--engine", "hf", "--kv-budget", "1GiB"), "--kv-budget without effect on `kv --engine hf`"),
        ((*KV, "--num-gpu-blocks", "9"), "give --engine vllm, sglang, tensorrt-llm, lmdeploy"),
        (
            (*KV, "--engine", "llama.cpp", "--block", "32"),
            "--block without effect on `kv --engine",
        ),
        ((*FIT, "--engine", "vllm", "--ubatch", "2048"), "--ubatch without effect on `fit --engine vllm`"),
        ((*FIT, "--engine", "vllm", "--window-share", "0.5"), "--window-share changes what an engine"),
        ((*FIT, "--engine", "hf", "--dcp", "2"), "--dcp without effect on `fit --engine hf`"),
        ((*FIT, "--block", "64"), "--block without effect on `fit`"),
        ((*FIT, "--draft", "llama-68m,llama-7b"), "--draft 'llama-68m,llama-7b': fit takes one at a time"),
        ((*FIT, "--draft", ""), "--draft"),
        ((*FIT, "--gpu", "h100,a100", "--actual", "20GB"), "--actual is what one run took"),
        ((*REQUEST, "--mla", "absorbed"), "--mla without effect on `request`: no layer of the model has"),
        ((*REQUEST, "--skew", "1"), "--skew without effect on `request`: no layer of the model has experts"),
        ((*REQUEST, "--prefill-gpu", "h100", "--prefill-tp", "0"), "must be"),
        (("roofline", "--gpu", "a100", "--mla", "expanded"), "--mla without effect on `roofline`"),
    ],
)
def test_refused(args: tuple[str, ...], said: str, run: Run) -> None:
    got = run(*args)
    assert (got.code, got.out) == (2, ""), got.err
    assert said in got.err
    assert got.err.count("\n") == 1


@pytest.mark.parametrize(
    "args",
    [
        (*KV, "--block", "32"),
        (*KV, "--engine", "vllm", "--max-num-batched-tokens", "2k", "--dcp", "1", "--kv-budget", "1GiB"),
        (*FIT, "--max-num-batched-tokens", "2k"),
        (*FIT, "--engine", "llama.cpp", "--ubatch", "256", "--kv-budget", "2GiB"),
        (*SERVE, "--policy", "chunked,disaggregated", "--slack", "0.2", "--link", "50"),
        (*SEEN, "--gpu", "h100", "--tp", "8"),
        (*REQUEST, "--mla", "auto", "--skew", "0"),
        ("request", "--model", "deepseek-v3,llama-3-8b", "--prompt", "9", "--skew", "1", "--mla", "absorbed"),
        ("speculate", "--cascade", "1,10", "--accept", "0.5"),
        ("quant", "--same-memory", "30GB", "--gpu", "a100", "--bits", "4"),
    ],
)
def test_read(args: tuple[str, ...], run: Run) -> None:
    assert run(*args).code == 0


def test_what_stands_in_the_environment_is_for_every_command(run: Run, monkeypatch: Any) -> None:
    monkeypatch.setenv("INFERCOST_GPU", "h100")
    assert run("quant", "--values", "1,2").code == 0
    assert run("explain").code == 0


def test_a_measured_run_fills_in_what_is_not_given(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    row = {"n_prompt": 512, "n_gen": 0, "avg_ns": 2e8, "avg_ts": 2560.0}
    path.write_text(json.dumps([row, {"n_prompt": 0, "n_gen": 128, "avg_ns": 2e9, "avg_ts": 64.0}]))
    plain = run("request", *LLAMA, "--gpu", "h100", "--measured", str(path), "--json").json["inputs"]
    assert (plain["prompt"], plain["gen"], plain["batch"]) == (512, 128, 1)
    words = ("--gen", "99", "--batch", "7", "--json")
    given = run("request", *LLAMA, "--gpu", "h100", "--measured", str(path), *words).json["inputs"]
    assert (given["prompt"], given["gen"], given["batch"]) == (512, 99, 7)


def test_the_python_functions_refuse_as_well() -> None:
    with pytest.raises(infercost.InputError, match="--seed without effect on `serve`: give --simulate"):
        infercost.serve("llama-3-8b", 64, 8, gpu="h100", batch="1,2,4", seed=3)
    assert infercost.kv("llama-3-8b", 1024, block=32).document["block_tokens"] == 32


def test_exp_is_exponential_for_both_commands_that_spread_lengths(run: Run) -> None:
    for command in (SERVE, ("diagnose", *SERVE[1:-1], "4")):
        short, whole = (run(*command, "--lengths", kind, "--quiet") for kind in ("exp", "exponential"))
        assert (short.code, short.out) == (0, whole.out)


def test_ops_and_roofline_offer_the_engine_that_they_take(run: Run) -> None:
    for command in ("ops", "roofline"):
        assert "hf: as the transformers library does it" in run(command, "--help").out
