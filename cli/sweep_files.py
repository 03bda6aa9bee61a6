"""Sweeps on disk: parts that are whole or not there, the file they make, and its description beside it.

`OUT.parts/` holds a file for each chunk that is done, with a note of what is in it that is written last; a
sweep that was killed goes on with the chunks that have no note. Both carry the sweep's mark in their names,
so those of another are never taken for its own. The parts are then joined to `OUT`, with `OUT.sweep.json`
beside it, and only then removed: parts of the sweep that is described there are of no more use to anyone.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from .. import InputError
from ..sheets import MAX_INTEGER, MAX_LINE, opened, parse_json, read_file, read_lines
from .output.files import replacing, writable
from .sweep_described import about_path, are_counts, forget_if, is_count
from .sweep_filter import Collector, Filter
from .sweep_points import KINDS, Columns

MOST_NOTE_BYTES = 1 << 22
AT_ONCE = 1 << 20
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


def write_columns(file: BinaryIO, columns: Columns, form: str, whole: bool = False) -> None:
    """A part, or with `whole` a file of its own."""
    if form == "parquet":
        parquet().write_table(_arrow(columns), file)
        return
    if whole and form == "csv":
        file.write(header().encode())
    file.write(as_text(columns, form).encode())


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


def read_rows(path: Path, form: str, headed: bool, points: int) -> Iterator[dict[str, Any]]:
    """The points of a part or (`headed`) of a whole file, one by one.

    Raises InputError where these are not so many, or not points.
    """
    number = 0
    for number, row in enumerate(_rows(path, form, headed), 1):
        if number > points or row.keys() != KINDS.keys() or not all(map(_is, row.values(), KINDS.values())):
            break
        yield row
    else:
        if number == points:
            return
    raise InputError(f"{path}: not the {points:,} points of a sweep that it should hold (point {number:,})")


def _rows(path: Path, form: str, headed: bool) -> Iterator[dict[str, Any]]:
    """What stands for points in a file, in the order of the columns."""
    if form == "parquet":
        with opened(path) as file, _as_input(path):
            for batch in parquet().ParquetFile(file).iter_batches():
                yield from batch.to_pylist()
        return
    lines = read_lines(path)
    if form == "jsonl":
        for number, line in enumerate(lines, 1):
            row = parse_json(line, f"{path}:{number}")
            if not isinstance(row, dict) or list(row) != list(KINDS):
                raise InputError(f"{path}:{number}: not a point of a sweep")
            yield row
        return
    if headed and next(lines, "") != header():
        raise InputError(f"{path}: not a CSV of a sweep by this version")
    table = csv.reader(lines)
    try:
        for cells in table:
            yield {name: _value(text, KINDS[name]) for name, text in zip(KINDS, cells, strict=True)}
    except (ValueError, csv.Error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}:{table.line_num + headed}: not a point of a sweep") from None


@contextlib.contextmanager
def _as_input(path: Path) -> Iterator[None]:
    """What pyarrow says of a file, which are errors of many kinds, as InputError."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{path}: not a Parquet file of a sweep: {said[:200]}") from None


def _value(text: str, kind: str) -> Any:
    if not text:
        return None
    if kind == "flag":
        return text == "True" if text in ("True", "False") else text
    return {"int": int, "number": float, "text": str}[kind](text)


def _is(value: Any, kind: str) -> bool:
    """Whether a value is one of a column of this kind, or missing."""
    if value is None:
        return True
    if kind == "text":
        return isinstance(value, str)
    if kind == "flag" or isinstance(value, bool):
        return kind == "flag" and isinstance(value, bool)
    if kind == "int":
        return isinstance(value, int) and abs(value) <= MAX_INTEGER
    return isinstance(value, float) and math.isfinite(value)


class Note(NamedTuple):
    """What a part holds: points kept, bytes of its file, points that there cannot be by reason, conditions
    given with --assert that did not hold and for how many points."""

    chunk: int
    points: int
    bytes: int
    impossible: dict[str, int]
    failed: dict[str, int]


_PART = re.compile(r"[0-9]{8,9}\.([0-9a-f]{16})\.(?:csv|jsonl|parquet|note)")
_LEFT = re.compile(r"\.infercost\.[0-9a-f]{8}\.[0-9a-f]{16}|\.(?:sweep|[0-9]{8,9}\.[a-z]+)\.[0-9]+")
_OLDER = re.compile(r"sweep|[0-9]{8,9}\.(?:csv|jsonl|parquet|note)")


class Parts:
    """The folder of parts of one output file. Only one process opens or removes it: see `only_writer`."""

    def __init__(self, output: Path, form: str, digest: str) -> None:
        self.folder = output.with_name(output.name + ".parts")
        self.form, self.tag = form, digest[:16]

    def open(self, restart: bool, finished: str | None) -> None:
        """Make the folder, or go on in it, with what is of no more use removed.

        That is everything with `restart`, else the parts of the sweep that was `finished` (its digest).
        Raises InputError where it holds anything else.
        """
        self.folder.mkdir(exist_ok=True)
        names = self._names()
        if any(not (_PART.fullmatch(name) or _OLDER.fullmatch(name)) for name in names):
            raise InputError(f"{self.folder} is no folder of parts: move it away")
        useless = {name for name in names if restart or self._of(name) == (finished or "")[:16]}
        if any(self._of(name) != self.tag for name in names if name not in useless):
            raise InputError(
                f"{self.folder} holds parts of another sweep, or of another version: --restart begins anew, "
                "another --output leaves them"
            )
        self._unlink(useless)

    def _names(self) -> list[str]:
        """What stands in the folder, but for what was left half-written, which is removed."""
        if self.folder.is_symlink():
            raise InputError(f"{self.folder} is no folder of parts: move it away")
        names = sorted(os.listdir(self.folder))
        self._unlink(name for name in names if _LEFT.fullmatch(name))
        return [name for name in names if not _LEFT.fullmatch(name)]

    def _of(self, name: str) -> str | None:
        """The mark of the sweep that a part is of."""
        match = _PART.fullmatch(name)
        return match[1] if match else None

    def _unlink(self, names: Iterable[str]) -> None:
        for name in names:
            (self.folder / name).unlink(missing_ok=True)

    def path(self, chunk: int) -> Path:
        return self.folder / f"{chunk:08d}.{self.tag}.{self.form}"

    def note_path(self, chunk: int) -> Path:
        return self.folder / f"{chunk:08d}.{self.tag}.note"

    def write(self, chunk: int, columns: Columns, impossible: dict[str, int], failed: dict[str, int]) -> Note:
        """A part, then its note: without one the part counts as not written."""
        with replacing(self.path(chunk), sweep_up=False) as file:
            write_columns(file, columns, self.form)
            size = file.tell()
        note = Note(chunk, len(columns["point"]), size, impossible, failed)
        with replacing(self.note_path(chunk), sweep_up=False) as file:
            file.write(json.dumps(note._asdict()).encode())
        return note

    def done(self, chunks: Iterable[int], most: int) -> dict[int, Note]:
        """Notes of those parts that are whole; none holds more than `most` points."""
        every = ((chunk, self._note(chunk, most)) for chunk in chunks)
        return {chunk: note for chunk, note in every if note is not None}

    def _note(self, chunk: int, most: int) -> Note | None:
        path = self.note_path(chunk)
        if not path.exists():
            return None
        try:
            said = parse_json(read_file(path, MOST_NOTE_BYTES, "a note of a part"), str(path))
            note = Note(**said)
            size = self.path(chunk).stat().st_size
        except (InputError, OSError, TypeError):
            return None
        counts = all(map(is_count, note[:3])) and are_counts(note.impossible) and are_counts(note.failed)
        whole = counts and (note.chunk, note.bytes) == (chunk, size)
        return note if whole and note.points + sum(note.impossible.values()) <= most else None

    def remove(self) -> None:
        """Remove what is of this sweep, and the folder where nothing else is in it."""
        self._unlink([name for name in self._names() if self._of(name) == self.tag])
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def checked_place(output: Path) -> None:
    """Raises InputError where a sweep or its description cannot be written: a folder, a pipe, read-only."""
    for path in (output, about_path(output)):
        found = writable(path)
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise InputError(f"cannot write {path}: a sweep of any size is written to files")


def join_parts(output: Path, form: str, parts: Iterable[tuple[Path, int]]) -> int:
    """One file of all parts, each with the points that it has; its bytes."""
    with replacing(output) as file:
        if form == "parquet":
            with _writer(file) as out:
                for path, points in parts:
                    with opened(path) as part:
                        table = _table(path, part, points)
                    if points:
                        out.write_table(table)
        else:
            file.write(header().encode() if form == "csv" else b"")
            for path, points in parts:
                _copy(path, points, file)
        size = file.tell()
        forget_if(output, size)
        return size


def _copy(path: Path, points: int, file: BinaryIO) -> None:
    lines = 0
    with opened(path) as part:
        while block := part.read(AT_ONCE):
            file.write(block)
            lines += block.count(b"\n")
    if lines != points:
        raise _not_whole(path)


def _not_whole(path: Path) -> InputError:
    return InputError(f"{path} does not hold the points that it is said to: it is not whole")


def _table(path: Path, file: BinaryIO, points: int, group: int | None = None) -> Any:
    """All of a Parquet file of a sweep or a group of its rows, of so many points."""
    with _as_input(path):
        source = parquet().ParquetFile(file)
        about = source.metadata if group is None else source.metadata.row_group(group)
        if about.num_rows != points:
            raise _not_whole(path)
        table = source.read() if group is None else source.read_row_group(group)
        if table.num_rows != points or not table.schema.equals(_schema()):
            raise _not_whole(path)
    return table


def join_shards(output: Path, form: str, turns: Iterable[tuple[Path, int]]) -> int:
    """One file of the points of all shards, a chunk of each in turn: (shard, points of the chunk). Its bytes.

    Shards are opened anew for each chunk: there may be more of them than files a process may hold open.
    """
    with replacing(output) as file:
        if form == "parquet":
            _take_groups(file, turns)
        else:
            _take_lines(file, form, turns)
        size = file.tell()
        forget_if(output, size)
        return size


def _take_lines(out: BinaryIO, form: str, turns: Iterable[tuple[Path, int]]) -> None:
    head = header().encode() if form == "csv" else b""
    read: dict[Path, int] = {}
    out.write(head)
    for path, points in turns:
        with opened(path) as file:
            if path not in read and file.read(len(head)) != head:
                raise InputError(f"{path}: not a CSV of a sweep by this version")
            file.seek(read.get(path, len(head)))
            for _ in range(points):
                line = file.readline(MAX_LINE)
                if not line.endswith(b"\n"):
                    raise _not_whole(path)
                out.write(line)
            read[path] = file.tell()
    for path, end in read.items():
        if path.stat().st_size != end:
            raise _not_whole(path)


def _take_groups(out: BinaryIO, turns: Iterable[tuple[Path, int]]) -> None:
    """Parquet, whose row groups are the chunks that have points."""
    read: dict[Path, int] = {}
    with _writer(out) as writer:
        for path, points in turns:
            at = read.setdefault(path, 0)
            if points:
                with opened(path) as file:
                    table = _table(path, file, points, at)
                writer.write_table(table)
                read[path] = at + 1
    for path, groups in read.items():
        with opened(path) as file, _as_input(path):
            if parquet().ParquetFile(file).metadata.num_row_groups not in (groups, groups or 1):
                raise _not_whole(path)


def _schema() -> Any:
    return _arrow(from_rows(())).schema


def _writer(file: BinaryIO) -> Any:
    return parquet().ParquetWriter(file, _schema())


def best_of(sources: Iterable[Iterator[dict[str, Any]]], wanted: Filter, at_once: int = 4096) -> Columns:
    """What a filter leaves of all points together."""
    from itertools import islice

    collector = Collector(wanted)
    for rows in sources:
        while batch := list(islice(rows, at_once)):
            collector.add(from_rows(batch))
    return collector.columns()
