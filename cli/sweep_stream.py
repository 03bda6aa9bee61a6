"""A sweep into a file of any size: part by part, going on where it was stopped."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from .. import InputError
from .sweep_files import (
    Note,
    Parts,
    about_path,
    best_of,
    described,
    join_parts,
    parquet,
    read_rows,
    replacing,
    write_columns,
)
from .sweep_grid import mine
from .sweep_run import Progress, Work, computed, failing, results
from .sweep_summary import Totals, describe, write_about


class Target(NamedTuple):
    """Where a sweep is written, which shard of it, and how."""

    output: Path
    form: str
    shard: tuple[int, int] = (1, 1)
    jobs: int = 1
    restart: bool = False
    quiet: bool = False


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
    known = None if target.restart else _complete(target, mark)
    if known is not None:
        totals = Totals()
        totals.add(known["points"], {e["reason"]: e["points"] for e in known["impossible"]}, known["failed"])
        return Written(totals, 0, known)
    try:
        return _written(work, target, what_if, mark)
    except OSError as error:
        place = error.filename or target.output
        raise InputError(f"cannot write {place}: {error.strerror or error}") from None


def _complete(target: Target, mark: str) -> dict[str, Any] | None:
    """The description of a file that is this very sweep already."""
    try:
        found = described(target.output)
    except InputError:
        return None
    return found.about if found.about.get("mark") == mark else None


def _written(work: Work, target: Target, what_if: dict[str, int], mark: str) -> Written:
    grid = work.grid
    parts = Parts(target.output, target.form, mark)
    parts.open(target.restart)
    chunks = mine(grid.chunks, target.shard)
    notes = parts.done()
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
    size = _joined(work, target, parts, chunks, totals)
    rest = {
        "mark": mark,
        "asserted": list(work.asserted),
        "failed": dict(totals.failed),
        "shard": list(target.shard),
        "chunks": grid.chunks,
        "chunk_points": [notes[chunk].points for chunk in chunks],
        "bytes": size,
    }
    about = describe(grid, work.wanted, what_if, totals, rest)
    write_about(about_path(target.output), about)
    parts.remove()
    return Written(totals, count, about)


def _joined(work: Work, target: Target, parts: Parts, chunks: range, totals: Totals) -> int:
    """The file of all parts, through the filter again where that compares points with one another."""
    if not work.wanted.compares:
        return join_parts(target.output, target.form, (parts.path(chunk) for chunk in chunks))
    best = best_of((read_rows(parts.path(c), target.form, headed=False) for c in chunks), work.wanted)
    with replacing(target.output) as temporary:
        write_columns(temporary, best, target.form, whole=True)
    totals.points = len(best["point"])
    totals.failed = failing(best, work.asserted)
    return target.output.stat().st_size
