"""A sweep's files: killed at any moment, written by two at once, tampered with. See docs/security.md."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infercost.cli import sweep_grid, sweep_run
from infercost.cli.output.files import only_writer
from infercost.cli.sweep_files import Parts

pytest.importorskip("numpy")
Run = Callable[..., Any]
TINY = ("sweep", "--model", "gpt2", "--calibration", "none", "--batch", "1..4+1", "--prompt", "1..4+1")
TINY = (*TINY, "--gen", "2", "--jobs", "1")
OTHER = (*TINY, "--price", "1")
BEST = (*TINY, "--pareto", "tpot,tokens")


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three chunks in place of one."""
    monkeypatch.setattr(sweep_grid, "CHUNK_POINTS", 6)
    monkeypatch.setattr(sweep_grid, "MOST_BATCHES", 3)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def made(run: Run, folder: Path, args: tuple[str, ...], form: str = "csv") -> dict[str, bytes]:
    """What a sweep that nothing stops leaves in a folder of its own."""
    folder.mkdir()
    assert run(*args, "-o", str(folder / f"s.{form}")).code == 0
    return contents(folder)


OPERATIONS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.truncate")


def killed(run: Run, at: int, folder: Path, args: tuple[str, ...]) -> bool:
    """A process that ends before its `at`-th change of the folder; whether it came so far."""
    child = os.fork()
    if child == 0:
        count = 0

        def hook(event: str, given: tuple[Any, ...]) -> None:
            nonlocal count
            if event not in OPERATIONS or not str(given[0]).startswith(str(folder)):
                return
            if event == "open" and not given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return
            count += 1
            if count == at:
                os._exit(9)

        sys.addaudithook(hook)
        os._exit(run(*args).code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("args", [TINY, BEST], ids=["all", "best"])
def test_killed_before_any_file_operation_a_sweep_goes_on(
    args: tuple[str, ...], run: Run, tmp_path: Path
) -> None:
    """The old or the new file is there, whole; the same command makes it what it would have been and leaves
    nothing beside; another sweep there needs --restart at the most."""
    old, new = made(run, tmp_path / "old", OTHER), made(run, tmp_path / "new", args)
    at, going = 0, True
    while going:
        at += 1
        for again in (args, (*OTHER, "--restart")):
            folder = tmp_path / f"{at}{len(again)}"
            folder.mkdir()
            for name, data in old.items():
                (folder / name).write_bytes(data)
            out = ("-o", str(folder / "s.csv"))
            going = killed(run, at, folder, (*args, *out))
            assert (folder / "s.csv").read_bytes() in (old["s.csv"], new["s.csv"])
            wanted = new if again == args else old
            result = run(*again, *out)
            assert (result.code, result.err) == (0, ""), at
            assert contents(folder) == wanted
            assert not (folder / "s.csv.parts").exists()
    assert at > 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_finished_file_is_no_obstacle(run: Run, tmp_path: Path) -> None:
    """Killed while it removed the parts: the next sweep there, whichever, needs no --restart."""
    made(run, tmp_path / "new", TINY)
    out = tmp_path / "out"
    at, cut = 0, 0
    while True:
        at += 1
        out.mkdir()
        if not killed(run, at, out, (*TINY, "-o", str(out / "s.csv"))):
            break
        if (out / "s.csv.sweep.json").exists() and (out / "s.csv.parts").exists():
            cut += 1
            assert run(*OTHER, "-o", str(out / "s.csv")).code == 0
            assert not (out / "s.csv.parts").exists()
        out.rename(tmp_path / str(at))
    assert cut > 4


def busy(result: Any) -> bool:
    said = (
        result.err.startswith("infercost: another sweep or merge is writing ") and result.err.count("\n") == 1
    )
    return (result.code, result.out, said) == (1, "", True)


def test_two_at_one_place(run: Run, tmp_path: Path) -> None:
    """The second says so, and leaves the parts of the first alone: with --restart, too."""
    shard, out = str(tmp_path / "1.csv"), tmp_path / "s.csv"
    assert run(*TINY, "--shard", "1/1", "-o", shard).code == 0
    with only_writer(out, "a test"):
        parts = tmp_path / "s.csv.parts"
        parts.mkdir()
        (parts / f"00000000.{'a' * 16}.csv").touch()
        for more in ((), ("--restart",)):
            assert busy(run(*TINY, *more, "-o", str(out)))
        assert busy(run("sweep", "merge", str(out), shard))
        link = tmp_path / "link.csv"
        link.symlink_to(out)
        assert busy(run(*TINY, "-o", str(link)))
        assert [path.name for path in parts.iterdir()] == [f"00000000.{'a' * 16}.csv"]
    assert not out.exists()
    assert run(*TINY, "-o", str(out)).code == 2  # parts of another sweep
    assert run(*TINY, "-o", str(out), "--restart").code == 0
    assert not [name for name in os.listdir(tmp_path) if "lock" in name or "parts" in name]


def test_parts_of_another_are_not_joined(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an orphan of a killed sweep still writes there."""
    whole = made(run, tmp_path / "whole", TINY)
    out = tmp_path / "s.csv"
    real, wrote = Parts.write, []

    def writing(self: Parts, chunk: int, *rest: Any) -> Any:
        other = Parts(out, "csv", "f" * 64)
        wrote.append(real(other, chunk, *rest))
        return real(self, chunk, *rest)

    monkeypatch.setattr(Parts, "write", writing)
    assert run(*TINY, "-o", str(out)).code == 0
    assert len(wrote) > 2
    assert out.read_bytes() == whole["s.csv"]


def test_a_sweep_is_written_as_any_other_file(run: Run, tmp_path: Path) -> None:
    """Through links, with the mode kept; nothing that is read-only, and nothing left where it cannot be."""
    path, link = tmp_path / "s.csv", tmp_path / "link.csv"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o600)
    link.symlink_to(path)
    assert run(*TINY, "-o", str(link)).code == 0
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_bytes() == made(run, tmp_path / "whole", TINY)["s.csv"]
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    refused = {str(folder): "it is a folder", str(tmp_path / ("x" * 250 + ".csv")): "File name too long"}
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.csv")
        (tmp_path / "null.csv").symlink_to("/dev/null")
        said = "a sweep of any size is written to files"
        refused |= {str(tmp_path / name): said for name in ("pipe.csv", "null.csv")}
    before = sorted(os.listdir(tmp_path))
    for name, said in refused.items():
        for args in (TINY, ("sweep", "merge", name, str(path))):
            result = run(*args, *(("-o", name) if args == TINY else ()))
            assert result.code == 2
            assert result.err.startswith(f"infercost: cannot write {name}")
            assert said in result.err
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.skipif(getattr(os, "geteuid", lambda: 0)() == 0, reason="root may write everything")
def test_a_sweep_does_not_replace_what_is_read_only(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.touch(0o444)
    assert "it is read-only" in run(*TINY, "-o", str(path)).err
    assert os.listdir(tmp_path) == ["s.csv"]


BIG = 10**400
CHANGES: list[dict[str, Any]] = [
    {"mark": 1},
    {"points": "x"},
    {"points": -1},
    {"points": True},
    {"points": 10**9},
    {"points": 10**9, "chunk_points": [10**9]},
    {"points": BIG},
    {"points": float("nan")},
    {"impossible": {"a": "b"}},
    {"impossible": [{"reason": 1, "points": 1}]},
    {"impossible": [{"reason": "a"}]},
    {"impossible_points": "3"},
    {"impossible_points": 10**9},
    {"failed": {"a": "b"}},
    {"chunk_points": [10**18]},
    {"chunk_points": [6, 6, 5]},
    {"chunk_points": [BIG]},
    {"chunks": 10**9, "shard": [1, 10**9]},
    {"chunks": 10**12, "shard": [1, 10**12]},
    {"chunks": 10**12},
    {"shard": [0, 1]},
    {"filter": {"pareto": 1}},
    {"filter": {}},
]
MISSING = (
    "mark",
    "points",
    "impossible",
    "impossible_points",
    "failed",
    "chunks",
    "shard",
    "bytes",
    "filter",
)


def changed(about: dict[str, Any]) -> Iterator[bytes]:
    for change in CHANGES:
        yield json.dumps(about | change).encode()
    for name in MISSING:
        yield json.dumps({key: value for key, value in about.items() if key != name}).encode()
    yield from (b"[" * 200_000, b"", b"\xff\xfe", b"9" * 5000, b"{}", b"[1]", b"null")


def one_line(result: Any) -> None:
    assert (result.code, result.err.count("\n")) == (2, 1), result
    assert "unexpected" not in result.err
    assert len(result.err) < 2000


def test_a_description_is_not_trusted(run: Run, tmp_path: Path) -> None:
    """A merge refuses it; the sweep that it lies of is computed, and described, anew."""
    out, beside = tmp_path / "s.csv", tmp_path / "s.csv.sweep.json"
    whole = made(run, tmp_path / "whole", TINY)
    about = json.loads(whole["s.csv.sweep.json"])
    for data in changed(about):
        out.write_bytes(whole["s.csv"])
        beside.write_bytes(data)
        if b"10000" not in data or b'"impossible_points": 1000000000' not in data:  # which no merge goes by
            one_line(run("sweep", "merge", str(tmp_path / "m.csv"), str(out)))
        assert run(*TINY, "-o", str(out)).code == 0
        assert contents(tmp_path).items() >= whole.items(), data[:300]


def test_notes_of_parts_are_not_trusted(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part whose note is no note is computed again; one with other points than its note says is refused."""
    whole = made(run, tmp_path / "whole", TINY)
    out, parts = tmp_path / "s.csv", tmp_path / "s.csv.parts"
    with monkeypatch.context() as patch:
        patch.setattr("infercost.cli.sweep_stream.join_parts", lambda *args: 1 / 0)
        assert run(*TINY, "-o", str(out)).code == 1
    kept = contents(parts)
    name = min(name for name in kept if name.endswith(".note"))
    note = json.loads(kept[name])
    changes = [
        {"points": "x"},
        {"points": BIG},
        {"points": 10**9},
        {"impossible": [1]},
        {"failed": {"a": -1}},
    ]
    changes += [{"chunk": 1}, {"bytes": 1}, {"impossible": {"a": 10**9}}, {"more": 1}]
    said = [json.dumps(note | change).encode() for change in changes]
    for data in (*said, b"[" * 200_000, b"\xff", b"{}", b"[]", b"1"):
        parts.mkdir(exist_ok=True)
        for each, before in kept.items():
            (parts / each).write_bytes(before)
        (parts / name).write_bytes(data)
        assert run(*TINY, "-o", str(out), "-q").code == 0
        assert out.read_bytes() == whole["s.csv"]
        out.unlink()
    parts.mkdir()
    for each, before in kept.items():
        (parts / each).write_bytes(before)
    (parts / name).write_text(json.dumps(note | {"points": 1}), encoding="utf-8")
    one_line(run(*TINY, "-o", str(out)))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_pipes_and_devices_beside_a_sweep(run: Run, tmp_path: Path) -> None:
    """Not waited for and not read without end: they are no descriptions and no parts."""
    whole = made(run, tmp_path / "whole", TINY)
    out, beside = tmp_path / "s.csv", tmp_path / "s.csv.sweep.json"
    for make in (os.mkfifo, lambda path: os.symlink("/dev/zero", path)):
        out.write_bytes(whole["s.csv"])
        make(beside)
        for args in (("sweep", "merge", str(tmp_path / "m.csv"), str(out)), (*TINY, "-o", str(out))):
            one_line(run(*args))
        assert not (tmp_path / "s.csv.parts").exists()
        out.unlink()
        beside.unlink()
        (tmp_path / "s.csv.parts").mkdir()
        make(tmp_path / "s.csv.parts" / "00000000.note")
        assert "--restart begins anew" in run(*TINY, "-o", str(out)).err
        assert run(*TINY, "-o", str(out), "--restart").code == 0
        assert contents(tmp_path) == whole
        out.unlink()
        beside.unlink()


def spoiled(line: bytes, form: str) -> list[bytes]:
    if form == "csv":
        cells = line.rstrip(b"\n").split(b",")
        rows = [
            [b"x"],
            [*cells, b"1"],
            *([each, *cells[1:]] for each in (b"x", b"9" * 30, b"9" * 5000, b"\0")),
        ]
        rows += [[cells[0], b"y" * 200_000, *cells[2:]], [cells[0], b"\xe9", *cells[2:]]]
        rows += [
            [cells[0], b'"open', *cells[2:]],
            [*cells[:-1], b"nan"],
            [*cells[:-3], b"maybe", *cells[-2:]],
        ]
        return [b",".join(row) + b"\n" for row in rows]
    row = json.loads(line)
    changes = [{"point": "x"}, {"point": 10**30}, {"point": BIG}, {"usd": float("nan")}, {"model": 1}]
    changes += [{"fits": 1}, {"more": 1}, {"mfu": [1]}]
    said = [json.dumps(row | change).encode() for change in changes]
    return [each + b"\n" for each in (*said, b"[" * 60_000, b"[1]", b'{"point": "x"}', b'"', b"", b"\xe9")]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_rows_of_shards_are_not_trusted(form: str, run: Run, tmp_path: Path) -> None:
    """Of a filter that compares points, which are all read; of any other, whose lines are counted."""
    out = tmp_path / f"s.{form}"
    for args in (BEST, TINY):
        whole = made(run, tmp_path / args[-1], args, form)
        about = json.loads(whole[f"s.{form}.sweep.json"])
        *first, last = whole[f"s.{form}"].splitlines(keepends=True)
        lines = [
            b"".join(first),
            b"".join([*first, last, last]),
            b"".join([*first, last])[:-1],
            b"".join(first[1:]),
        ]
        if args == BEST:
            del lines[2]  # a last line without its end is a point still
        bad = [*lines, *([] if args == TINY else [b"".join([*first, each]) for each in spoiled(last, form)])]
        for data in bad:
            out.write_bytes(data)
            said = json.dumps(about | {"bytes": len(data)})
            (tmp_path / f"s.{form}.sweep.json").write_text(said, encoding="utf-8")
            one_line(run("sweep", "merge", str(tmp_path / f"m.{form}"), str(out)))
            assert not (tmp_path / f"m.{form}").exists()


def test_parquet_of_shards_is_not_trusted(run: Run, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    out, beside = tmp_path / "s.parquet", tmp_path / "s.parquet.sweep.json"
    for args in (BEST, TINY):
        whole = made(run, tmp_path / args[-1], args, "parquet")
        about = json.loads(whole["s.parquet.sweep.json"])
        out.write_bytes(whole["s.parquet"])
        table = parquet.read_table(out)
        bad: list[Any] = [
            b"",
            b"PAR1",
            whole["s.parquet"][:-50],
            whole["s.parquet"].replace(b"PAR1", b"PAR2"),
        ]
        bad += [table.slice(0, 1), table.drop_columns(["mfu"]), pyarrow.table({"point": ["x"]})]
        bad += [table.set_column(0, "point", pyarrow.array(["x"] * len(table)))]
        for each in bad:
            if isinstance(each, bytes):
                out.write_bytes(each)
            else:
                parquet.write_table(each, out)
            beside.write_text(json.dumps(about | {"bytes": out.stat().st_size}), encoding="utf-8")
            one_line(run("sweep", "merge", str(tmp_path / "m.parquet"), str(out)))


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="no signal masks on this system")
def test_processes_begin_without_interrupts() -> None:
    """They leave them to the one that started them, which says one line."""
    seen = []

    class Pool:
        def submit(self, *args: Any) -> None:
            seen.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))

    sweep_run._submitted(Pool(), 1)
    Pool().submit()
    assert seen == [True, False]
