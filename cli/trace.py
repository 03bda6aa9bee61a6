"""A CSV of requests: when each came, tokens in, tokens out."""

from __future__ import annotations

import csv
import io
import math
from datetime import datetime
from itertools import chain
from pathlib import Path

from .. import InputError
from ..costmodel.simulation import Job
from ..sheets import read_file

MAX_BYTES = 32 << 20
MAX_ROWS = 200_000
MAX_LENGTH = 1 << 24
COLUMNS = {
    "arrival": ("arrival", "arrival_s", "arrived_at", "timestamp", "time"),
    "prompt": ("prompt", "prompt_tokens", "input", "input_tokens", "contexttokens", "num_prefill_tokens"),
    "output": ("output", "output_tokens", "gen", "generatedtokens", "num_decode_tokens"),
}
"""Names a column goes by, among them those of the Azure and Vidur traces."""


def read_trace(path: str) -> list[Job]:
    """Requests in the order they came, the first at 0 s.

    Columns by name (see `COLUMNS`), or three without a header: arrival, prompt, output. Arrivals are seconds
    or ISO dates. Raises InputError naming file and line.
    """
    reader = csv.reader(io.StringIO(read_file(Path(path), MAX_BYTES, "a trace")))
    jobs: list[Job] = []
    try:
        head = next(reader, [])
        places, headed = _places(path, head)
        for row in reader if headed else chain([head], reader):
            if any(cell.strip() for cell in row):
                jobs.append(_job(row, places, f"{path}:{reader.line_num}"))
            if len(jobs) > MAX_ROWS:
                raise InputError(f"{path}: more than {MAX_ROWS:,} requests; cut it")
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: not CSV: {error}") from None
    if not jobs:
        raise InputError(f"{path}: no requests; give a line of arrival,prompt,output for each")
    jobs.sort(key=lambda job: job.arrival_s)
    start = jobs[0].arrival_s
    return [job._replace(arrival_s=job.arrival_s - start) for job in jobs]


def _places(path: str, first: list[str]) -> tuple[list[int], bool]:
    """Where arrival, prompt and output stand, and whether the first line is a header that says so."""
    head = [cell.strip().lower() for cell in first]
    found = [next((head.index(n) for n in names if n in head), None) for names in COLUMNS.values()]
    if all(place is None for place in found) and head and head[0][:1].isdigit():
        return [0, 1, 2], False
    for name, place in zip(COLUMNS, found, strict=True):
        if place is None:
            raise InputError(
                f"{path}: no column '{name}' (or {', '.join(COLUMNS[name][1:])}) in the first line"
            )
    return [place for place in found if place is not None], True


def _job(row: list[str], places: list[int], where: str) -> Job:
    if len(row) <= max(places):
        raise InputError(f"{where}: {len(row)} columns; arrival, prompt and output are needed")
    when, prompt, output = (row[place].strip() for place in places)
    return Job(_arrival(when, where), _length(prompt, where), _length(output, where))


def _arrival(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        try:
            value = datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError, OSError):
            value = math.nan
    if not -1e12 < value < 1e12:
        raise InputError(f"{where}: arrival '{text[:40]}' is no time; give seconds or an ISO date")
    return value


def _length(text: str, where: str) -> int:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (1 <= value <= MAX_LENGTH and value == int(value)):
        raise InputError(f"{where}: '{text[:40]}' is no number of tokens from 1 to {MAX_LENGTH:,}")
    return int(value)
