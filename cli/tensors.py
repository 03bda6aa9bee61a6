"""Numbers to quantise: typed on the command line, or read from a .npy or .csv file of bounded size."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

from .. import InputError
from ..costmodel.quantization import MAGNITUDE
from ..sheets import read_file
from .sizes import words

MAX_VALUES = 1 << 24
MAX_ROWS = 1 << 20
FEW_VALUES = 1 << 12
"""So many are worked on without importing numpy."""
MAX_CSV_BYTES = 1 << 24
Rows = Any
"""Sequences of numbers of one length, or a numpy array [rows, columns]."""


def typed(text: str) -> list[list[float]]:
    """`1.2,2.4;3.6,4.8`: values between commas, rows between semicolons."""
    rows = [[_number(word, "--values") for word in words(part, "--values")] for part in text.split(";")]
    return _even(rows, "--values")


def as_array(rows: Rows) -> Any:
    """The same numbers as a numpy array [rows, columns]."""
    import numpy as np

    return np.asarray(rows, dtype=np.float64)


def read(name: str, option: str) -> Rows:
    """The tensor in a .npy or .csv file; the first dimension makes the rows (output channels).

    Raises InputError for a file that is no tensor of up to 16,777,216 finite real numbers.
    """
    path = Path(name)
    suffix = path.suffix.lower()
    if suffix not in (".npy", ".csv"):
        raise InputError(f"{option} {name}: not a .npy or a .csv file (rows of numbers)")
    try:
        if not path.is_file():
            raise InputError(f"{option} {name}: {'not a file' if path.exists() else 'no such file'}")
        return _npy(path) if suffix == ".npy" else _csv(path)
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror or error}") from None


def _npy(path: Path) -> Rows:
    import numpy as np

    try:
        held = np.lib.format.open_memmap(path, mode="r")
    except OSError:
        raise
    except Exception as error:
        # A damaged header fails in many ways; none of them runs code, for pickled objects cannot be mapped.
        raise InputError(f"{path}: not a readable .npy array ({str(error).splitlines()[0][:100]})") from None
    if held.dtype.kind not in "fiu":
        raise InputError(f"{path}: numbers of type {held.dtype} cannot be quantised; save float32 instead")
    if not 1 <= held.size <= MAX_VALUES:
        raise InputError(f"{path}: {held.size:,} values; a tensor here has 1 to {MAX_VALUES:,}")
    channels = held.shape[0] if held.ndim > 1 else 1
    if channels > MAX_ROWS:
        raise InputError(f"{path}: {channels:,} rows; a tensor here has up to {MAX_ROWS:,}")
    rows = np.asarray(held, dtype=np.float64).reshape(channels, -1)
    if not np.isfinite(rows).all() or abs(rows).max() > MAGNITUDE:
        raise InputError(f"{path}: holds values that are not finite numbers up to {MAGNITUDE:g}")
    return rows


def _csv(path: Path) -> Rows:
    reader = csv.reader(io.StringIO(read_file(path, MAX_CSV_BYTES, "a CSV of numbers")))
    rows: list[list[float]] = []
    try:
        for row in filter(None, reader):
            if len(rows) == MAX_ROWS:
                raise InputError(f"{path}: more than {MAX_ROWS:,} rows")
            rows.append([_number(cell, f"{path}:{reader.line_num}") for cell in row])
    except csv.Error:
        raise InputError(f"{path}: not a CSV file of numbers") from None
    even = _even(rows, str(path))
    return as_array(even) if len(even) * len(even[0]) > FEW_VALUES else even


def _number(text: str, origin: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) <= MAGNITUDE:
        raise InputError(f"{origin}: '{text.strip()[:40]}' is not a finite number up to {MAGNITUDE:g}")
    return value


def _even(rows: list[list[float]], origin: str) -> list[list[float]]:
    if not rows:
        raise InputError(f"{origin}: no values")
    for n, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise InputError(f"{origin}: row {n} has {len(row):,} values, the first {len(rows[0]):,}")
    return rows
