"""`infercost sweep merge`: the files of all shards of a sweep into the one it would have been."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from .. import InputError
from .output.files import only_writer, replacing
from .sweep_described import MOST_SHARDS, Described, about_path, described, forget_if, form_of
from .sweep_files import best_of, checked_place, join_shards, parquet, read_rows, write_columns
from .sweep_filter import Filter
from .sweep_stream import WRITING
from .sweep_summary import MOST_REASONS, write_about


def merge_files(output: Path, parts: list[Path]) -> dict[str, Any]:
    """The shards joined, a description beside the whole; that description.

    Raises InputError where a shard is missing, there twice, of another sweep or not whole.
    """
    checked_place(output)
    with only_writer(output, WRITING):
        return _merged(output, parts)


def _merged(output: Path, parts: list[Path]) -> dict[str, Any]:
    form = form_of(output)
    if form is None:
        raise InputError(f"{output}: the suffix says the format, .csv, .jsonl or .parquet")
    if len(parts) > MOST_SHARDS:
        raise InputError(f"{len(parts):,} parts are more than {MOST_SHARDS:,}")
    shards = sorted((described(path) for path in parts), key=lambda one: one.shard)
    first = shards[0]
    _complete(shards)
    wanted = _filter(first)
    if form != first.form and not wanted.compares:
        raise InputError(f"{first.path} is {first.form}: a merge keeps the format, not {output.suffix}")
    if form == "parquet":
        parquet()
    chunks, many = int(first.about["chunks"]), first.shard[1]
    counts = [int(shards[chunk % many].about["chunk_points"][chunk // many]) for chunk in range(chunks)]
    if wanted.compares:
        rows = (read_rows(one.path, one.form, True, one.about["points"]) for one in shards)
        best = best_of(rows, wanted)
        with replacing(output) as file:
            write_columns(file, best, form, whole=True)
            size, points = file.tell(), len(best["point"])
            forget_if(output, size)
    else:
        turns = ((shards[chunk % many].path, counts[chunk]) for chunk in range(chunks))
        size, points = join_shards(output, form, turns), sum(counts)
    impossible: Counter[str] = Counter()
    for one in shards:
        for each in one.about["impossible"]:
            impossible[each["reason"]] += each["points"]
    about = dict(first.about)
    about |= {"shard": [1, 1], "points": points, "bytes": size, "chunk_points": counts}
    about["impossible"] = [{"reason": why, "points": n} for why, n in impossible.most_common(MOST_REASONS)]
    about["impossible_points"] = sum(one.about["impossible_points"] for one in shards)
    write_about(about_path(output), about)
    return about


def _filter(one: Described) -> Filter:
    try:
        return Filter.from_echo(one.about["filter"])
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{about_path(one.path)} holds no filter of a sweep") from None


def _complete(shards: list[Described]) -> None:
    """Raises InputError where the files are not all shards of one sweep, each once."""
    first = shards[0]
    for one in shards:
        for name, what in (
            ("digest", "another sweep"),
            ("filter", "another filter"),
            ("chunks", "other chunks"),
        ):
            if one.about[name] != first.about[name]:
                raise InputError(f"{one.path} is of {what} than {first.path}")
        if one.shard[1] != first.shard[1] or one.form != first.form:
            raise InputError(f"{one.path} is cut another way than {first.path}")
    seen = Counter(one.shard[0] for one in shards)
    twice = [number for number, times in seen.items() if times > 1]
    if twice:
        raise InputError(f"shard {twice[0]}/{first.shard[1]} is given twice")
    missing = [number for number in range(1, first.shard[1] + 1) if number not in seen]
    if missing:
        more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise InputError(f"shard {missing[0]}/{first.shard[1]}{more} is not among the parts")
