"""Files of measured speculative decoding: rows with an accepted length, as cases that can be predicted.

Columns: target, draft, method, gpu, batch, gamma, mean_accepted_tokens, speedup (those of
../shared/end_to_end/spec_decode.csv); a row without an accepted length, or of something unknown, is counted
by its reason and left out.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from .. import InputError
from ..costmodel.setting import Setting
from ..costmodel.speculative import MAX_DRAFT, Passes
from ..costmodel.speculative_methods import METHODS, Case, find_method, speculation_of
from ..sheets import read_file
from .left_out import leave_out

MAX_BYTES = 10_000_000
MOST_ROWS = 20_000
COLUMNS = ("target", "draft", "method", "gpu", "batch", "gamma", "mean_accepted_tokens", "speedup")

Settings = Callable[[str, str], Setting]
"""(model, gpu) to what runs it; raises InputError for an unknown one."""


def read_rows(path: str) -> list[tuple[int, dict[str, str]]]:
    """Rows with their line in the file. Raises InputError for what is no such file."""
    text = read_file(Path(path), MAX_BYTES, "a file of measured rows")
    try:
        reader = csv.DictReader(io.StringIO(text), restval="", strict=True)
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise InputError(f"{path}: no column {', '.join(missing)}; it needs {', '.join(COLUMNS)}")
        rows = [(reader.line_num, {name: row[name] for name in COLUMNS}) for row in reader]
    except csv.Error as error:
        raise InputError(f"{path}: not a CSV file: {error}") from None
    if len(rows) > MOST_ROWS:
        raise InputError(f"{path}: {len(rows):,} rows are more than {MOST_ROWS:,}")
    return rows


def cases(path: str, settings: Settings) -> tuple[list[Case], Counter[str]]:
    """What can be predicted of a file, and why the rest was left out."""
    out: list[Case] = []
    excluded: Counter[str] = Counter()
    known: dict[tuple[object, ...], Passes] = {}
    for line, row in read_rows(path):
        if not row["mean_accepted_tokens"].strip():
            leave_out(excluded, "no accepted length")
            continue
        try:
            out.append(_case(line, row, settings, known))
        except InputError as error:
            leave_out(excluded, str(error))
    return out, excluded


def _case(
    line: int, row: dict[str, str], settings: Settings, known: dict[tuple[object, ...], Passes]
) -> Case:
    method = find_method(row["method"])
    if method is None:
        raise InputError(f"method '{row['method'][:40]}' is not one of {', '.join(METHODS)}")
    tokens, measured = _number(row, "mean_accepted_tokens"), _number(row, "speedup")
    batch = _whole(row, "batch", 4096)
    gamma = _whole(row, "gamma", MAX_DRAFT) if row["gamma"].strip() else None
    target = settings(row["target"], row["gpu"])
    drafter = settings(row["draft"], row["gpu"]) if row["draft"].strip() else None
    found, length, verify = speculation_of(method, target, drafter, batch, tokens, gamma)
    key = (row["target"], row["gpu"], row["draft"], method, batch, verify)
    passes = known.get(key)
    if passes is None:
        passes = known[key] = found.passes(verify)
    return Case(
        line,
        target.model.name,
        target.gpu.name,
        row["method"],
        tokens,
        measured,
        found,
        length,
        verify,
        passes,
    )


def _number(row: dict[str, str], name: str) -> float:
    try:
        value = float(row[name])
    except ValueError:
        value = math.nan
    if not 0 < value <= 1000:
        raise InputError(f"{name} is no number between 0 and 1,000")
    return value


def _whole(row: dict[str, str], name: str, most: int) -> int:
    value = _number(row, name) if row[name].strip() else math.nan
    if not (value == value // 1 and 1 <= value <= most):
        raise InputError(f"{name} is no whole number between 1 and {most:,}")
    return int(value)
