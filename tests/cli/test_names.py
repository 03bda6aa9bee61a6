"""What people and engines call things: each is led to the name it has here, in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from infercost.cli.app import COMMANDS
from infercost.cli.synonyms import COMMAND_WORDS, MEANINGS, NOT_NEEDED, options_of

Run = Callable[..., Any]


def led(run: Run, *args: str) -> str:
    """The one line that a refused command says."""
    result = run(*args)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1), result
    return str(result.err).removeprefix("infercost: ").rstrip()


@pytest.mark.parametrize(
    ("command", "typed", "wanted"),
    [
        ("fit", "--num-gpus", "--tp"),
        ("fit", "-tp", "--tp"),
        ("fit", "--kv-dtype", "--kv"),
        ("fit", "--kv-cache-dtype", "--kv"),
        ("fit", "--cache-type-k", "--kv"),
        ("fit", "-ctk", "--kv"),
        ("fit", "--quant", "--weights"),
        ("fit", "--quantization", "--weights"),
        ("fit", "--dtype", "--weights"),
        ("kv", "--ctx", "--seq"),
        ("kv", "-c", "--seq"),
        ("kv", "--context-length", "--seq"),
        ("kv", "--context_length", "--seq"),
        ("kv", "--sequence", "--seq"),
        ("request", "--context", "--prompt"),
        ("fit", "--max-num-seqs", "--batch"),
        ("fit", "-np", "--batch"),
        ("fit", "--parallel", "--batch"),
        ("fit", "--users", "--batch"),
        ("serve", "--max-concurrency", "--concurrency"),
        ("serve", "--qps", "--rate"),
        ("serve", "--itl", "--tpot"),
        ("request", "--input", "--prompt"),
        ("request", "--isl", "--prompt"),
        ("request", "--input-len", "--prompt"),
        ("request", "--osl", "--gen"),
        ("request", "--output-tokens", "--gen"),
        ("request", "--output-len", "--gen"),
        ("request", "--max-tokens", "--gen"),
        ("request", "--new-tokens", "--gen"),
        ("fit", "--vram", "--capacity"),
        ("fit", "--max-memory", "--capacity"),
        ("fit", "--memory", "--capacity"),
        ("fit", "--budget", "--capacity"),
        ("fit", "--gpus", "--gpu or --tp"),
    ],
)
def test_an_option_by_another_name(command: str, typed: str, wanted: str, run: Run) -> None:
    said = led(run, command, typed, "1")
    assert said == f"No such option: {typed}; here it is {wanted} (infercost {command} --help)"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ("fit", "-ngl", "9"),
            "No such option: -ngl; --offload-layers is of request (infercost request --help)",
        ),
        (("fit", "--rate", "3"), "No such option: --rate; it is of serve (infercost serve --help)"),
        (("request", "--vram", "8"), "No such option: --vram; --capacity is of fit (infercost fit --help)"),
        (("fit", "--TP", "2"), "No such option: --TP; here it is --tp (infercost fit --help)"),
        (
            (
                "fit",
                "--kv-cache-dtype=fp8",
            ),
            "No such option: --kv-cache-dtype; here it is --kv (infercost fit --help)",
        ),
        (("fit", "--wieghts", "fp8"), "No such option: --wieghts; did you mean --weights"),
        (("fit", "--xyzzy"), "No such option: --xyzzy; `infercost fit --help` lists them"),
        (("kv", "--gpu", "h100"), "a cache takes the same bytes on every GPU"),
        (("weights", "--gpu", "h100"), "weights take the same bytes on every GPU"),
    ],
)
def test_an_option_of_another_command_or_of_none(args: tuple[str, ...], said: str, run: Run) -> None:
    assert said in led(run, *args)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ("serve", "--tp", "2,4"),
            "--tp '2,4' is not a valid int; one value here, `infercost sweep --tp 2,4` takes",
        ),
        (("fit", "--dcp", "2,4"), "--dcp '2,4' is not a valid int; one value here"),
        (("fit", "--tp", "two"), "--tp 'two' is not a valid int; give a whole number"),
        (("fit", "--share", "90%"), "write --share 0.9"),
        (("serve", "--price", "$2.50"), "write --price 2.5"),
        (("serve", "--rate", "10/s"), "write --rate 10"),
        (("serve", "--rate", "many"), "give a number"),
    ],
)
def test_a_number_with_a_sign_or_a_list(args: tuple[str, ...], said: str, run: Run) -> None:
    assert said in led(run, *args)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("models", "llama-3-8b"), "one of them is shown by `infercost models show llama-3-8b`"),
        (("gpus", "h100"), "one of them is shown by `infercost gpus show h100`"),
        (("fit", "llama-3-8b", "h100"), "with its option: --model llama-3-8b --gpu h100"),
        (("kv", "llama-3-8b"), "with its option: --model llama-3-8b"),
        (("kv", "what"), "every value goes with an option"),
        (("help", "kv"), "infercost kv --help"),
        (("memory",), "here it is fit (infercost fit --help)"),
        (("vram",), "here it is fit"),
        (("price",), "here it is request"),
        (("estimate",), "here it is request"),
        (("compare",), "--model a,b"),
        (("kvv",), "did you mean kv?"),
        (("xyzzy",), "`infercost --help` lists them"),
    ],
)
def test_a_command_by_another_name(args: tuple[str, ...], said: str, run: Run) -> None:
    assert said in led(run, *args)


def test_every_meaning_is_an_option_of_some_command() -> None:
    """And no command has a word of it that the table would then keep from being read."""
    every = {name for command in COMMANDS for name in options_of(command)}
    assert {name for options, _ in MEANINGS for name in options} <= every
    assert set(COMMAND_WORDS) <= set(COMMANDS)
    assert not {word for called in COMMAND_WORDS.values() for word in called.split()} & set(COMMANDS)
    assert not any(option in options_of(command) for command, option in NOT_NEEDED)


def test_the_same_thing_by_the_engines_names(ask: Callable[..., Any]) -> None:
    fit = ("fit", "--model", "llama-3-8b", "--gpu", "h100")
    assert ask(*fit, "--context", "4k", "--tensor-parallel-size", "2") == ask(
        *fit, "--seq", "4k", "--tp", "2"
    )
    assert ask("kv", "--model", "llama-7b", "--ctx-size", "4k") == ask(
        "kv", "--model", "llama-7b", "--seq", "4k"
    )


def test_the_cuda_context_is_called_so(run: Run, ask: Callable[..., Any]) -> None:
    fit = ("fit", "--model", "llama-3-8b", "--gpu", "h100", "--seq", "4k")
    assert "CUDA context " in run(*fit, "--cuda-context", "1GiB").out
    terms = {term["name"]: term["bytes"] for term in ask(*fit, "--cuda-context", "1GiB")["terms"]}
    assert terms["context"] == 2**30
