"""The description beside a file of a sweep, `OUT.sweep.json`: input like any other, read and checked.

It says what a merge and a later run go by: the grid's digest, the shard, the points of each chunk, the bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from .. import InputError
from ..sheets import MAX_INTEGER, MAX_JSON_BYTES, SheetError, parse_json, read_file
from .sweep_points import KINDS

SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
SCHEMA = "infercost.sweep-file/1"
MOST_SHARDS = 100_000
_WORDS = ("digest", "mark")
_COUNTS = ("points", "impossible_points", "chunks", "bytes")


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
    about = _read(beside)
    _sound(about, beside)
    try:
        size = path.stat().st_size
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    if about["bytes"] != size:
        raise InputError(f"{path} has {size:,} bytes, {about['bytes']:,} by {beside.name}: it is not whole")
    if form != "parquet" and about["points"] * len(KINDS) > size:
        raise InputError(f"{path} has no room for the {about['points']:,} points of {beside.name}")
    return Described(path, form, about)


def forget_if(output: Path, size: int) -> None:
    """Remove a description that would pass for one of the file of `size` bytes that is to take its place."""
    beside = about_path(output)
    try:
        about = _read(beside)
    except InputError:
        return
    if isinstance(about, dict) and about.get("bytes") == size:
        beside.unlink(missing_ok=True)


def is_count(value: Any) -> bool:
    """Whether a value of a JSON is a number of things."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INTEGER


def are_counts(value: Any) -> bool:
    """Whether a value of a JSON is a mapping to numbers of things."""
    return isinstance(value, dict) and all(is_count(each) for each in value.values())


def _read(beside: Path) -> Any:
    try:
        return parse_json(read_file(beside, MAX_JSON_BYTES, "a description of a sweep"), str(beside))
    except SheetError:
        raise InputError(f"{beside} is no description of a sweep") from None


def _sound(about: Any, beside: Path) -> None:
    """Raises InputError where a description lacks what a merge or a later run goes by."""
    if not isinstance(about, dict) or about.get("schema") != SCHEMA or not _kinds(about):
        raise InputError(f"{beside} is no description of a sweep by this version")
    each = range(about["shard"][0] - 1, about["chunks"], about["shard"][1])
    if len(about["chunk_points"]) != len(each):
        raise InputError(
            f"{beside} names {len(about['chunk_points'])} chunks where its shard has {len(each)}"
        )
    chosen = about["filter"].get("pareto") or about["filter"].get("by") is not None
    if not chosen and sum(about["chunk_points"]) != about["points"]:
        raise InputError(f"{beside} counts {about['points']:,} points, and others in its chunks")


def _kinds(about: dict[str, Any]) -> bool:
    shard, chunks, reasons = about.get("shard"), about.get("chunk_points"), about.get("impossible")
    return (
        all(isinstance(about.get(name), str) for name in _WORDS)
        and all(is_count(about.get(name)) for name in _COUNTS)
        and isinstance(about.get("filter"), dict)
        and are_counts(about.get("failed"))
        and isinstance(chunks, list)
        and all(map(is_count, chunks))
        and isinstance(shard, list)
        and len(shard) == 2
        and all(map(is_count, shard))
        and 1 <= shard[0] <= shard[1] <= MOST_SHARDS
        and isinstance(reasons, list)
        and all(map(_is_reason, reasons))
    )


def _is_reason(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("reason"), str) and is_count(value.get("points"))
