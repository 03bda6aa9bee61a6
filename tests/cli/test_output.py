"""Formats, files, streams and the JSON contract, command by command."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infercost import InputError
from infercost.cli.assertions import parse_assertions

Run = Callable[..., Any]
KV = ("kv", "--model", "llama-7b", "--seq", "4k")
COMMANDS = {
    "kv": KV,
    "weights": ("weights", "--model", "mixtral-8x7b"),
    "ops": ("ops", "--model", "llama-7b", "--seq", "1k"),
    "roofline": ("roofline", "--gpu", "h100", "--model", "llama-7b", "--seq", "1k"),
    "quant": ("quant", "--model", "llama-7b", "--seq", "1k", "--weights", "gptq"),
    "compress": ("compress", "--sparsity", "0.6"),
    "check": ("check", str(Path(__file__).parents[2] / "docs" / "example" / "budgets.yaml")),
    "diagnose": ("diagnose", "--model", "llama-7b", "--prompt", "1k", "--gen", "16"),
    "explain": ("explain", "kv"),
    "report": ("report", "--model", "gpt2", "--prompt", "64", "--gen", "4"),
    "sweep": ("sweep", "--model", "llama-7b", "--prompt", "1k,2k", "--batch", "1..4*2"),
    "models": ("models",),
    "gpus": ("gpus",),
}
CONTRACT = {
    "kv": {"logical_bytes", "bytes_per_token", "state_bytes", "groups"},
    "weights": {"parameters", "active_parameters", "weight_bytes", "read_bytes_per_step", "components"},
    "ops": {"ops", "totals"},
    "roofline": {"gpu", "dtype", "peak_flops_per_s", "bandwidth_bytes_per_s", "ridge", "ops", "measured"},
    "quant": {"weight_bytes", "kv_bytes", "memory_bytes", "tpot_s", "prefill_s", "extra", "quality"},
    "compress": {"storages", "bits_per_weight", "of_dense"},
    "check": {"passed", "checks"},
    "report": {"answer", "fit", "request", "serve", "roofline", "diagnose", "lattice"},
    "diagnose": {"verdicts", "levers", "not_applicable", "plans", "objective", "figures"},
    "explain": {"topic", "formula", "letters", "value", "unit", "source", "differs", "bill", "commands"},
    "sweep": {"grid_points", "settings", "impossible_points", "impossible", "points"},
    "models": {"models"},
    "gpus": {"gpus"},
}
OP_KEYS = {
    *("phase", "name", "work", "count", "matmul_flops", "vector_flops", "bytes", "bytes_by_class"),
    *("intensity", "verdict", "floor_s", "expected_s", "confidence"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_json_contract(command: str, run: Run) -> None:
    """Every document says what it is, what was asked, by which conventions and from which sources."""
    document = run(*COMMANDS[command], "--json").json
    assert document["schema"] == f"infercost.{command}/1"
    assert {"schema", "inputs", "conventions", "sources"} | CONTRACT[command] <= set(document)
    # RFC 8259: what another parser reads has no NaN and no Infinity.
    json.dumps(document, allow_nan=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_format(command: str, run: Run) -> None:
    plain = run(*COMMANDS[command])
    assert plain.code == 0
    assert plain.err == ""
    assert "\x1b" not in plain.out
    rows = list(csv.DictReader(io.StringIO(run(*COMMANDS[command], "--csv").out)))
    assert rows
    assert None not in rows[0]
    markdown = run(*COMMANDS[command], "--format", "md").out
    assert markdown.startswith("**")
    assert run(*COMMANDS[command], "--format", "json").json == run(*COMMANDS[command], "--json").json


def test_ops_document(run: Run) -> None:
    document = run(*COMMANDS["ops"], "--json").json
    assert {op["phase"] for op in document["ops"]} == {"prefill", "decode"} == set(document["totals"])
    for op in document["ops"]:
        assert set(op) == OP_KEYS
        assert op["expected_s"] >= op["floor_s"], "from cold memory nothing is below the floor"
        assert op["confidence"]["kind"] in ("calibrated", "transferred", "assumed")
        assert op["confidence"]["error"] > 0
        assert op["bytes"] == sum(op["bytes_by_class"].values())
        assert (op["intensity"] is None) == (op["bytes"] == 0)
    for phase, total in document["totals"].items():
        mine = [op for op in document["ops"] if op["phase"] == phase]
        for key in ("matmul_flops", "vector_flops", "bytes"):
            assert total[key] == sum(op[key] for op in mine)
        assert total["floor_s"] == pytest.approx(sum(op["floor_s"] for op in mine))
        assert total["bound_s"] <= total["floor_s"]
        assert total["expected_s"] == pytest.approx(sum(op["expected_s"] for op in mine))
        assert total["confidence"]["text"].startswith(total["confidence"]["kind"])


def test_without_a_calibration_nothing_is_expected(run: Run) -> None:
    document = run(*COMMANDS["ops"], "--calibration", "none", "--json").json
    assert all(op["expected_s"] is None and op["confidence"] is None for op in document["ops"])
    assert all(total["expected_s"] is None for total in document["totals"].values())
    assert "expected times" not in run(*COMMANDS["ops"], "--calibration", "none").out


def test_the_ridge_that_kernels_reach(run: Run, tmp_path: Path) -> None:
    """Half of an H100's 989.4 TFLOP/s over 0.8 of its 3,350 GB/s, by a calibration that says so."""
    own = tmp_path / "own.yaml"
    own.write_text(
        "schema: infercost.calibration/1\ndevice: h100-sxm\nsource: me\ndate: '2026-01-01'\n"
        "families: {gemm: {mine: {dtype: bf16, form: wave, rows: 10, default: true,\n"
        "  params: {mma_share: 0.5, memory_share: 0.8}, error: {mape: 0.1, median: 0.1, p90: 0.2}}}}\n",
        encoding="utf-8",
    )
    asked = ("roofline", "--gpu", "h100", "--calibration", str(own))
    document = run(*asked, "--json").json
    reached = document["reached"]
    assert reached["flops_per_s"] == pytest.approx(494.7e12)
    assert reached["bytes_per_s"] == pytest.approx(2680e9)
    assert document["ridge"]["calibrated"] == pytest.approx(494.7e12 / 2680e9)
    assert "the ridge is 184.6 FLOP/byte" in run(*asked).out


def test_roofline_document(run: Run) -> None:
    document = run("roofline", "--gpu", "a100", "--json").json
    assert document["ridge"]["headline"] == document["ridge"]["textbook"]
    # The A100's bf16 GEMMs: what they reach of the peak over what they reach of the bandwidth.
    assert 100 < document["ridge"]["calibrated"] < 200
    assert run("roofline", "--gpu", "t4", "--json").json["ridge"]["calibrated"] is None
    swapped = run("roofline", "--gpu", "a100", "--ridge", "datasheet", "--json").json
    assert swapped["ridge"]["headline"] == document["ridge"]["datasheet"]
    assert document["ops"] == document["measured"] == []


def test_ridge_may_come_from_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERCOST_RIDGE", "datasheet")
    assert run("roofline", "--gpu", "a100").out.startswith("ridge 153.0 FLOP/byte (datasheet")
    assert run("roofline", "--gpu", "a100", "--ridge", "textbook").out.startswith("ridge 142.5")


def test_headline(run: Run) -> None:
    first = run("roofline", "--gpu", "a100").out.splitlines()[0]
    assert first == "ridge 142.5 FLOP/byte (textbook, GB = 2^30) · 153.0 (datasheet, GB = 10^9)"


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        (("kv", "--model", "llama-7b", "--seq", "32k"), "17179869184"),
        (("kv", "--model", "llama-3-70b", "--seq", "4096", "--batch", "16"), "21474836480"),
        (("weights", "--model", "llama-7b", "--weights", "fp16"), "13476831232"),
        (("weights", "--params", "7e9", "--bits", "16"), "14000000000"),
        (("kv", "--model", "llama-7b", "--seq", "2k,8k,32k"), "1073741824\n4294967296\n17179869184"),
    ],
)
def test_quiet_prints_the_one_number(args: tuple[str, ...], wanted: str, run: Run) -> None:
    result = run(*args, "--quiet")
    assert (result.code, result.out, result.err) == (0, wanted + "\n", "")


def test_quiet_of_ops_and_roofline(run: Run) -> None:
    document = run(*COMMANDS["ops"], "--json").json
    floor = float(run(*COMMANDS["ops"], "-q").out)
    assert floor == pytest.approx(sum(total["floor_s"] for total in document["totals"].values()))
    assert float(run("roofline", "--gpu", "a100", "-q").out) == pytest.approx(142.5074, rel=1e-6)
    assert run("models", "--quiet").code == 2


def test_lists_make_points(run: Run) -> None:
    document = run(
        "kv", "--model", "llama-7b,gemma-3-27b", "--seq", "1k,2k", "--kv", "fp16,fp8", "--json"
    ).json
    assert len(document["points"]) == 8
    assert "logical_bytes" not in document
    for point in document["points"]:
        assert {"model", "seq", "batch", "kv"} <= set(point["inputs"])
        assert CONTRACT["kv"] <= set(point)
    single = run("kv", "--model", "llama-7b", "--seq", "2k", "--json").json
    assert single["inputs"]["seq"] == 2048
    assert single["logical_bytes"] == document["points"][2]["logical_bytes"]


def test_more_lists(run: Run) -> None:
    assert (
        len(
            run("ops", "--model", "llama-7b", "--seq", "1k,2k", "--gpu", "a100,h100", "--json").json["points"]
        )
        == 4
    )
    assert len(run("roofline", "--gpu", "a100,h100,tpu-v5e", "--json").json["points"]) == 3
    compared = run("weights", "--model", "llama-7b", "--weights", "fp16,bnb-nf4", "--json").json["points"]
    assert compared[1]["saved_fraction"] == pytest.approx(0.691, abs=5e-4)


def test_too_many_points(run: Run) -> None:
    many = ",".join(str(n) for n in range(1, 200))
    result = run("kv", "--model", "llama-7b", "--seq", many, "--batch", many)
    assert result.code == 2
    assert "39,601 points are more than 10,000" in result.err


@pytest.mark.parametrize("suffix", ["json", "csv", "md", "txt"])
def test_output_files(suffix: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / f"kv.{suffix}"
    result = run(*KV, "--output", str(path))
    assert (result.code, result.out) == (0, "")
    text = path.read_text(encoding="utf-8")
    wanted = {"json": "{", "csv": "model,", "md": "**", "txt": "2.00 GiB"}[suffix]
    assert text.startswith(wanted)
    assert list(tmp_path.iterdir()) == [path], "nothing half-written beside it"
    assert stat.S_IMODE(path.stat().st_mode) & 0o111 == 0


def test_output_keeps_what_is_there(run: Run, tmp_path: Path) -> None:
    """A link stays a link, a file keeps its mode, a protected file its content; a device is written to."""
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old", encoding="utf-8")
    real.chmod(0o640)
    link.symlink_to(real)
    assert run(*KV, "--output", str(link)).code == 0
    assert link.is_symlink()
    assert json.loads(real.read_text(encoding="utf-8"))["schema"] == "infercost.kv/1"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert run(*KV, "--format", "json", "--output", "/dev/null").code == 0
    shown = infercost(*KV, "--format", "csv", "--output", "/dev/stdout")
    assert shown.stdout.startswith("model,")


def test_conditions_are_read_before_anything_is_written(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    refused = run(*KV, "--output", str(path), "--assert", "no_such_key < 5")
    assert (refused.code, path.exists()) == (2, False)
    failed = run(*KV, "--output", str(path), "--assert", "logical_bytes < 5")
    assert (failed.code, path.exists()) == (1, True), "the numbers are there to look at"


def test_output_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    for path in (tmp_path / "no" / "such" / "kv.json", tmp_path):
        suffix = ["--format", "json"]
        result = run(*KV, *suffix, "--output", str(path))
        assert result.code == 2
        assert result.err.startswith(f"infercost: cannot write {path}")
    assert run(*KV, "--output", "kv.xlsx").code == 2
    assert run(*KV, "--output", "a\0b.json").code == 2


def test_assertions(run: Run) -> None:
    assert run(*KV, "--assert", "logical_bytes < 3e9", "--assert", "groups[0].layers == 32").code == 0
    failed = run(*KV, "--assert", "logical_bytes < 1e9")
    assert failed.code == 1
    assert failed.err == "infercost: assertion failed: logical_bytes < 1e9, but it is 2147483648\n"
    assert run(*COMMANDS["ops"], "--assert", "totals.decode.floor_s < 1").code == 0
    assert run(*COMMANDS["ops"], "--assert", "ops.qkv.count == 32").code == 0
    sweep = run("kv", "--model", "llama-7b", "--seq", "1k,64k", "--assert", "logical_bytes < 2e9")
    assert sweep.code == 1, "the condition is on every point"


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("logical_byts < 1", "did you mean logical_bytes"),
        ("logical_bytes", "is not 'key comparison value'"),
        ("logical_bytes << 1", "cannot compare"),
        ("groups[9].bytes < 1", "there is no '9'"),
        (f"groups[{'9' * 5000}].bytes < 1", "there is no"),
        ("groups < 1", "cannot compare"),
        ("logical_bytes < many", "cannot compare"),
        ("__class__ == 1", "there is no '__class__'"),
    ],
)
def test_bad_assertions(condition: str, said: str, run: Run) -> None:
    result = run(*KV, "--assert", condition)
    assert result.code == 2
    assert said in result.err


def infercost(*args: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "infercost", *args], capture_output=True, text=True, check=False, **more
    )


def test_a_closed_pipe_and_a_full_disk() -> None:
    """`| head -0` is no error; a full disk is one line and exit 1. Never a traceback."""
    command = f"{sys.executable} -m infercost gpus --json | head -c 10"
    piped = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert piped.stderr == ""
    command = f"{sys.executable} -m infercost gpus | true; echo ${{PIPESTATUS[0]}}"
    piped = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (piped.stdout, piped.stderr) == ("0\n", "")
    command = f"{sys.executable} -m infercost gpus >&-"
    shut = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in shut.stderr
    assert shut.stderr.startswith("infercost: standard output is closed")
    if not Path("/dev/full").exists():  # Linux alone has a disk that is always full
        pytest.skip("/dev/full is not there: no other file is always full")
    with open("/dev/full", "w", encoding="utf-8") as full:
        result = subprocess.run(
            [sys.executable, "-m", "infercost", *KV],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert result.returncode == 1
    assert result.stderr == "infercost: cannot write the output: No space left on device\n"


def test_no_locale() -> None:
    """Where the terminal cannot show a character, another stands for it."""
    env = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    result = infercost("roofline", "--gpu", "a100", env=env)
    assert result.returncode == 0
    assert result.stdout.startswith("ridge 142.5")


def test_colour_only_where_wanted() -> None:
    """Tables on a terminal (or FORCE_COLOR), no colour with NO_COLOR."""
    forced = infercost(*KV, env={**os.environ, "FORCE_COLOR": "1"})
    assert "\x1b[1m" in forced.stdout
    plain = infercost(*KV, env={**os.environ, "FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm"})
    assert "\x1b[3" not in plain.stdout
    assert "2.00 GiB" in plain.stdout
    for odd in ({"FORCE_COLOR": "0"}, {"COLUMNS": "0"}, {"TERM": "dumb"}):
        assert "\x1b" not in infercost(*KV, env={**os.environ, **odd}).stdout
    narrow = infercost(*KV, env={**os.environ, "FORCE_COLOR": "1", "COLUMNS": "0"})
    assert narrow.returncode == 0


def test_python_dash_m_and_version() -> None:
    from infercost import __version__

    assert infercost("--version").stdout == f"infercost {__version__}\n"


def test_help_has_examples_first(run: Run) -> None:
    for command in COMMANDS:
        text = run(command, "--help").out
        assert text.index(f"infercost {command}") < text.index("Options:")
    assert run("-h").code == 0
    bare = run()
    assert bare.code == 2
    assert "Commands:" in bare.err


def test_completion_offers_names() -> None:
    env = {**os.environ, "_INFERCOST_COMPLETE": "complete_bash", "COMP_CWORD": "3"}
    for words, wanted in (
        ("infercost kv --model llama-2", "llama-2-7b"),
        ("infercost roofline --gpu a10", "a100-40g-sxm"),
    ):
        result = infercost(env={**env, "COMP_WORDS": words})
        assert wanted in result.stdout.split(), result.stderr


def test_formats_that_are_listed_work(run: Run) -> None:
    entries = run("weights", "--formats", "--json").json["formats"]
    names = {use: [e["name"] for e in entries if e["use"] == use] for use in ("weights", "kv")}
    listed = run("weights", "--model", "llama-7b", "--weights", ",".join(names["weights"]), "--json").json
    assert len(listed["points"]) == len(names["weights"]) > 30
    cached = run("kv", "--model", "llama-7b", "--seq", "1", "--kv", ",".join(names["kv"]), "--json").json
    bits = {e["name"]: e["bits_per_value"] for e in entries if e["use"] == "kv"}
    for point in cached["points"]:
        assert point["logical_bytes"] * 8 / point["elements"] == bits[point["inputs"]["kv"]]


@pytest.mark.parametrize("command", ["models", "gpus"])
def test_list_is_the_command_alone(command: str, run: Run) -> None:
    assert run(command, "list").out == run(command).out


def test_sweep_of_a_roofline_keeps_its_operations(run: Run) -> None:
    asked = ("roofline", "--gpu", "a100,h100", "--model", "llama-7b", "--seq", "1k", "--weights", "fp16,fp8")
    document = run(*asked, "--json").json
    assert [(p["inputs"]["gpu"], p["inputs"]["weights"]) for p in document["points"]] == [
        (gpu, weights) for gpu in ("a100-80g-sxm", "h100-sxm") for weights in ("fp16", "fp8")
    ]
    assert all(point["ops"] for point in document["points"])
    rows = list(csv.DictReader(io.StringIO(run(*asked, "--csv").out)))
    assert {(r["gpu"], r["model"], r["weights"], r["seq"]) for r in rows} == {
        (gpu, "llama-7b", w, "1024") for gpu in ("a100-80g-sxm", "h100-sxm") for w in ("fp16", "fp8")
    }


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("ops", "--model", "llama-3-70b", "--seq", "4k", "--gpu", "a100"), "does not fit one a100-80g-sxm"),
        # 16.06 GB of weights and 65,536 x 131,072 bytes of cache: 24.65 of 24 GB, the weights alone fit.
        (("ops", "--model", "llama-3-8b", "--seq", "64k", "--gpu", "rtx4090"), "does not fit one rtx4090"),
        (("roofline", "--model", "llama-3-8b", "--seq", "64k", "--gpu", "rtx4090"), "does not fit one"),
        (("ops", "--model", "llama-7b", "--seq", "1", "--weights", "gptq"), "converted on the way"),
        (("ops", "--model", "llama-7b", "--seq", "1", "--weights", "fp8"), "has no fp8; counted at its"),
        (("ops", "--model", "whisper-tiny", "--seq", "4"), "1,500 encoder positions"),
        (("ops", "--model", "llama-7b", "--seq", "1", "--gpu", "h100", "--weights", "fp8"), ", fp16"),
        (("kv", "--model", "llama-7b,gpt2", "--seq", "1k,4k"), "beyond gpt2's context of 1,024"),
        (("kv", "--model", "llama-7b", "--seq", "1"), "for 1 token of"),
    ],
)
def test_what_a_person_should_know(asked: tuple[str, ...], said: str, run: Run) -> None:
    assert said in run(*asked).out


@pytest.mark.parametrize("width", ["40", "80", "200"])
def test_no_cell_is_cut_on_a_terminal(width: str) -> None:
    """Names and numbers stand whole whatever the width; only sentences are broken, between words."""
    asked = ("ops", "--model", "llama-7b,llama-3-8b", "--gpu", "a100,h100", "--seq", "1k")
    env = {**os.environ, "FORCE_COLOR": "1", "NO_COLOR": "1", "COLUMNS": width}
    shown, plain = infercost(*asked, env=env).stdout, infercost(*asked).stdout
    words = {word for line in plain.splitlines()[2:12] for word in line.split()}
    assert "a100-80g-sxm" in words
    assert words <= set(shown.split())


@pytest.mark.parametrize(
    "asked",
    [
        ("ops", "--model", "llama-3-8b", "--gpu", "h100", "--seq", "2k"),
        ("diagnose", "--model", "llama-3-8b", "--gpu", "h100", "--prompt", "2k"),
        ("explain",),
        ("quant", "--model", "llama-3-8b", "--gpu", "h100", "--seq", "2k"),
        ("fit", "--model", "llama-3-8b", "--gpu", "h100,rtx4090,a100", "--seq", "8k"),
    ],
)
def test_tables_of_one_model_fit_80_columns(asked: tuple[str, ...]) -> None:
    env = {**os.environ, "FORCE_COLOR": "1", "NO_COLOR": "1", "COLUMNS": "80"}
    lines = infercost(*asked, env=env).stdout.splitlines()
    rules = [i for i, line in enumerate(lines) if set(line.strip()) == {"─"}]
    assert rules
    assert max(len(line.rstrip()) for line in lines) <= 80


@pytest.mark.parametrize("text", ["a < x{}y", "a{}< 1", "a < x{}\ny", "{}a < 1", "a < 1{}", "a{}"])
def test_a_condition_is_read_in_time_with_its_length(text: str) -> None:
    """A million spaces; some of these took hours."""
    begin = time.process_time()
    with contextlib.suppress(InputError):
        parse_assertions([text.format(" " * 1_000_000)])
    assert time.process_time() - begin < 2


def test_conditions_are_taken_apart() -> None:
    said = parse_assertions([" a.b[0].c<=1 ", "name == two  words", "x!='y'"])
    assert [each[:3] for each in said] == [
        ("a.b[0].c", "<=", 1),
        ("name", "==", "two  words"),
        ("x", "!=", "y"),
    ]
