"""`infercost sweep`: every point is the request's, however it was computed, cut, stopped and joined."""

from __future__ import annotations

import csv
import itertools
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infercost.cli import sweep_grid
from infercost.cli.sizes import token_list

np = pytest.importorskip("numpy")
Ask = Callable[..., Any]
Run = Callable[..., Any]
SMALL = ("sweep", "--model", "llama-3-8b,mamba2-2.7b", "--gpu", "h100,t4", "--batch", "1..8*2")
SMALL = (*SMALL, "--prompt", "1..40+1", "--gen", "1,20", "--cached", "0,30", "--tp", "1,64", "--jobs", "1")
CLOSE = 1e-4
"""How near the sum over strides is to the sum step by step: the convention `tpot_s` says so."""
SAME = (
    *("prompt", "gen", "batch", "cached", "weights", "kv", "tp", "pp", "ep", "model", "gpu"),
    *("peak_memory_bytes", "devices", "fits"),
)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def near(mine: Any, theirs: Any, error: float) -> bool:
    """Whether numbers are as near, and missing where the others are."""
    if isinstance(theirs, dict):
        return set(mine) == set(theirs) and all(near(mine[key], theirs[key], error) for key in theirs)
    return mine == theirs or (None not in (mine, theirs) and abs(mine - theirs) <= error * abs(theirs))


def test_ranges() -> None:
    assert token_list("1..256*2", "--batch") == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert token_list("1k..128k*2", "--seq") == [1024 << i for i in range(8)]
    assert token_list("1..10+4,20, 3..4*5", "--seq") == [1, 5, 9, 20, 3]
    assert token_list("1.5k..3k*2", "--seq") == [1536, 3072]


@given(first=st.integers(1, 10**6), length=st.integers(0, 10**6), step=st.integers(1, 10**6))
def test_a_range_is_that_of_python(first: int, length: int, step: int) -> None:
    last = first + min(length, 9_999 * step)
    assert token_list(f"{first}..{last}+{step}", "--seq") == list(range(first, last + 1, step))


def test_golden_figures(ask: Ask) -> None:
    """LLaMA-7B, B = 8, T = 1024, A100: the design's 347.1, 372.7, 8.587 and 8.631 ms; peers.md's KV bytes."""
    args = ("--model", "llama-7b", "--batch", "8", "--gpu", "a100", "--prompt", "1023,1024", "--gen", "2")
    at_1023, at_1024 = ask("sweep", *args)["points"]
    assert at_1024["ttft_s"]["bound"] == pytest.approx(0.34714, rel=1e-4)
    assert at_1024["ttft_s"]["floor"] == pytest.approx(0.3727, rel=2e-4)
    assert at_1023["tpot_s"]["bound"] == pytest.approx(0.008587, rel=1e-4)
    assert at_1023["tpot_s"]["floor"] == pytest.approx(0.008631, rel=1e-4)
    assert at_1023["kv_bytes"] == 4_294_967_296
    assert at_1023["weight_bytes"] == 13_476_831_232
    assert (at_1024["prefill_verdict"], at_1023["decode_verdict"]) == ("compute-bound", "memory-bound")


MODELS = {
    "llama-3-8b": "2",
    "gemma-3-27b": "1",
    "deepseek-v3": "8",
    "jamba-v0.1": "4",
    "mixtral-8x7b": "2",
    "gpt-oss-20b": "1",
    "qwen3-next-80b-a3b": "1",
    "whisper-large-v3": "1",
    "flan-t5-xl": "2",
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("more", [(), ("--attention", "eager", "--kv", "fp8"), ("--calibration", "none")])
def test_every_point_is_the_request(model: str, more: tuple[str, ...], ask: Ask) -> None:
    dice = random.Random(f"{model}{more}")
    lengths = dice.sample([1, 2, 3, 7, 8, 9, 60, 129, 700, 1024, 5000, 33_000], 4)
    gens = dice.sample([1, 2, 40, 66, 130, 300, 1025], 2)
    batches = dice.sample([1, 2, 3, 8, 33, 64, 200], 2)
    cached = (0, dice.choice([1, 5, 59, 600]))
    args = (*("--model", model, "--gpu", dice.choice(["a100", "h100", "b200", "mi300x"])), *more)
    args = (*args, "--tp", MODELS[model])
    if model == "llama-3-8b":
        args = (*args, "--pp", "3")
    if model == "flan-t5-xl":
        args = (*args, "--encoder-seq", "300")
    axes = (("--prompt", lengths), ("--gen", gens), ("--batch", batches), ("--cached", cached))
    options = [part for name, values in axes for part in (name, ",".join(map(str, values)))]
    got = ask("sweep", *args, *options)
    possible = sum(c < p for p, _, _, c in itertools.product(lengths, gens, batches, cached))
    assert len(got["points"]) == possible == got["grid_points"] - got["impossible_points"]
    for point in dice.sample(got["points"], 6):
        inputs = point["inputs"]
        one = [f"--{name}={inputs[name]}" for name in ("prompt", "gen", "batch", "cached")]
        alone = ask("request", *args, *(o for o in one if o != "--cached=0"))
        for name in SAME:
            mine = inputs[name] if name in inputs else point[name]
            theirs = alone["inputs"][name] if name in alone["inputs"] else alone[name]
            assert mine == theirs, name
        assert (inputs["encoder_seq"] or None) == alone["inputs"]["encoder_seq"]
        alone["usd_per_million_output"] = (alone["usd_per_million"] or {}).get("output")
        assert near(point["ttft_s"], alone["ttft_s"], 1e-9)
        for name in ("tpot_s", "e2e_s", "mfu", "mbu", "output_tokens_per_s", "usd", "usd_per_million_output"):
            assert near(point[name], alone[name], CLOSE), name


@settings(max_examples=200, deadline=None)
@given(
    prompts=st.lists(st.integers(1, 5000) | st.integers(1, 1 << 20), min_size=1, max_size=5),
    gen=st.integers(2, 4000) | st.integers(2, 1 << 20),
)
def test_strides_hold_every_step_once(prompts: list[int], gen: int) -> None:
    """As many steps as there are, at contexts that add up, and never many strides."""
    from infercost.costmodel.sweeping import Lengths, strides

    side = np.array(prompts, dtype=float)
    cut = strides(Lengths(side, np.full(len(side), float(gen)), 0 * side, 0 * side))
    ends = [*cut.begin[1:].tolist(), len(cut.steps)]
    for prompt, begin, end in zip(prompts, cut.begin.tolist(), ends, strict=True):
        steps, contexts = cut.steps[begin:end], cut.context[begin:end]
        assert steps.sum() == gen - 1
        assert (steps * contexts).sum() == sum((prompt + 1, prompt + gen - 1)) * (gen - 1) / 2
        assert (np.diff(contexts) > 0).all()
        assert len(steps) <= 1024 + 256 + 2


@pytest.mark.parametrize("gpu", ["a100", "h100", "b200", "rtx4090", "mi300x", "tpu-v5e"])
def test_strides_are_near_every_step(gpu: str) -> None:
    """Long generations at odd places, held to the sum over each step."""
    from infercost.cli.calibrations import clock_of
    from infercost.costmodel.request import Request
    from infercost.costmodel.setting import Setting, step_cost
    from infercost.costmodel.step import Run
    from infercost.costmodel.sweeping import Lengths, decode_sums
    from infercost.hardware.catalogue import load_gpu
    from infercost.models.catalogue import load_model

    one = load_gpu(gpu)
    for name, prompt, gen, batch in (
        ("llama-7b", 1, 3000, 256),
        ("llama-3-8b", 777, 20_000, 3),
        ("gemma-3-27b", 300, 2000, 40),
        ("deepseek-v3", 5, 1500, 17),
    ):
        setting = Setting(load_model(name), Run(), one, clock=clock_of("auto", one))
        side = np.array([float(prompt)])
        got = decode_sums(
            setting, np.array([[float(batch)]]), Lengths(side, side * 0 + gen, 0 * side, 0 * side)
        )
        contexts = np.arange(prompt + 1, prompt + gen)
        each = step_cost(setting, Request(prompt, gen, batch).decode(contexts))
        for kind in ("bound", "floor", "expected"):
            every = np.broadcast_to(getattr(each, kind), contexts.shape).sum()
            assert getattr(got, kind)[0, 0] == pytest.approx(every, rel=CLOSE)


def test_a_pass_over_lengths_that_take_other_kernels(ask: Ask) -> None:
    """One token, a few and many are attended to by kernels of their own; an array of them is cut."""
    args = ("request", "--model", "llama-7b", "--gen", "20", "--no-cache", "--prompt")
    whole = ask(*args, "1")["no_cache"]["e2e_s"]["floor"]
    parts = [
        ask("request", "--model", "llama-7b", "--phase", "prefill", "--prompt", str(n)) for n in range(1, 21)
    ]
    assert whole == pytest.approx(sum(part["ttft_s"]["floor"] for part in parts), rel=1e-9)


def test_the_quicker_all_reduce_is_taken_point_by_point(ask: Ask) -> None:
    """Whichever is quicker for most of an array, each of its elements has its own."""
    args = ("--model", "llama-3-70b", "--gpu", "h100", "--tp", "8", "--prompt", "16,64k", "--batch", "1,64")
    for point in ask("sweep", *args, "--gen", "2")["points"]:
        inputs = point["inputs"]
        one = ("--prompt", str(inputs["prompt"]), "--batch", str(inputs["batch"]), "--gen", "2")
        alone = ask("request", *args[:6], *one)
        assert point["ttft_s"] == pytest.approx(alone["ttft_s"], rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 6) | st.just(math.nan)] * 3), max_size=40))
def test_the_front(points: list[tuple[float, float, float]]) -> None:
    from infercost.cli.sweep_filter import front

    whole = [p for p in points if not any(map(math.isnan, p))]
    wanted = {
        i
        for i, p in enumerate(points)
        if p in whole and not any(q != p and all(a <= b for a, b in zip(q, p, strict=True)) for q in whole)
    }
    assert set(front(np.array(points, dtype=float).reshape(-1, 3)).tolist()) == wanted


def test_limits_and_the_best(ask: Ask) -> None:
    args = ("sweep", "--model", "llama-3-8b", "--gpu", "h100,l4", "--batch", "1..256*2", "--prompt", "1k,8k")
    every = ask(*args)["points"]

    def tpot(point: Any) -> float:
        return point["tpot_s"]["expected"]

    def ids(points: Any) -> list[int]:
        return [point["point"] for point in points]

    fits = ids(p for p in every if p["fits"])
    assert ids(ask(*args, "--fits")["points"]) == fits
    quick = [p for p in every if tpot(p) <= 0.012 and p["ttft_s"]["expected"] <= 1 and p["mbu"] > 0.5]
    got = ask(*args, "--tpot", "12ms", "--ttft", "1s", "--where", "mbu > 0.5")["points"]
    assert ids(got) == ids(quick) != []
    best = ask(*args, "--by", "tpot", "--top", "5")["points"]
    assert ids(best) == ids(sorted(every, key=tpot)[:5])
    most = ask(*args, "--by", "tokens", "--where", "gpu == l4")["points"]
    rates = [p["output_tokens_per_s"] for p in most]
    assert rates == sorted(rates, reverse=True)
    assert {p["inputs"]["gpu"] for p in most} == {"l4"}
    front = ask(*args, "--pareto", "tpot,usd-per-million")["points"]
    for point in front:
        cheaper = [p for p in every if p["usd_per_million_output"] < point["usd_per_million_output"]]
        assert all(tpot(p) > tpot(point) for p in cheaper)


def test_what_cannot_be_is_counted(ask: Ask, run: Run) -> None:
    got = ask(*SMALL)
    assert got["grid_points"] == 2 * 2 * 4 * 40 * 2 * 2 * 2
    by_reason = {each["reason"]: each["points"] for each in got["impossible"]}
    assert sum(by_reason.values()) == got["impossible_points"]
    assert got["grid_points"] - got["impossible_points"] == len(got["points"])
    # 30 cached tokens are too many for the first 30 prompts: at every batch and number of tokens out.
    assert by_reason[next(r for r in by_reason if "cached" in r)] == 8 * 4 * 30 * 2
    assert by_reason["heads 32 does not divide over 64 ranks"] == 2 * 4 * (80 - 30) * 2
    numbers = [point["point"] for point in got["points"]]
    assert numbers == sorted(set(numbers))
    assert "cannot be: " in run(*SMALL).out


def test_a_number_names_its_point(ask: Ask) -> None:
    """The axes in the order of the convention, the last counting fastest."""
    args = (
        "--model",
        "llama-7b,llama-3-8b",
        "--tp",
        "1,2",
        "--batch",
        "1,3",
        "--prompt",
        "5,6,7",
        "--gen",
        "1,2",
    )
    points = ask("sweep", *args)["points"]
    axes = (["llama-7b", "llama-3-8b"], [1, 2], [1, 3], [5, 6, 7], [1, 2])
    for number, (point, wanted) in enumerate(zip(points, itertools.product(*axes), strict=True)):
        inputs = point["inputs"]
        assert point["point"] == number
        assert tuple(inputs[name] for name in ("model", "tp", "batch", "prompt", "gen")) == wanted


def test_one_way_to_say_a_point_in_every_format(run: Run, tmp_path: Path) -> None:
    asked = run(*SMALL, "--json").json
    flat = [json.loads(line) for line in run(*SMALL, "--format", "jsonl").out.splitlines()]
    for point, row in zip(asked["points"], flat, strict=True):
        assert point["tpot_s"]["expected"] == row["tpot_s.expected"]
        assert point["inputs"]["cached"] == row["cached"]
        assert [row["decode_verdict"] is None, row["tpot_s.floor"] is None] == [row["gen"] == 1] * 2
    for name in ("a.csv", "a.jsonl"):
        assert run(*SMALL, "-o", str(tmp_path / name), "-q").out == f"{len(flat)}\n"
    lines = (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == flat
    table = rows(tmp_path / "a.csv")
    for cells, row in zip(table, flat, strict=True):
        assert cells == {key: "" if value is None else str(value) for key, value in row.items()}
    assert run(*SMALL, "--csv").out == (tmp_path / "a.csv").read_text(encoding="utf-8")
    about = json.loads((tmp_path / "a.csv.sweep.json").read_text(encoding="utf-8"))
    assert {"inputs", "conventions", "sources", "impossible", "columns"} <= set(about)
    assert about["points"] == len(flat)
    assert not list(tmp_path.glob("*.parts"))


def test_parquet(run: Run, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    run(*SMALL, "-o", str(tmp_path / "a.parquet"))
    run(*SMALL, "-o", str(tmp_path / "a.jsonl"))
    table = parquet.read_table(tmp_path / "a.parquet")
    lines = (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()
    assert table.to_pylist() == [json.loads(line) for line in lines]


def test_parquet_without_pyarrow(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    result = run(*SMALL, "-o", str(tmp_path / "a.parquet"))
    assert result.code == 2
    assert "Parquet needs pyarrow: pip install 'infercost[sweep]'" in result.err


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of a few points, so that a small sweep has many."""
    monkeypatch.setattr(sweep_grid, "CHUNK_POINTS", 120)
    monkeypatch.setattr(sweep_grid, "MOST_BATCHES", 3)


@pytest.mark.parametrize(
    ("form", "more"),
    [
        ("csv", ()),
        ("csv", ("--where", "batch > 1")),
        ("csv", ("--pareto", "tpot,tokens")),
        ("csv", ("--by", "e2e", "--top", "7")),
        ("jsonl", ()),
        ("parquet", ()),
        ("parquet", ("--pareto", "tpot,tokens")),
    ],
)
@pytest.mark.usefixtures("small_chunks")
def test_shards_make_the_whole(form: str, more: tuple[str, ...], run: Run, tmp_path: Path) -> None:
    """Byte for byte the file that one process writes; so are chunks of any size but for their order."""
    if form == "parquet":
        pytest.importorskip("pyarrow")
    whole, parts = tmp_path / f"whole.{form}", [tmp_path / f"{i}.{form}" for i in (1, 2, 3)]
    assert run(*SMALL, *more, "-o", str(whole)).code == 0
    for i, part in enumerate(parts, 1):
        result = run(*SMALL, *more, "--shard", f"{i}/3", "-o", str(part))
        assert result.code == 0
        assert "sweep merge" in result.out
    joined = tmp_path / f"joined.{form}"
    said = run("sweep", "merge", str(joined), *map(str, reversed(parts)))
    assert said.code == 0, said.err
    if form == "parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
        assert parquet.read_table(joined).equals(parquet.read_table(whole))
    else:
        assert joined.read_bytes() == whole.read_bytes()
    one, other = (json.loads((tmp_path / f"{n}.{form}.sweep.json").read_text()) for n in ("whole", "joined"))
    for name in ("points", "bytes", "impossible_points", "chunk_points", "inputs", "digest"):
        if name == "bytes" and form == "parquet":
            continue
        if name != "chunk_points" or not more or more[0] == "--where":
            assert one[name] == other[name], name
    assert sorted(each["points"] for each in one["impossible"]) == sorted(
        e["points"] for e in other["impossible"]
    )


def test_the_cut_changes_no_point(run: Run, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rectangles of another size give the same points, but for the confidence, which is a rectangle's."""
    at_once = {point["point"]: point for point in ask(*SMALL)["points"]}
    monkeypatch.setattr(sweep_grid, "CHUNK_POINTS", 120)
    monkeypatch.setattr(sweep_grid, "MOST_BATCHES", 3)
    cut = {point["point"]: point for point in ask(*SMALL)["points"]}
    assert set(cut) == set(at_once)
    for number, point in cut.items():
        for name in ("ttft_s", "tpot_s", "e2e_s", "mfu", "mbu", "usd", "peak_memory_bytes"):
            assert near(point[name], at_once[number][name], 1e-12)


@pytest.mark.usefixtures("small_chunks")
def test_a_merge_of_what_does_not_belong(run: Run, tmp_path: Path) -> None:
    def part(name: str, shard: str, *more: str) -> str:
        path = str(tmp_path / name)
        assert run(*SMALL, *more, "--shard", shard, "-o", path).code == 0
        return path

    one, two, third = part("1.csv", "1/3"), part("2.csv", "2/3"), part("3.csv", "3/3")
    others = {
        "is given twice": [one, two, two],
        "shard 3/3 is not among the parts": [one, two],
        "of another sweep": [one, two, part("x.csv", "3/3", "--price", "1")],
        "of another filter": [one, two, part("y.csv", "3/3", "--fits")],
        "cut another way": [one, two, third, part("z.csv", "1/2")],
        "cannot read": [one, two, str(tmp_path / "no.csv")],
    }
    out = str(tmp_path / "out.csv")
    for said, parts in others.items():
        result = run("sweep", "merge", out, *parts)
        assert result.code == 2
        assert said in result.err
    with Path(third).open("a", encoding="utf-8") as file:
        file.write("torn")
    assert "it is not whole" in run("sweep", "merge", out, one, two, third).err
    for text in ("", "[]", "{}", '{"schema": "infercost.sweep-file/1", "digest": 3}', "[" * 100_000, "\0"):
        (tmp_path / "3.csv.sweep.json").write_text(text, encoding="utf-8")
        result = run("sweep", "merge", out, one, two, third)
        assert result.code == 2
        assert "is no description of a sweep" in result.err
    (tmp_path / "3.csv.sweep.json").write_bytes(b"\xff\xfe\x00")
    assert run("sweep", "merge", out, one, two, third).code == 2
    assert (
        "keeps the format"
        in run("sweep", "merge", str(tmp_path / "o.jsonl"), one, two, part("3.csv", "3/3")).err
    )
    nowhere = (str(tmp_path / "no" / "o.csv"), one, two, part("3.csv", "3/3"))
    assert "cannot write" in run("sweep", "merge", *nowhere).err
    assert not Path(out).exists()


@pytest.mark.usefixtures("small_chunks")
def test_a_stopped_sweep_goes_on(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import infercost.cli.sweep_run as running

    whole, out = tmp_path / "whole.csv", tmp_path / "out.csv"
    run(*SMALL, "-o", str(whole))
    evaluate, done = running.evaluate, []

    def stopping(grid: Any, chunk: int) -> Any:
        if len(done) == 5:
            raise KeyboardInterrupt
        done.append(chunk)
        return evaluate(grid, chunk)

    monkeypatch.setattr(running, "evaluate", stopping)
    assert run(*SMALL, "-o", str(out)).code == 130
    assert not out.exists()
    # A part that is not whole is computed again; one of another sweep is not taken for this one's.
    parts = tmp_path / "out.csv.parts"
    for name, text in (("00000002.*.csv", "torn"), ("00000003.*.note", "{")):
        (path,) = parts.glob(name)
        path.write_text(text, encoding="utf-8")
    other = run(*SMALL, "--price", "1", "-o", str(out))
    assert other.code == 2
    assert "--restart begins anew" in other.err
    done.clear()
    monkeypatch.setattr(
        running, "evaluate", lambda grid, chunk: (done.append(chunk), evaluate(grid, chunk))[1]
    )
    assert run(*SMALL, "-o", str(out)).code == 0
    assert out.read_bytes() == whole.read_bytes()
    assert sorted(done)[:2] == [2, 3]
    assert not {0, 1, 4} & set(done)
    done.clear()
    assert "complete already" in run(*SMALL, "-o", str(out)).out
    assert done == []
    assert run(*SMALL, "-o", str(out), "--restart").code == 0
    assert 0 in done
    (tmp_path / "mine.csv.parts").mkdir()
    (tmp_path / "mine.csv.parts" / "precious").touch()
    kept = run(*SMALL, "-o", str(tmp_path / "mine.csv"))
    assert kept.code == 2
    assert "is no folder of parts" in kept.err
    assert (tmp_path / "mine.csv.parts" / "precious").exists()
    assert "is no folder of parts" in run(*SMALL, "-o", str(tmp_path / "mine.csv"), "--restart").err
    assert (tmp_path / "mine.csv.parts" / "precious").exists()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")
def test_a_killed_sweep_goes_on(tmp_path: Path) -> None:
    """kill -9 in the middle, in two processes: the parts that are whole are kept, the file is the same."""
    args = [sys.executable, "-m", "infercost", "sweep", "--model", "llama-7b", "--calibration", "none"]
    args += ["--batch", "1..300+1", "--prompt", "1..400+1", "--gen", "1", "--jobs", "2", "-o"]
    out, whole = tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    running = subprocess.Popen([*args, str(out)], stdout=subprocess.DEVNULL, cwd=tmp_path)
    notes: list[Path] = []
    while len(notes) < 2 and running.poll() is None:
        time.sleep(0.02)
        notes = list((tmp_path / "out.jsonl.parts").glob("*.note"))
    running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    assert not out.exists()
    again = subprocess.run([*args, str(out)], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "120,000 points in" in again.stdout
    assert "120,000 points computed" not in again.stdout
    subprocess.run([*args, str(whole)], check=True, capture_output=True, cwd=tmp_path)
    assert out.read_bytes() == whole.read_bytes()


def test_processes_change_nothing(run: Run, tmp_path: Path) -> None:
    args = ("sweep", "--model", "gpt2", "--calibration", "none", "--prompt", "1..200+1", "--gen", "1")
    args = (*args, "--batch", "1..200+1", "-o")
    for jobs in ("1", "2"):
        assert run(*args, str(tmp_path / f"{jobs}.csv"), "--jobs", jobs).code == 0
    assert (tmp_path / "1.csv").read_bytes() == (tmp_path / "2.csv").read_bytes()


def test_conditions(run: Run, tmp_path: Path) -> None:
    small = ("sweep", "--model", "llama-7b", "--prompt", "1k", "--batch", "1,64", "--gpu", "h100")
    out = str(tmp_path / "a.csv")
    for more in ((), ("-o", out), ("-f", "jsonl")):
        column = "tpot_s.expected"
        assert run(*small, *more, "--assert", f"{column} < 1").code == 0
        failed = run(*small, *more, "--assert", f"{column} < 0.006")
        assert failed.code == 1
        assert failed.err.startswith(f"infercost: assertion failed: {column} < 0.006")
    assert "at 1 of 2 points" in run(*small, "-o", out, "--assert", "tpot_s.expected < 0.006").err


def test_the_screen(run: Run) -> None:
    got = run(
        "sweep", "--model", "llama-3-8b", "--gpu", "h100,h200", "--batch", "1..64*2", "--prompt", "1k..8k*2"
    )
    first, _, head, *_ = got.out.splitlines()
    assert first.startswith("56 points; least dollars per million output tokens of those that fit: ")
    assert head.split()[:3] == ["gpu", "batch", "prompt"]
    assert "the first 40 of 56" in got.out
    assert got.err == ""
    none = run("sweep", "--model", "llama-3-8b", "--prompt", "1k", "--tpot", "1us")
    assert (none.code, none.out.splitlines()[0]) == (0, "0 of 1 point: none is left")
    quiet = run("sweep", "--model", "llama-3-8b", "--prompt", "1k,2k", "-q").out.split()
    alone = [run("request", "--model", "llama-3-8b", "--prompt", p, "-q").out for p in ("1k", "2k")]
    assert [float(q) for q in quiet] == pytest.approx([float(a) for a in alone], rel=CLOSE)


def shard(number: int, args: tuple[str, ...], folder: str) -> str:
    """What a batch system's task does."""
    out = f"{folder}/{number}.csv"
    command = [sys.executable, "-m", "infercost", *args, "--jobs", "1", "--shard", f"{number}/4", "-o", out]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    return out


def test_dask_runs_the_shards(run: Run, tmp_path: Path) -> None:
    """The example of docs/sweeps.md on a local cluster; `pip install dask distributed` to run it."""
    distributed = pytest.importorskip("distributed")
    args = ("sweep", "--model", "gpt2", "--prompt", "1..200+1", "--batch", "1..200+1", "--gen", "1")
    args = (*args, "--calibration", "none")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        numbers = range(1, 5)
        parts = client.gather(client.map(shard, numbers, args=args, folder=str(tmp_path), pure=False))
    assert run("sweep", "merge", str(tmp_path / "grid.csv"), *parts).code == 0
    assert run(*args, "-o", str(tmp_path / "whole.csv")).code == 0
    assert (tmp_path / "grid.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_a_place_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "folder.csv"
    out.mkdir()
    assert run("sweep", "--model", "gpt2", "--prompt", "1", "-o", str(out)).code == 2
    (tmp_path / "file").touch()
    under = str(tmp_path / "file" / "x.csv")
    assert "cannot write" in run("sweep", "--model", "gpt2", "--prompt", "1", "-o", under).err
    (tmp_path / "y.csv.parts").touch()
    taken = str(tmp_path / "y.csv")
    assert "cannot write" in run("sweep", "--model", "gpt2", "--prompt", "1", "-o", taken).err


def test_an_encoder_reads_the_prompt(ask: Ask) -> None:
    """As `request` does: the decoder starts from one token, and no prefix of what is read is cached."""
    args = ("--model", "flan-t5-xl", "--gen", "8")
    (point,) = ask("sweep", *args, "--prompt", "500, 600", "--batch", "2", "--top", "1", "--by", "ttft")[
        "points"
    ]
    alone = ask("request", *args, "--prompt", "500", "--batch", "2")
    assert (point["inputs"]["prompt"], point["inputs"]["encoder_seq"]) == (1, 500)
    assert point["ttft_s"]["floor"] == pytest.approx(alone["ttft_s"]["floor"])


def test_no_more_processes_than_cores(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is said; 256 on two cores would be 256 processes."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    small = ("sweep", "--model", "gpt2", "--prompt", "1..8*2", "--jobs", "256")
    for more in ((), ("-o", str(tmp_path / "s.csv"))):
        assert "--jobs 256: a process for each core that may be used here, 1 in all" in run(*small, *more).out
    assert "for each core" not in run(*small[:-1], "1").out
