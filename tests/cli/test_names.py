"""What people and engines call things: each is led to the name it has here, in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import infercost
from infercost.cli.app import COMMANDS
from infercost.cli.synonyms import COMMAND_WORDS, MEANINGS, NOT_NEEDED, options_of
from infercost.hardware.catalogue import load_gpu
from infercost.models.catalogue import load_model

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


def test_an_argument_of_python_by_another_name() -> None:
    with pytest.raises(infercost.InputError, match=r"no option 'kv_cache_dtype'; here it is kv$"):
        infercost.fit("llama-7b", kv_cache_dtype="fp8")


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


@pytest.mark.parametrize(
    ("printed", "sheet"),
    [
        # What nvidia-smi, rocm-smi and system_profiler print.
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA GH200 480GB", "gh200-96g"),
        ("NVIDIA A100-SXM4-80GB", "a100-80g-sxm"),
        ("NVIDIA A100-SXM4-40GB", "a100-40g-sxm"),
        ("NVIDIA A100 80GB PCIe", "a100-80g-pcie"),
        ("NVIDIA A100-PCIE-40GB", "a100-40g-pcie"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA GeForce RTX 3080 Ti", "rtx3080ti"),
        ("NVIDIA RTX A6000", "rtx-a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000-ada"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA A10G", "a10g"),
        ("Tesla T4", "t4"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16g"),
        ("Tesla V100-SXM2-32GB", "v100-sxm2-32g"),
        ("AMD Instinct MI300X", "mi300x"),
        ("Apple M2 Ultra", "apple-m2-ultra"),
    ],
)
def test_a_gpu_by_the_name_its_driver_prints(printed: str, sheet: str) -> None:
    assert load_gpu(printed).name == sheet


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("8xH100", "give --gpu h100 --tp 8"),
        ("2x3090", "give --gpu 3090 --tp 2"),
        ("h100x8", "give --gpu h100 --tp 8"),
        ("4 x NVIDIA L40S", "give --gpu nvidia-l40s --tp 4"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "did you mean rtx-4090?"),
        ("H100 40GB", "did you mean h100?"),
        ("m3-max", "did you mean apple-m3-max?"),
    ],
)
def test_a_gpu_that_is_none_or_several(given: str, said: str, run: Run) -> None:
    """A laptop's card, or one of another memory, is another card."""
    assert led(run, "gpus", "show", given).endswith(said)


@pytest.mark.parametrize(
    ("given", "model"),
    [
        ("Llama-3.3-70B-Instruct", "llama-3.1-70b"),
        ("qwen2.5-72b-instruct", "qwen2.5-72b"),
        ("llama-2-13b-chat", "llama-2-13b"),
        ("meta-llama/Llama-2-13b-chat-hf", "llama-2-13b"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
        ("google/gemma-3-4b-it", "gemma-3-4b"),
        ("Llama 3.1 8B", "llama-3.1-8b"),
    ],
)
def test_a_model_trained_on_is_the_model(given: str, model: str) -> None:
    assert load_model(given).name == model


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            "Qwen/Qwen3-30B-A3B-Instruct-2507",
            "nearest that ships is qwen3-30b-a3b or qwen3-30b-a3b-fp8",
        ),
        (
            "deepseek-ai/DeepSeek-R1-Distill-Llama-70B",
            "is llama-2-70b, llama-3-70b or llama-3.1-70b;",
        ),
        (
            "TheBloke/Llama-2-13B-chat-GPTQ",
            "; it is --model llama-2-13b --weights gptq; a model",
        ),
        ("unsloth/llama-3-8b-bnb-4bit", "it is --model llama-3-8b --weights bnb-nf4"),
        ("qwen3-8b-awq", "unknown model 'qwen3-8b-awq'; it is --model qwen3-8b --weights awq"),
        ("70b", "did you mean llama-2-70b, llama-3-70b, llama-3.1-70b or llama-3.1-70b-fp8?"),
        ("deepseek-r1:32b", "of 32b are exaone-4.0-32b, qwen2.5-32b, qwen3-32b"),
        ("gpt-oss", "did you mean gpt-oss-20b or gpt-oss-120b?"),
        ("llama3:8b", "did you mean llama-3-8b?"),
        ("lama-3-8b", "did you mean llama-3-8b or"),
        ("claude", "`infercost models` lists them"),
        ("owner/nothing-like-it", "no file owner/nothing-like-it; a model of the Hugging Face hub is"),
    ],
)
def test_a_model_that_does_not_ship(given: str, said: str, run: Run) -> None:
    """A format in a name is said and never taken."""
    assert said in led(run, "models", "show", given)


def test_all_gpus_wherever_gpus_are_compared(ask: Callable[..., Any], run: Run) -> None:
    of = ("--model", "llama-3-8b", "--gpu", "all")
    every = {point["inputs"]["gpu"] for point in ask("fit", *of, "--seq", "1k")["points"]}
    asked = ask("request", *of, "--prompt", "64", "--gen", "2")["points"]
    assert {point["inputs"]["gpu"] for point in asked} == every
    served = ask("serve", *of, "--prompt", "64", "--gen", "2", "--batch", "1")["points"]
    assert {point["inputs"]["gpu"] for point in served} == every
    assert len(ask("sweep", *of, "--prompt", "64", "--gen", "2")["points"]) == len(every) > 60
    assert "is of fit, request, serve and sweep" in led(
        run, "ops", "--model", "llama-7b", "--seq", "1", "--gpu", "all"
    )


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            ("kv", "--seq", "32,768"),
            "--seq '32,768': without commas in a number it is 32768; as a list",
        ),
        (("fit", "--seq", "131,072"), "it is 131072; as a list it has a space after each comma, '131, 072'"),
        (("request", "--prompt", "2,048"), "it is 2048"),
        (("kv", "--seq", "4,096,8,192"), "it is 4096,8192"),
        (("kv", "--seq", "1,048,576"), "it is 1048576"),
        (("kv", "--seq", "4096,8,192"), "it is 4096,8192"),
        (("serve", "--prompt", "2,048"), "--prompt '2,048' is not a token count; write 2048"),
        (("kv", "--seq", "1e5"), "--seq '1e5' is not a token count; write 100000"),
        (("kv", "--seq", "max"), "`infercost fit` without --seq takes the model's whole context"),
    ],
)
def test_a_length_as_people_write_it(args: tuple[str, ...], said: str, run: Run) -> None:
    assert said in led(run, args[0], "--model", "llama-7b", *args[1:])


@pytest.mark.parametrize(
    ("seq", "lengths"),
    [
        ("1024,768", [1024, 768]),
        ("128,256,512", [128, 256, 512]),
        ("1,64,512", [1, 64, 512]),
        ("32, 768", [32, 768]),
        ("100,1k", [100, 1024]),
        ("2k,500", [2048, 500]),
    ],
)
def test_lists_of_lengths_stay_lists(seq: str, lengths: list[int], ask: Callable[..., Any]) -> None:
    points = ask("kv", "--model", "llama-7b", "--seq", seq)["points"]
    assert [point["inputs"]["seq"] for point in points] == lengths
    counted = ask("kv", "--model", "llama-7b", "--seq", "1", "--batch", "10,100")["points"]
    assert [point["inputs"]["batch"] for point in counted] == [10, 100]
    listed = infercost.kv("llama-7b", [32, 768]).points
    assert [point.inputs["seq"] for point in listed] == [32, 768]


@pytest.mark.parametrize("command", ["serve", "sweep", "report"])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("500", "--ttft 500: give a unit, 500ms or 0.5s"),
        ("0.5", "give a unit, 0.5s or 0.5ms"),
        ("0", "no time"),
    ],
)
def test_a_limit_has_a_unit(command: str, given: str, said: str, run: Run) -> None:
    """The tools that people come from say milliseconds, and 500 seconds would hold for anything."""
    said = said.replace("no time", "'0' is not a time; give one above 0, such as 0.5s or 50ms")
    assert said in led(run, command, "--model", "llama-7b", "--prompt", "64", "--ttft", given)


def test_a_limit_in_python_is_seconds() -> None:
    of = ("llama-7b", 64, 4)
    assert (
        infercost.serve(*of, batch=1, tpot=0.05).document
        == infercost.serve(*of, batch=1, tpot="50ms").document
    )


@pytest.mark.parametrize(
    ("word", "topic"),
    [
        ("concurrency", "concurrency"),
        ("calibrated", "confidence"),
        ("transferred", "confidence"),
        ("assumed", "confidence"),
        ("recipe", "recipe"),
        ("knee", "knee"),
        ("smallest share", "smallest-share"),
        ("lever", "lever"),
        ("ranks", "ranks"),
        ("tensor-parallel", "ranks"),
    ],
)
def test_words_of_the_screens_are_explained(word: str, topic: str, ask: Callable[..., Any]) -> None:
    assert ask("explain", word)["topic"] == topic


def test_the_words_are_of_the_commands_own_numbers(ask: Callable[..., Any], run: Run) -> None:
    of = ("--model", "llama-3-8b", "--gpu", "h100", "--seq", "8k")
    fit = ask("fit", *of)
    assert ask("explain", "concurrency", *of)["value"] == pytest.approx(fit["max_concurrency"], rel=1e-6)
    share = ask("explain", "smallest-share", *of)["value"]
    assert share == pytest.approx(fit["smallest_share"])
    assert ask("fit", *of, "--share", f"{share * 1.0001:.6f}")["fits"]
    assert not ask("fit", *of, "--share", f"{share * 0.9999:.6f}")["fits"]
    rank = ask("fit", *of, "--tp", "2")["terms"][0]
    assert (rank["name"], rank["bytes"]) == ("weights", ask("explain", "ranks", *of)["value"])
    assert "concurrency: caches of 8,192 tokens that fit beside all else" in run("fit", *of).out
