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
from infercost.cli.output import files
from infercost.cli.output.files import BusyError, only_writer, replacing, write_file
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


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_below_dev_is_written_beside_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a place is decides, not how it is spelt."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("/dev/shm is not there: no other folder below /dev takes files")
    path = Path("/dev/shm") / f"infercost-{os.getpid()}.json"
    spelt = Path("/dev/..") / tmp_path.relative_to("/") / "x.json"
    try:
        for place in (path, spelt):
            write_file(place, "old")
            before = place.stat().st_ino
            with pytest.raises(TypeError), replacing(place) as file:
                file.writelines([b"ne", None])  # type: ignore[list-item]
            assert place.read_text(encoding="utf-8") == "old"
            kept = place.open("rb")  # so that its number is not given out again
            write_file(place, "new")
            assert place.stat().st_ino != before
            kept.close()
    finally:
        path.unlink(missing_ok=True)
    assert names(tmp_path) == ["x.json"]


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no Unix: neither modes nor descriptors by name")
def test_descriptors_are_written_where_they_are(tmp_path: Path) -> None:
    """`-o /dev/stdout > file` goes on behind what stands there."""
    script = f"(echo first; {sys.executable} -m infercost {' '.join(KV)} -o /dev/stdout -f json) > out"
    subprocess.run(["bash", "-c", script], check=True, cwd=tmp_path)
    first, rest = (tmp_path / "out").read_text(encoding="utf-8").split("\n", 1)
    assert first == "first"
    assert json.loads(rest)["schema"] == "infercost.kv/1"


def test_a_temporary_file_is_new_and_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim, path = tmp_path / "victim", tmp_path / "x.json"
    victim.write_text("precious", encoding="utf-8")
    path.write_text("old", encoding="utf-8")
    path.chmod(0o600)
    with monkeypatch.context() as patch:
        patch.setattr(os, "urandom", bytes)  # a name that can be guessed
        with replacing(path):
            (temporary,) = set(names(tmp_path)) - {"victim", "x.json"}
        (tmp_path / temporary).symlink_to(victim)
        with pytest.raises(InputError, match="File exists"):
            write_file(path, "new")
        (tmp_path / temporary).unlink()
    link = tmp_path / "link.json"
    link.symlink_to(path)
    write_file(link, "new")
    assert link.is_symlink()
    assert (path.read_text(encoding="utf-8"), victim.read_text(encoding="utf-8")) == ("new", "precious")
    assert path.stat().st_mode & 0o777 == 0o600
    assert names(tmp_path) == ["link.json", "victim", "x.json"]


def test_what_killed_writers_left_is_cleared(tmp_path: Path) -> None:
    pytest.importorskip("fcntl", reason="no locks of Unix: what was left stays")
    path = tmp_path / "x.json"
    script = (
        "import os, pathlib, sys\nfrom infercost.cli.output.files import replacing\n"
        "with replacing(pathlib.Path(sys.argv[1])) as file:\n    os._exit(9)\n"
    )
    for _ in range(2):
        subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    (tmp_path / ".infercost.other").write_text("another's", encoding="utf-8")
    (tmp_path / ".x.json.123").write_text("another's", encoding="utf-8")
    assert len(names(tmp_path)) == 3, "the second cleared what the first left"
    with replacing(path) as file:
        file.write(b"first")
        assert len(names(tmp_path)) == 3
        write_file(path, "second")  # which leaves that of the first, who still writes
        assert len(names(tmp_path)) == 4
    assert names(tmp_path) == [".infercost.other", ".x.json.123", "x.json"]
    assert path.read_text(encoding="utf-8") == "first"


def test_one_writer_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.csv"
    for without in (False, True):
        if without:
            monkeypatch.setattr(files, "_lock", lambda handle: None)
        for _ in range(2):
            with (
                only_writer(path, "another sweep"),
                pytest.raises(BusyError, match="another sweep is writing"),
                only_writer(path, "another sweep"),
            ):
                pass
            assert names(tmp_path) == []
    left = tmp_path / ".x.csv.infercost-lock-pid"
    left.write_text(f"{2**30} {os.uname().nodename}", encoding="utf-8")
    with only_writer(path, "another sweep"):
        assert left.read_text(encoding="utf-8").startswith(f"{os.getpid()} ")
    left.write_text("1 elsewhere", encoding="utf-8")
    with pytest.raises(BusyError), only_writer(path, "another sweep"):
        pass


def budgets_of(folder: Path, model: Path | str) -> Path:
    """A budgets file with one check, of a model."""
    path = folder / "budgets.yaml"
    text = f"checks:\n  a: {{run: kv --seq 1 --model {model}, expr: logical_bytes, max: 1}}\n"
    path.write_text(text, encoding="utf-8")
    return path


SPELT = ("{}", "/dev/..{}", "/proc/self/root{}")


@without_pipes
@pytest.mark.parametrize("spelt", SPELT)
def test_a_named_pipe_is_one_however_it_is_spelt(spelt: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "pipe.yaml"
    os.mkfifo(path)
    name = spelt.format(path)
    if not Path(name).is_fifo():
        pytest.skip("no such name here")
    one_line(run("kv", "--seq", "1", "--model", name), "is a named pipe")
    budgets = budgets_of(tmp_path, name)
    assert "is a named pipe" in run("check", str(budgets)).err


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="descriptors have no names here")
@pytest.mark.parametrize("name", ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "stdin.yaml"])
def test_standard_input_is_read_by_its_dash_alone(name: str, tmp_path: Path) -> None:
    """Be it a pipe or a file: neither by a command nor by a check."""
    if name == "stdin.yaml":
        (tmp_path / name).symlink_to("/dev/stdin")
    sheet = Path(__file__).parents[2] / "models" / "sheets" / "gpt2.yaml"
    budgets = budgets_of(tmp_path, tmp_path / name)
    ends = os.pipe()
    try:
        for given in (ends[0], sheet.open("rb")):
            for args in (("kv", "--seq", "1", "--model", str(tmp_path / name)), ("check", str(budgets))):
                found = infercost(*args, stdin=given, cwd=tmp_path)
                assert found.returncode == 2
                assert "is standard input; give a file" in found.stderr
    finally:
        os.close(ends[0])
        os.close(ends[1])


@without_pipes
def test_a_check_reads_no_pipe_that_is_open(run: Run, tmp_path: Path) -> None:
    ends = os.pipe()
    try:
        name = f"/dev/fd/{ends[0]}"
        if not Path(name).exists():
            pytest.skip("descriptors have no names here")
        budgets = budgets_of(tmp_path, name)
        assert f"{name} is a pipe; give a file" in run("check", str(budgets)).err
    finally:
        os.close(ends[0])
        os.close(ends[1])


def test_numbers_of_any_length_are_left_out(run: Run, tmp_path: Path) -> None:
    """And times of less than any clock ticks, which a fit has no use for."""
    path = tmp_path / "rows.csv"
    row = "h100_sxm,cublas,fp16,{},4096,4096,{}\n"
    rows = [row.format(64 << i, 300 + i) for i in range(7)]
    odd = [
        row.format("9" * 400, 300),
        row.format(64, "9" * 400),
        row.format(64, "1e-320"),
        row.format(64, "1e-310"),
    ]
    path.write_bytes(hostile.GEMM + "".join([*odd, *rows]).encode())
    for args in (("validate", "--kernels", str(path)), ("calibrate", "--gpu", "l4", "--from", str(path))):
        result = run(*args)
        assert (result.code, "left out: 4 rows" in result.out) == (0, True), result
    bench = json.loads((EXAMPLE / "llama-bench.json").read_text(encoding="utf-8"))
    path = tmp_path / "bench.json"
    for key in ("n_prompt", "n_gen", "n_depth", "avg_ts"):
        path.write_text(json.dumps([bench[0] | {key: 10**400}, *bench[1:]]), encoding="utf-8")
        asked = ("request", "--model", "gpt2", "--gpu", "h100", "--prompt", "9", "--gen", "2")
        one_line(run(*asked, "--measured", str(path)), f"'{key}' is no sensible number")


@pytest.mark.parametrize(
    "changes", [{"MPLBACKEND": "nope"}, {"MPLCONFIGDIR": "/dev/null"}, {"HOME": "/dev/null"}]
)
def test_matplotlib_is_asked_for_no_more_than_a_picture(changes: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    made = infercost(
        "roofline", "--gpu", "a100", "--plot", "p.png", env={**os.environ, **changes}, cwd=tmp_path
    )
    assert (made.returncode, made.stderr) == (0, "")
    assert (tmp_path / "p.png").stat().st_size > 1000
