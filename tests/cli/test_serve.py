"""`infercost serve`: the ledger, measured engines, the contract, limits, traces, and what cannot be."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infercost import InputError
from infercost.cli.serve_json import _spread as spread
from infercost.cli.sizes import duration
from infercost.cli.trace import read_trace
from infercost.costmodel.simulation import Job

Ask = Callable[..., Any]
LLAMA = ("serve", "--model", "llama-7b", "--prompt", "512", "--gen", "128")
SMALL = ("serve", "--model", "llama-3-8b", "--gpu", "h100", "--prompt", "512", "--gen", "128")
SHARED = Path(__file__).parents[3] / "shared" / "end_to_end" / "latency.csv"
MEASURED = (
    (1, 160, 1000, 100, 26.98),
    (1, 352, 1000, 500, 39.34),
    (1, 352, 1000, 1000, 36.55),
    (1, 256, 1000, 2000, 28.65),
    (1, 80, 2000, 100, 36.42),
    (1, 208, 2000, 500, 37.43),
    (1, 240, 2000, 1000, 36.24),
    (1, 240, 2000, 2000, 36.52),
    (4, 80, 4000, 100, 26.63),
    (1, 128, 4000, 2000, 29.96),
    (8, 64, 8000, 100, 31.05),
    (2, 128, 8000, 1000, 32.64),
)
"""tp, concurrency, tokens in, tokens out, ms between tokens: Llama-3.1-8B in FP8 blocks on H200, SGLang, a
closed loop (ai-dynamo/aiconfigurator@095f58a5, silicon_sample.csv)."""


def test_the_ledger_static_and_continuous(ask: Ask) -> None:
    """cb.static: use of the slots at B = 8, the bound of what refilling gains; closed and simulated."""
    policies = ("--policy", "static,continuous", "--batch", "8,32,64")
    got = ask(*LLAMA, *policies, "--dist", "exp")
    by_batch = {line["batch"]: line for line in got["batching"]}
    assert by_batch[8]["utilisation"] == pytest.approx(0.3679, rel=0.01)
    assert by_batch[8]["utilisation_limit"] == pytest.approx(0.3679, abs=5e-5)
    for batch, bound in ((8, 2.72), (32, 4.06), (64, 4.74)):
        assert by_batch[batch]["speedup_bound"] == pytest.approx(bound, rel=0.005)
    static, refilled = (next(p for p in got["points"] if p["policy"] == n) for n in ("static", "continuous"))
    assert static["used"] == by_batch[8]["utilisation"]
    assert refilled["used"] == 1
    uniform = ask(*LLAMA, "--policy", "static", "--batch", "8", "--lengths", "uniform")["batching"][0]
    assert uniform["utilisation"] == pytest.approx(0.5625, rel=0.01)
    assert uniform["utilisation_limit"] == 0.5625
    assert uniform["speedup_bound"] < 2
    for kind, expected in (("exponential", 0.3685), ("uniform", 0.5618)):
        run = ask(*LLAMA, "--policy", "static", "--batch", "8", "--lengths", kind, "--simulate")
        share = run["simulation"][0]["used"]
        assert share["value"] == pytest.approx(expected, rel=0.02)
        closed = run["batching"][0]["utilisation"]
        assert abs(share["value"] - closed) < share["half_width"]


def test_the_ledger_splitfuse(ask: Ask) -> None:
    got = ask("serve", "--model", "llama-7b", "--prompt", "8192", "--chunk", "256", "--batch", "8")["chunk"]
    assert got["pieces"] == 32
    assert got["ridge_tokens"] == pytest.approx(153, rel=0.02)
    assert got["reread_bytes"] == pytest.approx(66.6e9, rel=0.02)
    assert got["hidden"]


def test_the_ledger_asymptote(ask: Ask) -> None:
    """dec.asymptote at a context of 1,024: 25.6 of cache and products, 25.1 with activations."""
    args = ("serve", "--model", "llama-7b", "--prompt", "896", "--gen", "256", "--batch", "1,8,64,512")
    got = ask(*args)
    assert got["mean_context"] == 1024
    assert got["asymptote"]["kv"] == pytest.approx(25.6, abs=0.05)
    assert got["asymptote"]["all_bytes"] == pytest.approx(25.1, abs=0.05)
    assert got["asymptote"]["verdict"] == "memory-bound"
    rising = [point["intensity"] for point in got["points"]]
    assert rising == sorted(rising)
    assert rising[-1] < got["asymptote"]["kv"]
    # The step of the ledger's dec.model: 110,008,205,312 FLOPs over its compulsory bytes.
    moved = 13_214_687_232 + 8 * 1024 * 524_288
    assert rising[1] == pytest.approx(110_008_205_312 / moved, rel=1e-3)


def test_the_ledger_paging(ask: Ask) -> None:
    """pg.waste: 1,000 tokens in blocks of 16, and in a reserve of 2,048."""
    args = ("serve", "--model", "llama-7b", "--prompt", "873", "--gen", "128", "--max-len", "2048")
    paged, reserved = ask(*args)["allocators"]
    assert paged["waste_average_bytes"] / 2**20 == 3.75
    assert paged["waste_max_bytes"] / 2**20 == 7.5
    assert paged["utilisation"] == pytest.approx(0.9921, abs=5e-5)
    assert reserved["utilisation"] == pytest.approx(0.4883, abs=5e-5)
    assert paged["most_batch"] > 2 * reserved["most_batch"]


def test_case_108(ask: Ask, run: Callable[..., Any]) -> None:
    args = ("serve", "--actual", "12000", "--tp", "8", "--price", "2.50")
    assert ask(*args)["usd_per_million_output"] == pytest.approx(0.46296296296296297, rel=1e-6)
    assert run(*args).out.startswith("0.463 dollars per million tokens")
    beside = ask(*SMALL, "--actual", "3000", "--price", "2.50")
    assert beside["actual"][0]["usd_per_million_output"] == pytest.approx(2.5 / 3600 / 3000 * 1e6)
    assert 0 < beside["actual"][0]["of_best"] < 1


def of_measured(ask: Ask, tp: int, batch: int, prompt: int, gen: int) -> Any:
    args = ("--model", "llama-3.1-8b", "--gpu", "h200", "--weights", "fp8-block", "--tp", str(tp))
    sizes = ("--prompt", str(prompt), "--gen", str(gen), "--batch", str(batch))
    return ask("serve", *args, *sizes)["points"][0]["tpot_s"]


def test_measured_closed_loops(ask: Ask) -> None:
    """Half of the time between tokens is the prefills of others here; nothing was fitted to these rows."""
    errors = [of_measured(ask, *row) * 1e3 / measured - 1 for *row, measured in MEASURED]
    assert median(abs(error) for error in errors) < 0.12
    assert abs(median(errors)) < 0.08


# The repository is tested without ../shared, too; MEASURED above are rows of this file.
@pytest.mark.skipif(not SHARED.exists(), reason="../shared/end_to_end/latency.csv is not here")
def test_every_such_closed_loop(ask: Ask) -> None:
    with SHARED.open(encoding="utf-8") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if (row["scope"], row["metric"], row["engine"]) == ("closed_loop", "tpot_ms", "sglang")
            and (row["model"], row["clean"]) == ("meta-llama/Llama-3.1-8B-Instruct", "True")
            and (row["gpu"], row["weight_format"]) == ("H200-SXM-141GB", "fp8_block")
            and row["roofline_defined"] == "True"
        ]
    assert len(rows) == 46
    errors = []
    for row in rows:
        sizes = [int(float(row[name])) for name in ("tp", "batch", "prompt_len", "gen_len")]
        errors.append(of_measured(ask, *sizes) * 1e3 / float(row["value"]) - 1)
    assert median(abs(error) for error in errors) < 0.12


def test_the_contract(ask: Ask) -> None:
    got = ask(*SMALL, "--policy", "static,continuous,chunked,disaggregated", "--batch", "1,16", "--simulate")
    assert got["schema"] == "infercost.serve/1"
    assert {"inputs", "conventions", "sources", "points", "best", "knee"} <= set(got)
    assert len(got["points"]) == 8
    for point in got["points"]:
        for key in ("ttft_s", "tpot_s", "output_tokens_per_s", "usd_per_million_output"):
            assert point[key] > 0
        assert point["verdict"] == "memory-bound"
        paid = point["devices"] * 3.99 / 3600 / point["output_tokens_per_s"] * 1e6
        assert point["usd_per_million_output"] == pytest.approx(paid)
    assert got["best"] in got["points"]
    assert got["price"]["usd_per_gpu_hour"] == 3.99
    assert [run["policy"] for run in got["simulation"]] == ["static", "continuous", "chunked"]


@pytest.mark.parametrize(
    ("calibration", "key", "close"), [("none", "floor", 1e-9), ("auto", "expected", 3e-3)]
)
def test_static_slots_are_the_request(calibration: str, key: str, close: float, ask: Ask) -> None:
    """Floors are linear in the context, expected times nearly."""
    for batch in ("1", "32"):
        args = ("--batch", batch, "--calibration", calibration)
        point = ask(*SMALL, *args, "--policy", "static")["points"][0]
        together = ask("request", *SMALL[1:], *args)
        assert point["ttft_s"] == pytest.approx(together["ttft_s"][key], rel=1e-9)
        assert point["tpot_s"] == pytest.approx(together["tpot_s"][key], rel=close)
        assert point["output_tokens_per_s"] == pytest.approx(together["output_tokens_per_s"], rel=close)


def test_limits(ask: Ask, run: Callable[..., Any]) -> None:
    free, bound = ask(*SMALL), ask(*SMALL, "--ttft", "200ms", "--tpot", "20ms")
    best = bound["best"]
    assert best["tpot_s"] <= 0.02
    assert best["ttft_s"] <= 0.2
    assert best["output_tokens_per_s"] < free["best"]["output_tokens_per_s"]
    batches = [p["batch"] for p in bound["points"]]
    # The largest batch within the limits is among the points, and one more is not within them.
    assert best["batch"] == max(p["batch"] for p in bound["points"] if p["meets_limits"])
    assert best["batch"] not in (1, 2, 4, 8, 16, 32, 64, 128)
    more = ask(*SMALL, "--tpot", "20ms", "--batch", str(best["batch"] + 1))
    assert (more["points"][0]["meets_limits"], more["best"]) == (False, None)
    assert batches == sorted(batches)
    assert "no batch is within TPOT 1 ms" in run(*SMALL, "--tpot", "1ms").out


def test_what_fits(ask: Ask, run: Callable[..., Any]) -> None:
    got = ask(*SMALL, "--batch", "1,100000")
    assert [point["fits"] for point in got["points"]] == [True, False]
    assert got["best"]["batch"] == 1
    held = ask("fit", "--model", "llama-3-8b", "--gpu", "h100", "--seq", "640")
    assert got["most_batch"] == held["max_batch"]
    none = run("serve", "--model", "llama-3-70b", "--gpu", "h100", "--prompt", "512")
    assert "not one sequence fits" in none.out


def test_users_wait_for_a_slot(ask: Ask) -> None:
    got = ask(*SMALL, "--concurrency", "4,16,64", "--batch", "16")["points"]
    assert [point["batch"] for point in got] == [4, 16, 16]
    assert [point["queue_s"] > 0 for point in got] == [False, False, True]
    for point in got:
        assert point["requests_per_s"] * point["e2e_s"] == pytest.approx(point["concurrency"])


def test_how_many_for_a_rate(ask: Ask) -> None:
    got = ask(*SMALL, "--batch", "64", "--rate", "100")
    each = got["best"]["requests_per_s"]
    assert got["devices_needed"] == -(-100 // (0.8 * each))


@pytest.mark.parametrize("ranks", [1, 2])
def test_prefill_apart_takes_whole_gpus_too(ranks: int, ask: Ask) -> None:
    """100 requests a second on units 80 % busy: as many as decode, and, of those that prefill one prompt at a
    time, as many as `request` has to be at it."""
    where = (*SMALL, "--tp", str(ranks))
    apart = ask(*where, "--batch", "64", "--rate", "100", "--policy", "disaggregated")
    reading = ask("request", *where[1:], "--phase", "prefill")["ttft_s"]["expected"]
    writing = apart["best"]["requests_per_s"]
    units = math.ceil(100 / (0.8 * writing)) + math.ceil(100 * reading / 0.8)
    assert apart["devices_needed"] == apart["at_rate"]["devices"] == ranks * units
    # Neither part's devices alone, nor the two rounded together.
    assert units > math.ceil(100 / (0.8 * writing) + 100 * reading / 0.8)


def test_what_was_seen_is_held_to_the_best(ask: Ask) -> None:
    """Tokens a second of a GPU: 12,000 from 4 of them over the best point's from all of its own."""
    asked = (
        "serve",
        "--model",
        "llama-3-70b",
        "--gpu",
        "h100",
        "--tp",
        "4",
        "--prompt",
        "512",
        "--gen",
        "128",
    )
    for policy in ("continuous", "disaggregated"):
        got = ask(*asked, "--policy", policy, "--batch", "64", "--actual", "12000")
        best = got["best"]
        assert best["devices"] == 4 if policy == "continuous" else best["devices"] > 4
        (seen,) = got["actual"]
        wanted = (12_000 / 4) / (best["output_tokens_per_s"] / best["devices"])
        assert seen["of_best"] == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("values", "p50", "p90", "p99"),
    [
        (range(100, 0, -1), 50, 90, 99),
        (range(1, 11), 5, 9, 10),
        (range(1, 8), 4, 7, 7),
        ([3], 3, 3, 3),
    ],
)
def test_percentiles_are_nearest_ranks(values: Iterable[float], p50: int, p90: int, p99: int) -> None:
    """The smallest value that no fewer than so many per cent are at or below."""
    ranks = [float(value) for value in values]
    assert spread(ranks) == {"mean": sum(ranks) / len(ranks), "p50": p50, "p90": p90, "p99": p99}


def test_a_shared_prefix(ask: Ask) -> None:
    args = ("serve", "--model", "llama-3-8b", "--gpu", "h100", "--prompt", "2k", "--gen", "64")
    got, without = ask(*args, "--shared-prefix", "1030"), ask(*args)
    assert got["prefix"]["shared_tokens"] == 1024  # whole blocks of 16
    assert got["prefix"]["bytes_once"] == 1024 * 131_072
    assert got["prefix"]["most_without"] == without["most_batch"]
    assert got["most_batch"] > 1.8 * without["most_batch"]
    assert got["best"]["output_tokens_per_s"] > without["best"]["output_tokens_per_s"]


def test_several_settings(ask: Ask) -> None:
    got = ask(
        *SMALL[:3], "--gpu", "h100,a100", "--prompt", "512", "--weights", "bf16,fp8-row", "--batch", "8"
    )
    assert len(got["points"]) == len(got["settings"]) == 4
    assert got["best"]["usd_per_million_output"] == min(p["usd_per_million_output"] for p in got["points"])


def write(folder: Path, text: str | bytes) -> str:
    path = folder / "trace.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def test_a_trace(ask: Ask, tmp_path: Path) -> None:
    rows = "".join(f"{i / 4},{100 + i},{10 + i % 5}\n" for i in range(200))
    path = write(tmp_path, "arrival,prompt,output\n" + rows)
    args = (
        "serve",
        "--model",
        "llama-3-8b",
        "--gpu",
        "h100",
        "--trace",
        path,
        "--batch",
        "8",
        "--ttft",
        "1s",
    )
    got = ask(*args, "--policy", "continuous,chunked,static")
    assert (got["inputs"]["prompt"], got["inputs"]["gen"]) == (199.5, 12)
    for run in got["simulation"]:
        assert run["requests"] == 200
        assert run["within_limits"] == 1
        # An open system serves what comes: 4 a second.
        assert run["requests_per_s"] == pytest.approx(4, rel=0.05)
    assert ask(*args, "--policy", "continuous,chunked,static") == got


@pytest.mark.parametrize(
    ("text", "jobs"),
    [
        ("arrival,prompt,output\n5,10,20\n3,30,40\n", [(0, 30, 40), (2, 10, 20)]),
        ("5,10,20\n5.5,30,40\n", [(0, 10, 20), (0.5, 30, 40)]),
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,10,20\n2023-11-16 18:15:47,3,4\n\n",
            [(0, 10, 20), (1, 3, 4)],
        ),
        ("output,input,time\n1,2,3\n", [(0, 2, 1)]),
    ],
)
def test_traces_that_are_read(text: str, jobs: list[tuple[float, int, int]], tmp_path: Path) -> None:
    assert read_trace(write(tmp_path, text)) == [Job(*each) for each in jobs]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no column 'arrival'"),
        ("5,6\n", ":1: 2 columns"),
        ('arrival,prompt,output\n1,2,"' + "x" * 200_000, "not CSV"),
        ("arrival,prompt\n1,2\n", "no column 'output'"),
        ("arrival,prompt,output\n", "no requests"),
        ("arrival,prompt,output\n1,2\n", ":2: 2 columns"),
        ("arrival,prompt,output\nsoon,2,3\n", ":2: arrival 'soon'"),
        ("arrival,prompt,output\nnan,2,3\n", "is no time"),
        ("arrival,prompt,output\n1,2.5,3\n", "'2.5' is no number of tokens"),
        ("arrival,prompt,output\n1,2,0\n", "'0' is no number of tokens"),
        ("arrival,prompt,output\n1,2,-5\n", "'-5' is no number of tokens"),
        ("arrival,prompt,output\n1,1e99,5\n", "'1e99' is no number of tokens"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"arrival,prompt,output\n1,2,\x00\n", "trace.csv"),
    ],
)
def test_traces_that_are_not(text: str | bytes, said: str, tmp_path: Path, run: Callable[..., Any]) -> None:
    got = run("serve", "--model", "llama-7b", "--trace", write(tmp_path, text))
    assert got.code == 2
    assert said in got.err
    assert got.err.count("\n") == 1


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=st.text(max_size=60) | st.text(alphabet='0123456789.,\n-e"ainrvlptoum', max_size=80))
def test_no_text_is_a_surprise(text: str, tmp_path: Path) -> None:
    jobs: list[Job] = []
    with contextlib.suppress(InputError):
        jobs = read_trace(write(tmp_path, "arrival,prompt,output\n" + text))
    assert all(job.arrival_s >= 0 and job.prompt >= 1 and job.gen >= 1 for job in jobs)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "serve needs --prompt"),
        (("--prompt", "0"), "must be between 1"),
        (("--prompt", "9", "--lengths", "unifrom"), "did you mean uniform"),
        (("--prompt", "9", "--policy", "fifo"), "--policy is one of"),
        (("--prompt", "9", "--policy", "static", "--chunk", "4"), "--chunk belongs to"),
        (("--prompt", "9", "--ttft", "soon"), "--ttft 'soon' is not a time"),
        (("--prompt", "9", "--tpot", "0"), "--tpot '0' is not a time"),
        (("--prompt", "9", "--price", "nan"), "--price"),
        (("--prompt", "9", "--rate", "-1"), "--rate"),
        (("--prompt", "9", "--link", "0"), "--link"),
        (("--prompt", "9", "--slack", "-1"), "--slack"),
        (("--prompt", "9", "--share", "nan"), "--share"),
        (("--prompt", "9", "--requests", "0"), "--requests"),
        (("--prompt", "9", "--gen", "1000M"), "at most"),
        (("--prompt", "9", "--max-len", "5"), "--max-len 5 is shorter"),
        (("--prompt", "64", "--shared-prefix", "64"), "all but one at most"),
        (("--prompt", "9", "--concurrency", "1", "--batch", "1,2"), "a single --batch"),
        (("--prompt", "1M", "--chunk", "16"), "at most 4,096"),
        (("--prompt", "9", "--trace", "x.csv"), "--trace has --prompt in it"),
        (("--trace", "/no/such.csv"), "No such file"),
        (("--trace", "/"), "is a folder"),
        (("--prompt", "9", "--tp", "64"), "does not divide"),
        (("--actual", "many"), "--actual 'many' is not a number"),
        (("--prompt", "9", "--batch", ",".join(["8"] * 1001)), "1,001 points are more than 1,000"),
        (
            ("--prompt", "9", "--gpu", "a100,h100,h200,b200,l4,t4", "--requests", "200000", "--simulate"),
            "fewer",
        ),
    ],
)
def test_what_cannot_be(args: tuple[str, ...], said: str, run: Callable[..., Any]) -> None:
    got = run("serve", "--model", "llama-7b", *args)
    assert got.code == 2
    assert said in got.err
    assert got.err.count("\n") == 1


def test_without_a_known_price_or_capacity(ask: Ask, run: Callable[..., Any]) -> None:
    args = ("serve", "--model", "llama-7b", "--prompt", "64", "--gpu", "cpu-generic-2ch")
    got = ask(*args)
    assert got["best"]["usd_per_million_output"] is None
    assert "give --price" in run(*args).out
    assert run("serve", "--actual", "5", "--gpu", "cpu-generic-2ch").code == 2


@pytest.mark.parametrize(
    "args",
    [
        (
            "--gen",
            "1",
            "--policy",
            "static,continuous,chunked,disaggregated",
            "--simulate",
            "--requests",
            "9",
        ),
        ("--batch", "3", "--simulate", "--rate", "50", "--requests", "1", "--lengths", "uniform"),
        ("--calibration", "none", "--policy", "chunked,disaggregated", "--tp", "2"),
        ("--batch", "1000M"),
    ],
)
def test_degenerate_sizes_make_valid_documents(args: tuple[str, ...], run: Callable[..., Any]) -> None:
    for form in ("--json", "--csv", "--format=md", "--format=table"):
        got = run("serve", "--model", "llama-3-8b", "--gpu", "h100", "--prompt", "3", *args, form)
        assert got.code == 0, got.err
        assert "nan" not in got.out.lower().replace("nanosecond", "")
        if form == "--json":
            json.loads(got.out)
        if form == "--csv":
            rows = list(csv.DictReader(io.StringIO(got.out)))
            assert float(rows[0]["output_tokens_per_s"]) > 0


def test_scripts(run: Callable[..., Any]) -> None:
    assert len(run(*SMALL, "--batch", "1,2", "-q").out.split()) == 2
    assert run(*SMALL, "--batch", "1", "--assert", "best.tpot_s < 0.001").code == 1


@pytest.mark.parametrize(
    ("text", "seconds"), [("0.5s", 0.5), ("50ms", 0.05), ("200 us", 2e-4), ("2 s", 2.0), ("1.5 S", 1.5)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text, "--ttft") == pytest.approx(seconds)
