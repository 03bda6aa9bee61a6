"""Sweeps on disk: parts that are whole or not there, the file they make, and its description beside it.

`OUT.parts/` holds a file for each chunk that is done, with a note of what is in it that is written last; a
sweep that was killed goes on with the chunks that have no note. The parts are then joined to `OUT`, with
`OUT.sweep.json` beside it: the grid's digest, the shard, the points of each chunk.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .. import InputError
from .sweep_filter import Collector, Filter
from .sweep_points import KINDS, Columns

SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
SCHEMA = "infercost.sweep-file/1"
MOST_NOTE_BYTES = 1 << 26
MISSING = {"int": 0, "number": float("nan")}


def parquet() -> Any:
    """pyarrow's Parquet module. Raises InputError where it is not installed."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise InputError(
            "Parquet needs pyarrow: pip install 'infercost[sweep]'; .csv and .jsonl need nothing"
        ) from None
    return pyarrow.parquet


def plain(columns: Columns) -> list[list[Any]]:
    """The columns as lists of Python values, None where a value is missing."""
    out = []
    for name, kind in KINDS.items():
        values = columns[name].tolist()
        if kind == "number" and (columns[name] != columns[name]).any():
            values = [None if value != value else value for value in values]
        out.append(values)
    return out


def rows_of(columns: Columns) -> Iterator[dict[str, Any]]:
    """Points one by one."""
    for values in zip(*plain(columns), strict=True):
        yield dict(zip(KINDS, values, strict=True))


def as_text(columns: Columns, form: str) -> str:
    """Rows of a CSV without its header, or JSON lines."""
    out = io.StringIO()
    if form == "csv":
        csv.writer(out, lineterminator="\n").writerows(zip(*plain(columns), strict=True))
    else:
        out.writelines(json.dumps(row, allow_nan=False) + "\n" for row in rows_of(columns))
    return out.getvalue()


def header() -> str:
    return ",".join(KINDS) + "\n"


def _arrow(columns: Columns) -> Any:
    import pyarrow as pa

    types = {"int": pa.int64(), "number": pa.float64(), "text": pa.string(), "flag": pa.bool_()}
    fields = [(name, types[kind]) for name, kind in KINDS.items()]
    # from_pandas: what is not a number is missing.
    arrays = [pa.array(columns[name], type=type_, from_pandas=True) for name, type_ in fields]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def write_columns(path: Path, columns: Columns, form: str, whole: bool = False) -> None:
    """A part, or with `whole` a file of its own."""
    if form == "parquet":
        parquet().write_table(_arrow(columns), path)
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        if whole and form == "csv":
            file.write(header())
        file.write(as_text(columns, form))


def from_rows(rows: Iterable[dict[str, Any]]) -> Columns:
    """Columns again, of rows with values or None."""
    import numpy as np

    values: dict[str, list[Any]] = {name: [] for name in KINDS}
    for row in rows:
        for name in KINDS:
            values[name].append(row[name])
    kinds = {"int": np.int64, "number": float}
    out = {}
    for name, kind in KINDS.items():
        given = [MISSING.get(kind) if value is None else value for value in values[name]]
        out[name] = np.array(given, dtype=kinds.get(kind, object))
    return out


def read_rows(path: Path, form: str, headed: bool) -> Iterator[dict[str, Any]]:
    """The points of a part or (`headed`) of a whole file, one by one."""
    if form == "parquet":
        file = parquet().ParquetFile(path)
        for batch in file.iter_batches():
            yield from batch.to_pylist()
        return
    with path.open(encoding="utf-8", newline="") as lines:
        if form == "jsonl":
            yield from map(json.loads, lines)
            return
        if headed:
            next(lines, None)
        for cells in csv.reader(lines):
            yield {name: _value(text, KINDS[name]) for name, text in zip(KINDS, cells, strict=True)}


def _value(text: str, kind: str) -> Any:
    if not text:
        return None
    if kind == "flag":
        return text == "True"
    return {"int": int, "number": float, "text": str}[kind](text)


def write_whole(path: Path, text: str) -> None:
    """A small file, there whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place once it is written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class Note(NamedTuple):
    """What a part holds: points kept, bytes of its file, points that there cannot be by reason, conditions
    given with --assert that did not hold and for how many points."""

    chunk: int
    points: int
    bytes: int
    impossible: dict[str, int]
    failed: dict[str, int]


class Parts:
    """The folder of parts of one output file."""

    def __init__(self, output: Path, form: str, digest: str) -> None:
        self.folder = output.with_name(output.name + ".parts")
        self.form, self.digest = form, digest

    def open(self, restart: bool) -> None:
        """Make the folder, or go on in it. Raises InputError where it is of another sweep."""
        mark = self.folder / "sweep"
        if restart and mark.exists():
            self.remove()
        self.folder.mkdir(exist_ok=True)
        if not mark.exists():
            if any(self.folder.iterdir()):
                raise InputError(f"{self.folder} is no folder of parts: move it away")
            write_whole(mark, self.digest)
        elif mark.read_text(encoding="utf-8") != self.digest:
            raise InputError(
                f"{self.folder} holds parts of another sweep, or of another version: --restart begins anew, "
                "another --output leaves them"
            )

    def path(self, chunk: int) -> Path:
        return self.folder / f"{chunk:08d}.{self.form}"

    def write(self, chunk: int, columns: Columns, impossible: dict[str, int], failed: dict[str, int]) -> Note:
        """A part, then its note: without one the part counts as not written."""
        with replacing(self.path(chunk)) as temporary:
            write_columns(temporary, columns, self.form)
        size = self.path(chunk).stat().st_size
        note = Note(chunk, len(columns["point"]), size, impossible, failed)
        write_whole(self.folder / f"{chunk:08d}.note", json.dumps(note._asdict()))
        return note

    def done(self) -> dict[int, Note]:
        """Notes of the parts that are whole."""
        out = {}
        for path in self.folder.glob("*.note"):
            try:
                note = Note(**json.loads(path.read_text(encoding="utf-8")))
                whole = self.path(note.chunk).stat().st_size == note.bytes
            except (OSError, ValueError, TypeError):
                continue
            if whole:
                out[note.chunk] = note
        return out

    def remove(self) -> None:
        shutil.rmtree(self.folder)


class Described(NamedTuple):
    """A file of a sweep and what stands beside it."""

    path: Path
    form: str
    about: dict[str, Any]

    @property
    def shard(self) -> tuple[int, int]:
        return self.about["shard"][0], self.about["shard"][1]


def about_path(output: Path) -> Path:
    return output.with_name(output.name + ".sweep.json")


def form_of(path: Path) -> str | None:
    return SUFFIXES.get(path.suffix.lower())


def described(path: Path) -> Described:
    """A file with its description. Raises InputError where either is missing or they do not agree."""
    form, beside = form_of(path), about_path(path)
    if form is None:
        raise InputError(f"{path}: a part of a sweep is one of {', '.join(SUFFIXES)}")
    try:
        if beside.stat().st_size > MOST_NOTE_BYTES:
            raise InputError(f"{beside} is larger than a description of a sweep")
        about = json.loads(beside.read_text(encoding="utf-8"))
        size = path.stat().st_size
    except OSError as error:
        raise InputError(f"cannot read {error.filename or path}: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{beside} is no description of a sweep") from None
    _sound(about, beside)
    if about["bytes"] != size:
        raise InputError(f"{path} has {size:,} bytes, {about['bytes']:,} by {beside.name}: it is not whole")
    return Described(path, form, about)


def _sound(about: Any, beside: Path) -> None:
    """Raises InputError where a description lacks what a merge goes by."""
    wanted = {"digest": str, "shard": list, "chunks": int, "chunk_points": list, "bytes": int, "filter": dict}
    kinds = isinstance(about, dict) and about.get("schema") == SCHEMA
    kinds = kinds and all(isinstance(about.get(name), kind) for name, kind in wanted.items())
    numbers = kinds and [*about["shard"], *about["chunk_points"], about["chunks"]]
    whole = numbers and all(isinstance(each, int) and each >= 0 for each in numbers)
    if not whole or len(about["shard"]) != 2 or not 1 <= about["shard"][0] <= about["shard"][1]:
        raise InputError(f"{beside} is no description of a sweep by this version")
    each = range(about["shard"][0] - 1, about["chunks"], about["shard"][1])
    if len(about["chunk_points"]) != len(each):
        raise InputError(
            f"{beside} names {len(about['chunk_points'])} chunks where its shard has {len(each)}"
        )


def join_parts(output: Path, form: str, parts: Iterable[Path]) -> int:
    """One file of all parts; its bytes."""
    with replacing(output) as temporary:
        if form == "parquet":
            with _writer(temporary) as out:
                for path in parts:
                    table = parquet().read_table(path)
                    if table.num_rows:
                        out.write_table(table)
        else:
            with temporary.open("wb") as file:
                file.write(header().encode() if form == "csv" else b"")
                for path in parts:
                    with path.open("rb") as part:
                        shutil.copyfileobj(part, file)
        return temporary.stat().st_size


def join_shards(output: Path, form: str, turns: Iterable[tuple[Path, int]]) -> int:
    """One file of the points of all shards, a chunk of each in turn: (shard, points of the chunk). Its bytes.

    Shards are opened anew for each chunk: there may be more of them than files a process may hold open.
    """
    with replacing(output) as temporary:
        if form == "parquet":
            _take_groups(temporary, turns)
        else:
            _take_lines(temporary, form, turns)
        return temporary.stat().st_size


def _take_lines(temporary: Path, form: str, turns: Iterable[tuple[Path, int]]) -> None:
    begin = len(header().encode()) if form == "csv" else 0
    read: dict[Path, int] = {}
    with temporary.open("wb") as out:
        out.write(header().encode() if form == "csv" else b"")
        for path, points in turns:
            with path.open("rb") as file:
                file.seek(read.get(path, begin))
                for _ in range(points):
                    out.write(file.readline())
                read[path] = file.tell()


def _take_groups(temporary: Path, turns: Iterable[tuple[Path, int]]) -> None:
    """Parquet, whose row groups are the chunks that have points."""
    read: dict[Path, int] = {}
    with _writer(temporary) as out:
        for path, points in turns:
            if points:
                at = read.get(path, 0)
                out.write_table(parquet().ParquetFile(path).read_row_group(at))
                read[path] = at + 1


def _writer(path: Path) -> Any:
    return parquet().ParquetWriter(path, _arrow(from_rows(())).schema)


def best_of(sources: Iterable[Iterator[dict[str, Any]]], wanted: Filter, at_once: int = 4096) -> Columns:
    """What a filter leaves of all points together."""
    from itertools import islice

    collector = Collector(wanted)
    for rows in sources:
        while batch := list(islice(rows, at_once)):
            collector.add(from_rows(batch))
    return collector.columns()
