"""`infercost diagnose`: its gains against other commands, its contract, its screens, what it refuses."""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
from collections.abc import Callable
from typing import Any

import pytest

Ask = Callable[..., Any]
Run = Callable[..., Any]
LLAMA = ("diagnose", "--model", "llama-7b", "--prompt", "2k")
FIGURES = ("ttft_s", "tpot_s", "usd_per_million_output")

PLANS = [
    ("llama-7b", "a100", 512, 128, 1),
    ("llama-7b", "h100", 2048, 64, 32),
    ("llama-2-13b", "a100", 1024, 256, 8),
    ("llama-2-70b", "h200", 4096, 256, 1),
    ("llama-3-8b", "h100", 8192, 128, 4),
    ("llama-3-8b", "l40s", 1024, 512, 16),
    ("llama-3-8b", "rtx4090", 512, 64, 1),
    ("llama-3-70b", "b200", 2048, 256, 8),
    ("mistral-7b", "a100", 16384, 64, 2),
    ("mixtral-8x7b", "h200", 1024, 128, 8),
    ("qwen2.5-7b", "h100", 32768, 16, 1),
    ("gemma-3-27b", "h100", 4096, 128, 4),
    ("phi-3-mini-4k", "a100", 256, 1024, 64),
    ("gpt2", "t4", 512, 64, 1),
    ("falcon-7b", "a100", 1024, 64, 4),
    ("bloom-7b1", "h100", 1024, 64, 4),
    ("deepseek-v2-lite", "h100", 2048, 64, 16),
    ("mamba2-2.7b", "a100", 4096, 64, 8),
    ("jamba-v0.1", "h200", 8192, 64, 2),
    ("gpt-oss-20b", "h100", 4096, 128, 16),
]
"""Model, GPU, prompt, tokens out, batch."""
AS_OPTIONS = {
    "fp8": ("--weights", "fp8-row"),
    "int8": ("--weights", "int8-row"),
    "int4": ("--weights", "gptq"),
    "kv-fp8": ("--kv", "fp8"),
    "kv-int4": ("--kv", "int4-g32"),
    "gqa=8": ("--kv-heads", "8"),
    "mqa": ("--kv-heads", "1"),
    "tp=2": ("--tp", "2"),
    "gpu=h200": ("--gpu", "h200"),
    "chunked=512": ("--policy", "chunked", "--chunk", "512"),
    "disaggregated": ("--policy", "disaggregated"),
}
"""The options of `serve` that say what a lever does."""


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: "-".join(str(part) for part in plan))
def test_a_gain_is_the_difference_of_two_evaluations(plan: tuple[Any, ...], ask: Ask) -> None:
    """Both by another command, `serve`, which knows no levers."""
    model, gpu, prompt, gen, batch = plan
    asked = {
        "--model": model,
        "--gpu": gpu,
        "--prompt": str(prompt),
        "--gen": str(gen),
        "--batch": str(batch),
    }

    def served(*more: str) -> Any:
        options = asked | dict(zip(more[::2], more[1::2], strict=True))
        return ask("serve", *(word for pair in options.items() for word in pair))["points"][0]

    found = ask("diagnose", *(word for pair in asked.items() for word in pair))
    base = served()
    levers = {one["name"]: one for one in found["levers"]}
    compared = set(levers) & set(AS_OPTIONS)
    assert len(compared) >= 4
    for name in compared:
        after = served(*AS_OPTIONS[name])
        for figure in FIGURES:
            if base[figure] is None or after[figure] is None:
                assert levers[name]["gain"][figure] is None
                continue
            wanted = base[figure] - after[figure]
            assert levers[name]["gain"][figure] == pytest.approx(wanted, rel=1e-9, abs=1e-12 * base[figure])
    for one in found["levers"]:
        for key, gained in one["gain"].items():
            before, after = one["before"][key], one["after"][key]
            assert gained == (None if before is None or after is None else before - after)
            assert before == found["figures"][key]


def test_of_one_request_it_is_that_request(ask: Ask) -> None:
    """2,048 + 257 - 1 cached tokens are whole blocks."""
    args = ("--model", "llama-7b", "--gpu", "h100", "--prompt", "2k", "--gen", "257")
    got, alone = ask("diagnose", *args), ask("request", *args)
    assert got["figures"]["ttft_s"] == alone["ttft_s"]["expected"]
    assert got["figures"]["tpot_s"] == pytest.approx(alone["tpot_s"]["expected"], rel=2e-3)
    assert got["figures"]["memory_bytes"] == alone["peak_memory_bytes"]
    whole = alone["usd"] / 257 * 1e6
    assert got["figures"]["usd_per_million_output"] == pytest.approx(whole, rel=2e-3)
    floor = ask("diagnose", *args, "--calibration", "none")
    assert floor["figures"]["ttft_s"] == alone["ttft_s"]["floor"]
    assert floor["confidence"] is None


@pytest.mark.parametrize(
    ("lever", "options"),
    [
        ("spec=0.7/4", ("--draft", "eagle", "--alpha", "0.7", "--gamma", "4")),
        ("spec=0.8/3/llama-68m", ("--draft", "llama-68m", "--alpha", "0.8", "--gamma", "3")),
        ("spec=0.5/8/lookup", ("--draft", "lookup", "--alpha", "0.5", "--gamma", "8")),
        ("medusa=0.75/0.5", ("--medusa", "0.75,0.5")),
        ("exit=0.1/4", ("--every", "4", "--exit-prob", "0.1")),
    ],
)
def test_fewer_passes_gain_what_speculate_says(lever: str, options: tuple[str, ...], ask: Ask) -> None:
    """A context of 2,048 + 256/2, one sequence: the time per token is that of the rounds alone."""
    got = ask(*LLAMA, "--with", lever)["plans"]
    said = ask("speculate", "--model", "llama-7b", "--seq", "2176", *options)
    speedups = said.get("speedups") or said["speedup"]
    assert got[0]["tpot_s"] / got[1]["tpot_s"] == pytest.approx(speedups["expected"], rel=1e-9)
    assert got[1]["ttft_s"] == got[0]["ttft_s"]


def test_the_contract(run: Run, ask: Ask) -> None:
    got = ask(*LLAMA)
    assert got["schema"] == "infercost.diagnose/1"
    assert {"inputs", "conventions", "sources", "verdicts", "levers", "not_applicable", "plans"} <= set(got)
    assert set(got["verdicts"]) == {"prefill", "decode", "memory"}
    assert (got["verdicts"]["prefill"]["verdict"], got["verdicts"]["prefill"]["binds"]) == (
        "compute-bound",
        "arithmetic",
    )
    assert (got["verdicts"]["decode"]["verdict"], got["verdicts"]["decode"]["binds"]) == (
        "memory-bound",
        "weights",
    )
    held = ask("fit", "--model", "llama-7b", "--seq", "2304")
    assert got["verdicts"]["memory"]["weights_bytes"] == held["terms"][0]["bytes"]
    assert got["verdicts"]["memory"]["cache_bytes"] == held["terms"][1]["bytes"] == 2304 * 524_288
    for one in got["levers"]:
        assert {"name", "before", "after", "gain", "why", "price", "command"} <= set(one)
    assert got["objective"] == "tpot"
    saved = [one["gain_share"]["tpot_s"] for one in got["levers"] if one["fits"]]
    assert saved == sorted(saved, reverse=True)
    assert [one["fits"] for one in got["levers"]] == sorted((o["fits"] for o in got["levers"]), reverse=True)
    assert all(one["why"] for one in got["not_applicable"])
    json.dumps(got, allow_nan=False)
    rows = list(csv.DictReader(io.StringIO(run(*LLAMA, "--csv").out)))
    assert [row["lever"] for row in rows] == [one["name"] for one in got["levers"]]
    assert float(run(*LLAMA, "-q").out) == pytest.approx(saved[0])


@pytest.mark.parametrize(
    ("args", "objective"),
    [
        (("--prompt", "2k"), "tpot"),
        (("--prompt", "8k", "--gen", "2"), "ttft"),
        (("--prompt", "64k", "--batch", "4"), "memory"),
        (("--prompt", "2k", "--for", "usd"), "usd"),
        (("--prompt", "2k", "--gen", "1"), "ttft"),
    ],
)
def test_what_binds_is_worked_on_first(args: tuple[str, ...], objective: str, ask: Ask) -> None:
    assert ask("diagnose", "--model", "llama-7b", *args)["objective"] == objective


COMMANDS = (
    (*("llama-3-8b", "--gpu", "h100", "--prompt", "1k", "--batch", "16", "--tp", "2", "--engine", "vllm"), 9),
    (*("llama-7b", "--prompt", "300", "--batch", "2", "--policy", "static"), 5),
    (*("mixtral-8x7b", "--gpu", "b200", "--prompt", "1k", "--tp", "2", "--ep", "2", "--price", "5"), 0),
    (*("llama-7b", "--prompt", "300", "--attention", "eager", "--fusion", "none", "--max-len", "4k"), 0),
    (*("llama-3-8b", "--gpu", "h200", "--prompt", "1k", "--batch", "4", "--with", "int4,spec=0.7/4"), 0),
    (*("llama-3-8b", "--gpu", "h100", "--prompt", "1k", "--kv", "fp8", "--calibration", "none"), 5),
    (*("llama-3-8b", "--prompt", "8k", "--batch", "4k", "--weights", "fp8-row"), 0),
    (*("llama-3-8b", "--prompt", "2k", "--batch", "4", "--policy", "chunked", "--chunk", "256"), 5),
)
"""Unlike plans, and how many levers `serve` says at least: none where it lacks an option or memory binds."""


@pytest.mark.parametrize("asked", COMMANDS, ids=lambda asked: " ".join(asked[:-1]))
def test_every_command_gives_the_figures_beside_it(asked: tuple[Any, ...], ask: Ask) -> None:
    *plan, least = asked
    found = ask("diagnose", "--model", *plan, "--gen", "16", "--layers", "4")
    served = 0
    for one in found["levers"]:
        program, command, *words = shlex.split(one["command"])
        assert program == "infercost"
        got = ask(command, *words)
        if command == "serve":
            served += 1
            (point,), figures = got["points"], FIGURES
        else:
            assert command == "diagnose"
            point, figures = got["plans"][-1], tuple(one["after"])
        for figure in figures:
            after = one["after"][figure]
            wanted = None if after is None else pytest.approx(after, rel=1e-9)
            assert point[figure] == wanted, (one["name"], figure)
    assert len(found["levers"]) > 12
    assert served >= least
    assert bool(served) == bool(least)


def test_the_verdict_is_of_the_largest_share(ask: Ask) -> None:
    """A prefill of 256 experts: intensity beyond the ridge, and time that goes to bytes and links."""
    args = ("--model", "deepseek-v3", "--gpu", "h200", "--tp", "8", "--prompt", "4k", "--layers", "8")
    prefill = ask("diagnose", *args)["verdicts"]["prefill"]
    assert prefill["intensity_verdict"] == "compute-bound"
    assert prefill["intensity"] > 206
    assert next(iter(prefill["shares"])) == prefill["binds"] != "arithmetic"
    assert prefill["verdict"] != "compute-bound"


def test_levers_together_are_the_options_together(ask: Ask) -> None:
    levers = "int4,gqa=8,kv-fp8,tp=2,batch=8"
    got = ask(*LLAMA, "--gpu", "h100", "--with", levers)
    options = ("--weights", "gptq", "--kv-heads", "8", "--kv", "fp8", "--tp", "2", "--batch", "8")
    plain = ask(*LLAMA, "--gpu", "h100", *options)
    assert got["figures"] == plain["figures"]
    assert got["verdicts"] == plain["verdicts"]
    names = [plan["name"] for plan in got["plans"]]
    assert names == ["now", *(f"+{name}" for name in levers.split(","))]
    assert got["plans"][0]["tpot_s"] == ask(*LLAMA, "--gpu", "h100")["figures"]["tpot_s"]
    assert got["levers"][0]["before"] == got["figures"], "what is ranked goes on from there"


def test_two_plans_side_by_side(ask: Ask, run: Run) -> None:
    got = ask(*LLAMA, "--with", "int4", "--vs", "fp8,tp=2")
    now, mine, other = got["plans"]
    assert (now["levers"], mine["levers"], other["levers"]) == ([], ["int4"], ["fp8", "tp=2"])
    assert other["tpot_s"] == ask(*LLAMA, "--weights", "fp8-row", "--tp", "2")["figures"]["tpot_s"]
    said = run(*LLAMA, "--with", "int4", "--vs", "fp8,tp=2").out
    change = round(100 * (other["tpot_s"] / mine["tpot_s"] - 1))
    assert "--vs fp8,tp=2 against --with: TTFT" in said
    assert f"TPOT {change:+} %" in said
    assert "against the base" in run(*LLAMA, "--vs", "int4").out


def test_the_screen_answers_first(run: Run) -> None:
    lines = run(*LLAMA).out.splitlines()
    assert lines[0].startswith(
        "LLaMA 7B, 2,048 tokens in, 256 out, 1 at once, on A100 SXM4 80GB: decode takes"
    )
    assert "memory-bound" in lines[0]
    assert lines[1].startswith("most on the time per token: ")
    said = run(*LLAMA).out
    assert "attack what does not bind the time per token" in said
    assert "not applicable (--all says why)" in said
    everything = run(*LLAMA, "--all").out
    assert "attention is fused (flash) already" in everything
    assert run(*LLAMA, "--top", "2").out.count("\n") < said.count("\n") < everything.count("\n")
    full = run("diagnose", "--model", "llama-3-70b", "--prompt", "4k").out
    assert "memory binds, it does not fit" in full
    assert "but do not make it fit alone: " in full
    assert "does not fit, 0 at most" in full


def test_a_sweep_has_a_line_each(run: Run, ask: Ask) -> None:
    args = ("diagnose", "--model", "llama-7b", "--prompt", "512,8k", "--batch", "1,16")
    assert len(ask(*args)["points"]) == 4
    said = run(*args).out
    assert said.startswith("4 deployments")
    assert "best lever" in said
    assert len(run(*args, "-q").out.splitlines()) == 4


@pytest.mark.parametrize(
    ("args", "objective", "any_fits"),
    [
        (("--model", "llama-7b", "--prompt", "2k"), "tpot_s", True),
        (("--model", "llama-3-8b", "--gpu", "rtx4090", "--prompt", "8k", "--batch", "4"), "tpot_s", True),
        (
            ("--model", "llama-3-8b", "--gpu", "l4", "--prompt", "32k", "--batch", "5000"),
            "memory_bytes",
            False,
        ),
    ],
)
def test_one_number_is_what_a_lever_that_fits_saves(
    args: tuple[str, ...], objective: str, any_fits: bool, run: Run, ask: Ask
) -> None:
    levers = ask("diagnose", *args)["levers"]
    saved = {one["name"]: 1 - one["after"][objective] / one["before"][objective] for one in levers}
    assert max(saved.values()) > 0.3
    fitting = [saved[one["name"]] for one in levers if one["fits"]]
    assert bool(fitting) is any_fits
    assert float(run("diagnose", *args, "-q").out) == pytest.approx(max([0.0, *fitting]))


def test_levers_not_shown_are_sorted_by_what_they_do(run: Run, ask: Ask) -> None:
    """By the time per token before and after; of a lever with several values the one that gains most."""
    best: dict[str, tuple[float, str]] = {}
    for one in ask(*LLAMA)["levers"]:
        assert one["fits"]
        gain = 1 - one["after"]["tpot_s"] / one["before"]["tpot_s"]
        kind = one["name"].partition("=")[0]
        best[kind] = max(best.get(kind, (gain, one["name"])), (gain, one["name"]), key=lambda each: each[0])
    out = run(*LLAMA, "--top", "1").out

    def listed(lead: str) -> set[str]:
        (line,) = (line for line in out.splitlines() if line.startswith(lead))
        return {part.split()[0] for part in line.removeprefix(lead).split(", ")}

    def having(low: float, high: float) -> set[str]:
        return {name for gain, name in best.values() if low <= gain < high}

    # Two per cent either way are nothing much.
    assert listed("gain on the time per token, too: ") == having(0.02, 1) - {"gpu=b200"}
    assert listed("attack what does not bind the time per token: ") == having(-0.02, 0.02)
    costly = listed("cost more of it than they save: ")
    assert costly == having(-math.inf, -0.02)
    # Eight at once take longer a token, by another command.
    one, eight = (ask("serve", *LLAMA[1:], "--batch", batch)["points"][0]["tpot_s"] for batch in ("1", "8"))
    assert "batch=8" in costly
    assert f"batch=8 {100 * (eight / one - 1):+.0f} %" in out


@pytest.mark.parametrize(
    "model", ["mamba-130m", "whisper-large-v3", "deepseek-v3", "flan-t5-xl", "gemma-3n-e2b"]
)
def test_unusual_models(model: str, ask: Ask, run: Run) -> None:
    for policy in ("static", "disaggregated"):
        got = ask("diagnose", "--model", model, "--prompt", "300", "--gen", "20", "--policy", policy)
        assert len(got["levers"]) > 5
    assert run("diagnose", "--model", model, "--prompt", "1", "--gen", "1", "--all").code == 0
    assert run("diagnose", "--model", model, "--prompt", "1", "--gpu", "cpu").code == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--prompt", "0"), "must be between 1"),
        (("--prompt", "2k", "--with", "int5"), "did you mean int8 or int4"),
        (("--prompt", "2k", "--with", "int4=3"), "it is written int4 alone"),
        (("--prompt", "2k", "--with", "gqa"), "it is written gqa=8"),
        (("--prompt", "2k", "--with", "gqa=5"), "--with gqa=5 does not apply"),
        (("--prompt", "2k", "--with", "gqa=nan"), "not a token count"),
        (("--prompt", "2k", "--with", "spec=0.7"), "it is written 0.7/4"),
        (("--prompt", "2k", "--with", "spec=nan/4"), "is no number"),
        (("--prompt", "2k", "--with", "spec=0.7/4/nosuch"), "unknown model"),
        (("--prompt", "2k", "--with", "medusa=2"), "between 0 and 1"),
        (("--prompt", "2k", "--with", "medusa=0.5/"), "is no number"),
        (("--prompt", "2k", "--with", "exit=0.1/99"), "every 99 layers"),
        (("--prompt", "2k", "--with", "sparse=1"), "between 0 and 1"),
        (("--prompt", "2k", "--with", "tp=3"), "--with tp=3 does not apply"),
        (("--prompt", "2k", "--with", "gpu=nosuch"), "unknown GPU"),
        (("--prompt", "2k", "--with", "model=llama-3-70b"), "no smaller"),
        (("--prompt", "2k", "--with", "kv=nf4"), "not of KV rows"),
        (("--prompt", "2k", "--with", "cached=2k"), "all but one at most"),
        (("--prompt", "2k", "--with", "chunked=512,spec=0.7/4"), "not modelled"),
        (("--prompt", "2k", "--with", ","), "empty part"),
        (("--prompt", "2k", "--with", ",".join(["int4"] * 21)), "at most 20"),
        (("--prompt", "2k", "--vs", "int4,int4"), "--vs int4 does not apply"),
        (("--prompt", "2k", "--for", "speed"), "--for is one of"),
        (("--prompt", "2k", "--for", "usd", "--gpu", "mi300x"), "give --price"),
        (("--prompt", "2k", "--gen", "1", "--for", "tpot"), "--gen 2"),
        (("--prompt", "2k", "--max-len", "5"), "fewer than the 2,303"),
        (("--prompt", "2k", "--top", "0"), "--top"),
        (("--prompt", "2k", "--chunk", "5"), "--policy chunked"),
        (("--prompt", "2k", "--price", "nan"), "--price"),
        (("--prompt", "2k", "--gen", "32M"), "--gen"),
        (("--prompt", ",".join(str(n) for n in range(1, 60))), "more than 50"),
        ((), "needs --prompt"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(args: tuple[str, ...], said: str, run: Run) -> None:
    got = run("diagnose", "--model", "llama-7b", *args)
    assert got.code == 2
    assert said in got.err
    assert got.err.count("\n") == 1


def test_sizes_beyond_use_are_answered(run: Run) -> None:
    for args in (("--prompt", "1000000M"), ("--prompt", "2k", "--batch", "1000000M")):
        got = run("diagnose", "--model", "llama-7b", *args)
        assert got.code == 0
        assert "does not fit" in got.out
