"""Files of measured kernel times: which family a row is of, the work it ran, and what is left out.

Columns are those of ../shared/measured/ (its PROVENANCE.md): `gpu, framework, time_us` and a shape.
Rows of one GPU and group make one `Batch`, whose work holds arrays, so that a file of any length is
predicted group by group, chunk by chunk.
"""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .. import InputError
from ..costmodel.times.device import device
from ..hardware.calibration import Key
from ..hardware.catalogue import is_known, load_gpu
from ..hardware.spec import Gpu
from ..sheets import read_lines
from .left_out import leave_out
from .measured_rows import READERS, Reader, Rows

CHUNK_ROWS = 50_000
CHUNK_CHARACTERS = 1 << 24
MAX_GROUPS = 2000
LARGEST, LONGEST_US, SHORTEST_US = 1e12, 1e10, 1e-6
MAY_BE_ZERO = ("causal", "window")
BOX_WORDS = ("sxm", "server", "dgx", "pairwise", "nvlink")
"""What a file may add to a GPU's name: the form factor, or the box it stood in."""


class Batch(NamedTuple):
    """Rows of one GPU and group.

    `work` holds arrays; `time_s` is what was measured, `working_set` the bytes that the benchmark
    touched again and again (None: cold), `shape` the family of shapes a row belongs to (for
    cross-validation) and `line` its line in the file.
    """

    family: str
    gpu: Gpu
    key: Key
    work: Any
    working_set: Any
    time_s: Any
    shape: Any
    line: Any


def batches(
    path: str, excluded: Counter[str], gpu: Gpu | None = None, chunk_rows: int = CHUNK_ROWS
) -> Iterator[Batch]:
    """Every usable row of `path`, in batches; the others are counted in `excluded` by reason.

    `gpu`: what the rows ran on, in place of what they say.

    Raises InputError for a file that is not one of measured kernel times.
    """
    first = 2
    lines = read_lines(Path(path))
    head = next(lines, "")
    try:
        header = pd.read_csv(io.StringIO(head), nrows=0, index_col=False)
        reader = reader_of(path, list(header.columns))
        while rows := _some(lines, chunk_rows):
            chunk = pd.read_csv(
                io.StringIO("".join([head, *rows])),
                usecols=list(reader.columns),
                index_col=False,
                skip_blank_lines=False,
                keep_default_na=False,
                low_memory=False,
            )
            chunk = chunk.assign(line=np.arange(first, first + len(chunk)))
            first += len(chunk)
            yield from _of_chunk(chunk, reader, excluded, gpu)
    except InputError:
        raise
    except (pd.errors.ParserError, pd.errors.EmptyDataError, ValueError) as error:
        raise InputError(f"{path}: not a CSV file: {str(error).splitlines()[0]}") from None


def _some(lines: Iterator[str], most: int) -> list[str]:
    """The next lines, up to `most` or to what memory should hold at once."""
    out: list[str] = []
    held = 0
    while len(out) < most and held < CHUNK_CHARACTERS and (line := next(lines, "")):
        out.append(line)
        held += len(line)
    return out


def reader_of(path: str, columns: list[str]) -> Reader:
    """The kind of rows that these columns are."""
    for reader in READERS:
        if set(reader.columns) <= set(columns):
            return reader
    kinds = "; ".join(f"{one.name}: {', '.join(one.columns)}" for one in READERS)
    raise InputError(f"{path}: the columns are of no known kind of kernel times. Known: {kinds}")


def _of_chunk(chunk: Any, reader: Reader, excluded: Counter[str], given: Gpu | None) -> Iterator[Batch]:
    time_us = _numbers(chunk["time_us"])
    usable = (time_us >= SHORTEST_US) & (time_us <= LONGEST_US)
    for column in reader.numbers:
        values = _numbers(chunk[column])
        least = 0 if column in MAY_BE_ZERO else 1
        usable &= (values >= least) & (values <= LARGEST) & (values == np.rint(values))
        chunk[column] = values
    if bad := int((~usable).sum()):
        leave_out(excluded, "a time or a size that is not a whole positive number in its range", bad)
    chunk = chunk.assign(time_s=time_us * 1e-6)[usable]
    groups = chunk.groupby(["gpu", *reader.group], sort=True)
    if groups.ngroups > MAX_GROUPS:
        raise InputError(
            f"{groups.ngroups:,} kinds of rows by gpu, {', '.join(reader.group)}: no measured file"
        )
    for names, rows in groups:
        named = dict(zip(["gpu", *reader.group], names, strict=True))
        gpu = given or gpu_of(str(named["gpu"]))
        if gpu is None:
            leave_out(excluded, f"no sheet for the GPU '{str(named['gpu'])[:60]}'", len(rows))
            continue
        reason = reader.refuse(named)
        if reason:
            leave_out(excluded, reason, len(rows))
            continue
        sensible = reader.sensible({name: rows[name].to_numpy() for name in reader.numbers})
        if unlikely := int((~sensible).sum()):
            leave_out(excluded, "shapes that contradict themselves", unlikely)
            rows = rows[sensible]
        if not len(rows):
            continue
        columns: Rows = {name: rows[name].to_numpy() for name in (*reader.numbers, *reader.texts)}
        for part in reader.read(named, columns, device(gpu)):
            keep = part.keep
            yield Batch(
                part.family,
                gpu,
                part.key,
                part.work,
                part.working_set,
                rows["time_s"].to_numpy()[keep],
                part.shape,
                rows["line"].to_numpy()[keep],
            )


def _numbers(column: Any) -> Any:
    """A column as floats, NaN for what is none or is larger than any."""
    try:
        return pd.to_numeric(column, errors="coerce").to_numpy(dtype=float)
    except OverflowError:  # a whole number of hundreds of digits
        return np.array([_number(value) for value in column])


def _number(value: Any) -> float:
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError):
        return math.nan


_GPUS: dict[str, Gpu | None] = {}


def gpu_of(name: str) -> Gpu | None:
    """The GPU that a file calls `name`, box words left off; None where no sheet is of it."""
    if name not in _GPUS:
        _GPUS[name] = _find_gpu(name)
    return _GPUS[name]


def _find_gpu(name: str) -> Gpu | None:
    parts = [word for word in name.lower().replace("-", "_").split("_") if word]
    plain = [word for word in parts if word not in BOX_WORDS]
    for tried in ("-".join(parts), "-".join(plain)):
        if is_known(tried):
            return load_gpu(tried)
    return None
