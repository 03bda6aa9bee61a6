"""`infercost explain`: every formula makes its value, systems change what they should, commands go on."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infercost.cli.topics.explained import LETTER
from infercost.cli.topics.index import ENTRIES, GROUPS, find_topic
from infercost.costmodel import flash_io, rope_scaling

Ask = Callable[..., Any]
README = Path(__file__).parents[2] / "README.md"
TOPICS = [entry.name for entry in ENTRIES]
UNLIKE = (
    "llama-3-8b",
    "gemma-3-27b",
    "deepseek-v3",
    "mamba2-2.7b",
    "whisper-large-v3",
    "jamba-v0.1",
    "gpt-oss-20b",
)
"""Shared heads, windows, latent rows, states, an encoder, a hybrid, experts."""


def evaluated(document: Any) -> float:
    """The formula as arithmetic on its letters, by Python and not by the code that is tested."""
    letters = {name: letter["value"] for name, letter in document["letters"].items()}

    def value(found: re.Match[str]) -> str:
        return f"letters[{found[0]!r}]" if found[0] in letters else found[0]

    text = LETTER.sub(value, document["formula"]).replace("·", "*").replace("^", "**")
    names = {"letters": letters, "max": max, "min": min, "ceil": math.ceil, "ln": math.log}
    return float(eval(text, {"__builtins__": {}}, names))  # our own formulas


def line(document: Any, what: str) -> Any:
    return next(each for each in document["bill"] if each["what"] == what)


@pytest.mark.parametrize("topic", TOPICS)
def test_every_formula_makes_its_value(topic: str, ask: Ask) -> None:
    document = ask("explain", topic)
    assert evaluated(document) == pytest.approx(document["value"], rel=1e-9, abs=1e-12)
    assert document["topic"] == topic
    assert document["source"]
    assert document["differs"]
    assert document["commands"]
    assert set(LETTER.findall(document["formula"])) - {"max", "min", "ceil", "ln"} == set(document["letters"])
    assert all(letter["meaning"] for letter in document["letters"].values())
    json.dumps(document, allow_nan=False)


@pytest.mark.parametrize("model", UNLIKE)
def test_of_unlike_models(model: str, run: Callable[..., Any]) -> None:
    """An answer whose formula holds, or one line that says why this model has none."""
    answered = 0
    for topic in TOPICS:
        result = run("explain", topic, "--model", model, "--seq", "700", "--batch", "3", "--json")
        assert result.code in (0, 2), (topic, result.err)
        if result.code:
            assert result.err.startswith("infercost: ")
            continue
        answered += 1
        document = result.json
        assert evaluated(document) == pytest.approx(document["value"], rel=1e-9, abs=1e-12), topic
    assert answered > 30


@pytest.mark.parametrize("topic", TOPICS)
def test_the_commands_that_go_on_run(topic: str, ask: Ask, run: Callable[..., Any]) -> None:
    for command in ask("explain", topic)["commands"]:
        program, *words = shlex.split(command)
        assert program == "infercost"
        result = run(*words)
        assert result.code == 0, (command, result.err)


GIVEN = {
    "--seq": "768",
    "--gen": "24",
    "--batch": "3",
    "--weights": "fp8-row",
    "--kv": "fp8",
    "--layers": "8",
    "--kv-heads": "4",
}
OF_ANOTHER_QUESTION = {("kv", "--gen"), ("speculate", "--gen")}
"""Growth token by token; a cascade's lengths."""


@pytest.mark.parametrize("topic", TOPICS)
def test_the_commands_that_go_on_carry_what_was_given(topic: str, run: Callable[..., Any]) -> None:
    """Every given option that a command has, by its help, stands in it: a topic may have its own value."""
    model = ["--model", "llama-2-13b"]
    given = [word for pair in GIVEN.items() for word in pair]
    asked = run("explain", topic, *model, "--gpu", "h100", *given, "--json")
    assert asked.code == 0, asked.err
    for command in asked.json["commands"]:
        name, *words = shlex.split(command)[1:]
        result = run(name, *words)
        assert result.code == 0, (command, result.err)
        if words[:2] != model:
            continue
        takes = set(re.findall(r"(?<![-\w])--[a-z-]+", run(name, "--help").out))
        assert ("--gpu" in takes) == ("--gpu" in words)
        for option in takes & set(GIVEN) - {each for which, each in OF_ANOTHER_QUESTION if which == name}:
            assert option in words or (option == "--seq" and "--prompt" in words), (command, option)


def test_a_format_that_was_given_is_carried(ask: Ask) -> None:
    asked = ("--model", "llama-3-70b", "--seq", "32k", "--kv", "fp8")
    explained = ask("explain", "kv", *asked)
    cache, without = explained["commands"]
    assert cache == "infercost kv --model llama-3-70b --seq 32768 --batch 1 --kv fp8"
    assert without.endswith("--no-cache --kv fp8")
    assert ask(*shlex.split(cache)[1:])["logical_bytes"] == explained["value"]
    for command in ask("explain", "decode", *asked, "--weights", "awq", "--layers", "4")["commands"]:
        words = shlex.split(command)
        assert [words[words.index(name) + 1] for name in ("--kv", "--weights", "--layers")] == [
            "fp8",
            "awq",
            "4",
        ]


@pytest.mark.parametrize(
    ("topic", "args", "key", "same"),
    [
        ("kv", ("--model", "gemma-3-27b", "--seq", "32k"), "logical_bytes", "kv"),
        ("weights", ("--model", "gpt-oss-20b"), "weight_bytes", "weights"),
        ("params", ("--model", "deepseek-v3"), "parameters", "weights"),
        (
            "memory",
            ("--model", "llama-3-8b", "--seq", "8k", "--batch", "4", "--gpu", "h100"),
            "total_bytes",
            "fit",
        ),
        ("ridge", ("--gpu", "h100"), "ridge.textbook", "roofline"),
        ("bound", ("--model", "mixtral-8x7b", "--seq", "2k", "--batch", "8"), "totals.decode.bound_s", "ops"),
        ("floor", ("--model", "mixtral-8x7b", "--seq", "2k", "--batch", "8"), "totals.decode.floor_s", "ops"),
        (
            "expected",
            ("--model", "llama-7b", "--seq", "2k", "--batch", "8"),
            "totals.decode.expected_s",
            "ops",
        ),
        ("prefill", ("--model", "llama-7b", "--seq", "2k", "--batch", "8"), "totals.prefill.bound_s", "ops"),
        ("ttft", ("--model", "llama-7b", "--prompt", "1k"), "ttft_s.expected", "request"),
        ("tpot", ("--model", "llama-7b", "--prompt", "1k"), "tpot_s.expected", "request"),
        ("e2e", ("--model", "llama-7b", "--prompt", "1k"), "e2e_s.expected", "request"),
        ("dollars", ("--model", "llama-7b", "--prompt", "1k", "--gpu", "h100"), "usd", "request"),
        ("energy", ("--model", "llama-7b", "--prompt", "1k", "--gpu", "h100"), "energy_j", "request"),
        (
            "throughput",
            ("--model", "llama-7b", "--prompt", "1k", "--batch", "8"),
            "output_tokens_per_s",
            "request",
        ),
    ],
)
def test_the_number_is_the_other_commands(
    topic: str, args: tuple[str, ...], key: str, same: str, ask: Ask
) -> None:
    there = ask(same, *args)
    for step in key.split("."):
        there = there[step]
    assert ask("explain", topic, *args)["value"] == pytest.approx(there, rel=1e-9)


def test_the_list(ask: Ask, run: Callable[..., Any]) -> None:
    listed = ask("explain")["topics"]
    assert [each["name"] for each in listed] == TOPICS
    assert {each["group"] for each in listed} == set(GROUPS.values())
    words = [word for entry in ENTRIES for word in (entry.name, *entry.aliases)]
    assert len(words) == len(set(words))
    assert run("explain").out.startswith(f"{len(TOPICS)} topics")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("PagedAttention", "pagedattention"),
        ("LLM.int8()", "llm.int8"),
        ("DeepSpeed MII", "deepspeed-mii"),
        ("2:4", "semi-structured-pruning"),
    ],
)
def test_names_as_people_write_them(asked: str, found: str) -> None:
    assert find_topic(asked).name == found


def test_the_screen(run: Callable[..., Any]) -> None:
    said = run("explain", "kv", "--model", "llama-7b", "--seq", "32k").out.splitlines()
    assert said[0] == "KV cache: 16.00 GiB (17.18 GB)"
    assert said[1] == "= 2·L·B·T·K·D·b"
    assert said[2] == "= 2·32·1·32,768·32·128·2"
    assert run("explain", "kv", "--seq", "32k", "-q").out == "17179869184\n"
    assert run("explain", "kv", "--kv-heads", "8", "-q").out == "536870912\n"
    # Where the model does not matter it is not named.
    assert "LLaMA" not in run("explain", "frugalgpt").out.split("go on")[0]


def test_rope_scalings_cost_nothing_but_the_cache(ask: Ask) -> None:
    for topic in ("pi", "ntk", "yarn"):
        document = ask("explain", topic, "--scale", "4")
        flops = line(document, "FLOPs of a decode step, same length")
        assert flops["before"] == flops["after"]
        assert line(document, "reach")["ratio"] == 4
        assert line(document, "cache of a sequence that long")["ratio"] == 4


def test_what_systems_change(ask: Ask) -> None:
    """Directions that hold whatever the constants: none of these figures is a golden one."""
    assert line(ask("explain", "pagedattention"), "sequences at once")["ratio"] > 1
    vllm = ask("explain", "vllm")
    assert line(vllm, "output tokens per second")["ratio"] > 1
    assert line(vllm, "a million output tokens")["ratio"] < 1
    fused = ask("explain", "splitfuse")
    assert line(fused, "longest usual gap between tokens")["ratio"] < 1
    assert line(fused, "passes over the weights, a prompt")["after"] == 32
    assert line(ask("explain", "smoothquant"), "bytes a step moves beyond its format's")["after"] == 0
    assert line(ask("explain", "lora"), "FLOPs a step takes beyond its format's")["after"] > 0
    gqa = ask("explain", "gqa")
    assert line(gqa, "FLOPs of scores and values, decode step")["ratio"] == 1
    assert line(gqa, "intensity of decode attention")["ratio"] == pytest.approx(4, rel=0.01)
    sparse = ask("explain", "sparsegpt")
    assert line(sparse, "weights, dense kernel")["ratio"] == 1
    assert line(sparse, "matrix FLOPs of a decode step")["ratio"] == 1


def test_claims_are_said(ask: Ask) -> None:
    """gqa.no_convert, rope.code, kvq.error, sp.quality: entries without a number."""
    gqa = ask("explain", "gqa")
    assert "does not convert" in gqa["price"]
    assert "only the 34B and the 70B" in gqa["differs"]
    assert "[None, :, None, :]" in ask("explain", "rope")["differs"]
    assert "quantised once" in ask("explain", "kv-quantisation")["differs"]
    assert "same distribution" in ask("explain", "speculative-decoding")["differs"]


@given(tokens=st.integers(1, 40), width=st.integers(1, 16), block=st.integers(1, 16))
def test_flash_tiles_are_counted_one_by_one(tokens: int, width: int, block: int) -> None:
    sides = range(-(-tokens // block))
    for causal in (False, True):
        tiles = sum(1 for q in sides for k in sides if not causal or k <= q)
        want = 2 * tokens * width + 2 * tokens + tiles * 2 * block * width
        assert flash_io.flash2_elements(tokens, width, block, causal) == want


@settings(suppress_health_check=list(HealthCheck))
@given(scale=st.floats(1, 1000), base=st.floats(10, 1e6), half=st.integers(2, 128))
def test_ntk_stretches_the_slowest_pair_and_leaves_the_fastest(scale: float, base: float, half: int) -> None:
    rotated = 2 * half
    longer = rope_scaling.longest_wavelength(rope_scaling.ntk_base(base, scale, rotated), rotated)
    assert longer == pytest.approx(scale * rope_scaling.longest_wavelength(base, rotated), rel=1e-9)


def systems() -> list[tuple[str, str]]:
    """(system, command) of the README's table."""
    text = README.read_text(encoding="utf-8").split("<!-- systems -->")[1].split("<!-- /systems -->")[0]
    rows = [row.strip("|").split("|") for row in text.strip().splitlines()[2:]]
    return [
        (row[0].strip(), command)
        for row in rows
        for command in re.findall(r"`(infercost [^`]*)`", row[2] + row[3])
    ]


NAMED = (
    *(
        "KV cache",
        "Prefill and decode",
        "TTFT",
        "GQA",
        "MQA",
        "FlashAttention",
        "PagedAttention",
        "Continuous batching",
    ),
    *(
        "SplitFuse",
        "Speculative decoding",
        "Medusa",
        "Early exit",
        "FrugalGPT",
        "LLM.int8()",
        "SmoothQuant",
        "GPTQ",
    ),
    *("AWQ", "LoRA at 2 bits", "Distillation", "Structured pruning", "Unstructured pruning", "SparseGPT"),
    *("Sheared LLaMA", "RoPE", "PI, NTK, YaRN", "Sliding window", "KV quantisation", "vLLM", "llama.cpp"),
    *("DeepSpeed-MII", "bitsandbytes", "Hugging Face transformers"),
)


def test_the_readme_has_every_system() -> None:
    assert {name for name, _ in systems()} == set(NAMED)


@pytest.mark.parametrize(("system", "command"), systems())
def test_every_command_of_the_readmes_table_runs(system: str, command: str, run: Callable[..., Any]) -> None:
    result = run(*shlex.split(command)[1:])
    assert result.code == 0, (system, command, result.err)
    assert result.out
