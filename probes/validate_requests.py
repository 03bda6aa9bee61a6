"""Measured requests against bound, floor and expected times: errors by engine, GPU and scope."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import InfercostError
from ..costmodel.times.expected import Clock
from ..hardware.engine import EngineTimes, engine_names, load_engine
from ..hardware.spec import Gpu
from .end_to_end import KERNELS_ALONE, Evaluator, Parts, impossible
from .errors import Errors
from .request_rows import rows

MOST_FLAGGED = 1000


class Line(NamedTuple):
    """Errors of the rows of one engine, GPU and scope."""

    bound: Errors
    floor: Errors
    expected: Errors


class Found:
    """What a file's rows come to."""

    def __init__(self) -> None:
        self.lines: dict[tuple[str, str, str], Line] = {}
        self.excluded: Counter[str] = Counter()
        self.flagged: list[dict[str, Any]] = []
        self.flagged_rows = 0

    def pooled(self, *places: int) -> dict[tuple[str, ...], Line]:
        """Lines that agree on these parts of their key (0 engine, 1 GPU, 2 scope), in order of name."""
        out: dict[tuple[str, ...], Line] = {}
        for key in sorted(self.lines):
            into = out.setdefault(tuple(key[i] for i in places), Line(Errors(), Errors(), Errors()))
            for sum_, one in zip(into, self.lines[key], strict=True):
                sum_ += one
        return out


def validate_requests(paths: list[str], clock_of: Callable[[Gpu], Clock | None]) -> Found:
    """Every row that can be predicted, against its engine's profile."""
    found, seen = Found(), dict[tuple[str, str, str], list[tuple[float, ...]]]()
    evaluator = Evaluator(clock_of)
    for path in paths:
        for row in rows(path, found.excluded):
            if not row.clean:
                found.excluded["that the file marks as faulty"] += 1
                continue
            try:
                parts = evaluator.parts(row)
            except InfercostError as error:
                found.excluded[f"that cannot be run so: {error}"] += 1
                continue
            why = impossible(parts)
            if why:
                _flag(found, path, parts, why)
                continue
            key = (row.profile, row.gpu, row.scope.replace("_", " "))
            predicted = max(parts.seconds(_times(row.profile)), parts.floor_s)
            times = (parts.bound_s, parts.floor_s, predicted, row.measured_s)
            seen.setdefault(key, []).append(times)
    for key, every in seen.items():
        found.lines[key] = line = Line(Errors(), Errors(), Errors())
        *predictions, measured = np.array(every).T
        for errors, values in zip(line, predictions, strict=True):
            errors.add(values, measured)
    return found


def _times(profile: str) -> EngineTimes:
    times = load_engine(profile).times if profile in engine_names() else None
    return times or KERNELS_ALONE


def _flag(found: Found, path: str, parts: Parts, why: str) -> None:
    row = parts.row
    found.flagged_rows += 1
    if len(found.flagged) < MOST_FLAGGED:
        found.flagged.append(
            {
                "file": path,
                "line": row.line,
                "why": why,
                "engine": row.engine,
                "gpu": row.gpu,
                "model": row.setting.model.name,
                "metric": row.metric,
                "measured_s": row.measured_s,
                "bound_s": parts.bound_s,
            }
        )
