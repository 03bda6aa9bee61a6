"""What must hold whatever a file, the environment or the moment is: see docs/security.md."""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infercost import InputError
from infercost.cli.output.report import write_file
from infercost.models.gguf import MAX_HELD, MAX_TEXTS
from infercost.sheets import MAX_LINE, MAX_PARTS

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))
import hostile

Run = Callable[..., Any]
EXAMPLE = Path(__file__).parents[2] / "docs" / "example"
KV = ("kv", "--model", "llama-7b", "--seq", "4k")
COMMANDS = (
    KV,
    ("ops", "--model", "llama-7b", "--seq", "1k"),
    ("roofline", "--gpu", "a100"),
    ("request", "--model", "llama-7b", "--gpu", "h100", "--prompt", "512", "--gen", "16"),
    ("check", str(EXAMPLE / "budgets.yaml")),
)
READERS = [(suffix, command) for suffix, commands in hostile.KINDS.items() for command in commands]


def infercost(*args: str, **more: Any) -> subprocess.CompletedProcess[str]:
    more = {"stdin": subprocess.DEVNULL, "timeout": 60} | more
    return subprocess.run(
        [sys.executable, "-m", "infercost", *args], capture_output=True, text=True, check=False, **more
    )


def one_line(result: Any, said: str) -> None:
    assert (result.code, result.out) == (2, ""), result
    assert result.err.count("\n") == 1
    assert said in result.err
    assert len(result.err) < 10_000


# Windows has no named pipes in its file system; nothing can be tried there.
without_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")


@without_pipes
@pytest.mark.parametrize(("suffix", "command"), READERS)
def test_a_named_pipe_is_not_waited_for(suffix: str, command: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / f"pipe.{suffix}"
    os.mkfifo(path)
    result = run(*command.split(), str(path))
    assert result.code in (1, 2), result
    assert "named pipe" in result.err or "not a file" in result.err or "named pipe" in result.out


@without_pipes
def test_a_named_pipe_without_a_reader_is_not_written_to(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "pipe.json"
    os.mkfifo(path)
    one_line(run(*KV, "-o", str(path)), f"cannot write {path}")
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert run(*KV, "-o", str(path)).code == 0
        assert os.read(reader, 100).startswith(b"{")
    finally:
        os.close(reader)


def test_a_pipe_of_the_shell_is_read() -> None:
    if not Path("/dev/fd").exists():  # the shell then makes named pipes, which are refused
        pytest.skip("/dev/fd is not there: the shell makes named pipes")
    script = f"{sys.executable} -m infercost check <(cat {EXAMPLE}/budgets.yaml) --only kv-per-token"
    found = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert "config.json" in found.stdout + found.stderr, "the budgets were read; their folder is another"
    assert "named pipe" not in found.stderr


@pytest.mark.parametrize(
    "command", ["kv --seq 1 --model", "models show", "gpus show", "check", "weights --model"]
)
@pytest.mark.parametrize("name", ["x" * 5000, "a/" + "x" * 5000, "x" * 5000 + ".yaml", "a\0b/c", "~/x.yaml"])
def test_names_that_no_file_has(command: str, name: str, run: Run) -> None:
    result = run(*command.split(), name)
    assert result.code == 2
    assert result.err.startswith("infercost: ")
    assert "cannot write" not in result.err


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "\x1b[31m"},
        {"id": "\ud800"},
        {"achieved_flops_per_s": float("inf")},
        {"matmul_flops": float("nan")},
        {"matmul_flops": -1.0, "achieved_flops_per_s": -1.0},
        {"matmul_flops": 1e308, "bytes": 1e-300},
        {"bytes": 10**4000},
        {"bytes": []},
        {"verdict": "\x1b[31m"},
    ],
)
def test_a_probe_document_is_not_trusted(changes: dict[str, Any], run: Run, tmp_path: Path) -> None:
    result = {"id": "a", "matmul_flops": 1e9, "bytes": 1e6, "achieved_flops_per_s": 1e12, "verdict": "PASS"}
    path = tmp_path / "probe.json"
    path.write_text(json.dumps({"results": [result]}), encoding="utf-8")
    assert run("roofline", "--gpu", "a100", "--measured", str(path)).code == 0
    path.write_text(json.dumps({"results": [result | changes]}), encoding="utf-8")
    one_line(run("roofline", "--gpu", "a100", "--measured", str(path)), "is not a document of")


def test_a_picture_has_no_place_for_any_number_of_points(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "probe.json"
    point = {"id": "a", "matmul_flops": 1e9, "bytes": 1e6, "achieved_flops_per_s": 1e12, "verdict": "PASS"}
    path.write_text(json.dumps({"results": [point] * 10_001}), encoding="utf-8")
    one_line(run("roofline", "--gpu", "a100", "--measured", str(path)), "more than 10,000 results")


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "a\\b", "", "x" * 101])
def test_a_gpu_sheet_cannot_name_another_file(name: str, run: Run, tmp_path: Path) -> None:
    """Calibrations are files named after the GPU."""
    path = tmp_path / "gpu.yaml"
    text = (Path(__file__).parents[2] / "hardware/sheets/l4.yaml").read_text(encoding="utf-8")
    path.write_text(text.replace("name: l4\n", f"name: {json.dumps(name)}\n"), encoding="utf-8")
    one_line(run("ops", "--model", "gpt2", "--seq", "1", "--gpu", str(path)), "name is a word")


def test_a_row_names_sheets_that_ship_and_no_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not standard input, the hub or what lies in the folder."""
    monkeypatch.chdir(tmp_path)
    for kind, name in (("models", "llama-7b"), ("hardware", "l4")):
        text = (Path(__file__).parents[2] / kind / "sheets" / f"{name}.yaml").read_bytes()
        (tmp_path / f"{kind}.yaml").write_bytes(text)
    row = "vllm,{},{},single_stream,ttft_ms,200,512,128,1,1,none,fp16,,\n"
    pairs = [("models.yaml", "l4"), ("-", "l4"), ("hf:a/b", "l4"), ("llama-7b", "hardware.yaml")]
    path = tmp_path / "rows.csv"
    path.write_text(
        hostile.END_TO_END.decode()
        + row.format("llama-7b", "l4")
        + "".join(row.format(*pair) for pair in pairs),
        encoding="utf-8",
    )
    excluded = run("validate", "--end-to-end", str(path), "--json").json["excluded"]
    assert sorted(excluded.values()) == [1, 3]


def test_only_hf_asks_the_network(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **named: Any) -> Any:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for command in COMMANDS:
        assert run(*command).code == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"HOME": None, "XDG_DATA_HOME": None},
        {"HOME": "/dev/null"},
        {"HOME": ""},
        {"XDG_DATA_HOME": "relative"},
        {"XDG_DATA_HOME": "/" + "x" * 5000},
        {"XDG_DATA_HOME": f"{__file__}/below"},
        {"TMPDIR": "/nowhere"},
        {"COLUMNS": "1", "FORCE_COLOR": "1"},
        {"COLUMNS": "9" * 30, "FORCE_COLOR": "1"},
        {"COLUMNS": "-1", "FORCE_COLOR": "1"},
        {"PYTHONIOENCODING": "ascii:strict", "LC_ALL": "xx_YY.none"},
        {"PYTHONIOENCODING": "utf-16"},
        {"INFERCOST_RIDGE": "", "LINES": "x", "TERM": "\x1b[31m"},
    ],
)
def test_odd_environments(changes: dict[str, str | None]) -> None:
    env = {name: value for name, value in {**os.environ, **changes}.items() if value is not None}
    result = infercost("ops", "--model", "gpt2", "--seq", "1", env=env, encoding="latin-1")
    assert (result.returncode, result.stderr) == (0, "")


def test_long_lines_and_many_parts_are_refused(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text("1," * MAX_LINE, encoding="utf-8")
    one_line(run("validate", "--kernels", str(path)), f"wide.csv:1: a line of more than {MAX_LINE:,}")
    path.write_bytes(hostile.GEMM + b"1," * MAX_LINE)
    one_line(run("validate", "--kernels", str(path)), f"wide.csv:2: a line of more than {MAX_LINE:,}")
    path = tmp_path / "parts.json"
    path.write_text("[" + "[]," * MAX_PARTS, encoding="utf-8")
    one_line(
        run("request", "--model", "gpt2", "--gpu", "h100", "--measured", str(path)),
        "no result of a known tool",
    )
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_bytes((EXAMPLE / "config.json").read_bytes())
    head = b'{"a":[' + b"[]," * MAX_PARTS + b"0]}"
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head)
    one_line(run("models", "show", str(folder)), "lists and objects")


def test_rows_of_endless_kinds_are_refused(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "kinds.csv"
    path.write_bytes(hostile.GEMM + b"".join(b"gpu%d,x,fp16,8,8,8,1\n" % i for i in range(1000)))
    one_line(run("validate", "--kernels", str(path)), "for other reasons")
    path.write_bytes(hostile.GEMM + b"".join(b"h100,x%d,fp16,8,8,8,1\n" % i for i in range(2001)))
    one_line(run("validate", "--kernels", str(path)), "2,001 kinds of rows")


@pytest.mark.parametrize("ends", ["\r\n", "\r"])
def test_line_ends_of_other_systems(ends: str, run: Run, tmp_path: Path) -> None:
    rows = [hostile.GEMM.decode().strip(), "h100_sxm,cublas,fp16,4096,4096,4096,300"]
    answers = []
    for end in ("\n", ends):
        path = tmp_path / "rows.csv"
        path.write_text("\ufeff" + end.join(rows) + end, encoding="utf-8", newline="")
        answers.append(run("validate", "--kernels", str(path), "--json").json["totals"])
    assert answers[0] == answers[1]


def test_gguf_headers_are_held_in_bounds(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="the gguf package is not installed")
    path = tmp_path / "x.gguf"
    texts = hostile.string(b"a") + struct.pack("<IIQ", 9, 8, MAX_TEXTS + 1) + bytes(8 * MAX_TEXTS + 8)
    path.write_bytes(hostile.gguf(texts))
    one_line(run("kv", "--seq", "1", "--model", str(path)), "texts")
    text = hostile.string(b"k") + struct.pack("<I", 8) + hostile.string(bytes(1 << 20))
    path.write_bytes(hostile.gguf(text * (MAX_HELD // (1 << 20) + 1), 0, MAX_HELD // (1 << 20) + 1))
    one_line(run("kv", "--seq", "1", "--model", str(path)), "bytes of names and values")


def test_a_tensor_has_rows_in_bounds(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("numpy", reason="numpy is not installed")
    path = tmp_path / "x.npy"
    path.write_bytes(hostile.npy("(1048577,1)", "'|u1'", bytes(1048577)))
    one_line(run("quant", "--tensor", str(path), "--bits", "4"), "1,048,577 rows")


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    write_file(path, "old")

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left on device"):
        write_file(path, "new")
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_many_writers_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    writers = [
        subprocess.Popen([sys.executable, "-m", "infercost", *KV, "--batch", str(n), "-o", str(path)])
        for n in range(1, 7)
    ]
    assert [writer.wait(timeout=120) for writer in writers] == [0] * 6
    assert json.loads(path.read_text(encoding="utf-8"))["schema"] == "infercost.kv/1"
    assert list(tmp_path.iterdir()) == [path]


def test_killed_at_any_moment_a_file_is_the_old_or_the_new(tmp_path: Path) -> None:
    """A process of its own that writes one of two texts for ever, killed, again and again."""
    path = tmp_path / "x.txt"
    texts = ["a" * 300_000, "b" * 300_000]
    script = (
        "import pathlib, sys\nfrom infercost.cli.output.report import write_file\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "write_file(path, 'a' * 300_000)\nprint(flush=True)\n"
        "while True:\n    for letter in 'ba':\n        write_file(path, letter * 300_000)\n"
    )
    moments = random.Random(1)
    for _ in range(8):
        writer = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        writer.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(moments.uniform(0.005, 0.05))
        writer.kill()
        writer.wait()
        writer.stdout.close()
        assert path.read_text(encoding="utf-8") in texts
