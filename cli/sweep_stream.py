"""A sweep into a file of any size: part by part, going on where it was stopped."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import InputError
from .output.files import lock_of, only_writer, replacing
from .sweep_described import about_path, described, forget_if
from .sweep_files import Note, Parts, best_of, checked_place, join_parts, parquet, read_rows, write_columns
from .sweep_grid import CHUNK_POINTS, mine
from .sweep_run import Progress, Target, Work, computed, failing, results
from .sweep_summary import Totals, describe, write_about

WRITING = "another sweep or merge"


class Written(NamedTuple):
    """What came of it: all its points, those computed now, the description beside the file."""

    totals: Totals
    computed: int
    about: dict[str, Any]


@dataclass(frozen=True)
class PartTask:
    """A chunk, computed and written as a part, wherever it is done."""

    parts: Parts

    def __call__(self, work: Work, chunk: int) -> Note:
        found = computed(work, chunk)
        return self.parts.write(chunk, found.columns, found.impossible, found.failed)


def stream(work: Work, target: Target, what_if: dict[str, int]) -> Written:
    """Compute what of the shard is not there yet, and join the parts.

    Raises InputError where the place cannot be written or holds something else.
    """
    if target.form == "parquet":
        parquet()
    mark = hashlib.sha256(
        repr((work.grid.digest(), work.wanted, work.asserted, target.shard)).encode()
    ).hexdigest()
    checked_place(target.output)
    parts = Parts(target.output, target.form, mark)
    try:
        known = None if target.restart else _complete(work, target, mark)
        if known is None or parts.folder.exists() or lock_of(target.output).exists():
            with only_writer(target.output, WRITING):
                known = None if target.restart else _complete(work, target, mark)
                if known is None:
                    return _written(work, target, what_if, mark)
                if parts.folder.exists():  # it was killed while it removed them
                    parts.remove()
    except OSError as error:
        place = error.filename or target.output
        raise InputError(f"cannot write {place}: {error.strerror or error}") from None
    totals = Totals()
    totals.add(known["points"], {e["reason"]: e["points"] for e in known["impossible"]}, known["failed"])
    return Written(totals, 0, known)


def _finished(target: Target) -> dict[str, Any] | None:
    """The description of the file that is there, where it is one and whole."""
    try:
        return described(target.output).about
    except InputError:
        return None


def _complete(work: Work, target: Target, mark: str) -> dict[str, Any] | None:
    """The description of a file that is this very sweep already."""
    about = _finished(target)
    if about is None or about["mark"] != mark:
        return None
    said = (about["digest"], about["chunks"], tuple(about["shard"]), about["filter"])
    asked = (work.grid.digest(), work.grid.chunks, target.shard, json.loads(json.dumps(work.wanted.echo())))
    counted = max(about["points"], *about["failed"].values(), 0) + about["impossible_points"]
    return about if said == asked and counted <= work.grid.points else None


def _written(work: Work, target: Target, what_if: dict[str, int], mark: str) -> Written:
    grid = work.grid
    parts = Parts(target.output, target.form, mark)
    there = _finished(target)
    parts.open(target.restart, None if there is None else there["mark"])
    chunks = mine(grid.chunks, target.shard)
    notes = parts.done(chunks, CHUNK_POINTS)
    missing = [chunk for chunk in chunks if chunk not in notes]
    progress = Progress(sum(grid.size(chunk) for chunk in missing), target.quiet)
    count = 0
    for note in results(PartTask(parts), work, missing, target.jobs):
        notes[note.chunk] = note
        count += grid.size(note.chunk)
        progress.add(grid.size(note.chunk))
    progress.clear()
    totals = Totals()
    for chunk in chunks:
        totals.add(notes[chunk].points, notes[chunk].impossible, notes[chunk].failed)
    if target.shard == (1, 1) and totals.impossible_points == grid.points:
        parts.remove()
        raise InputError(f"no point of the grid can be: {totals.reasons()[0]['reason']}")
    counts = [notes[chunk].points for chunk in chunks]
    size = _joined(work, target, parts, chunks, counts, totals)
    rest = {
        "mark": mark,
        "asserted": list(work.asserted),
        "failed": dict(totals.failed),
        "shard": list(target.shard),
        "chunks": grid.chunks,
        "chunk_points": counts,
        "bytes": size,
    }
    about = describe(grid, work.wanted, what_if, totals, rest)
    write_about(about_path(target.output), about)
    parts.remove()
    return Written(totals, count, about)


def _joined(
    work: Work, target: Target, parts: Parts, chunks: range, counts: list[int], totals: Totals
) -> int:
    """The file of all parts, through the filter again where that compares points with one another."""
    every = [(parts.path(chunk), points) for chunk, points in zip(chunks, counts, strict=True)]
    if not work.wanted.compares:
        return join_parts(target.output, target.form, every)
    rows = (read_rows(path, target.form, headed=False, points=points) for path, points in every)
    best = best_of(rows, work.wanted)
    with replacing(target.output) as file:
        write_columns(file, best, target.form, whole=True)
        size = file.tell()
        forget_if(target.output, size)
    totals.points = len(best["point"])
    totals.failed = failing(best, work.asserted)
    return size
