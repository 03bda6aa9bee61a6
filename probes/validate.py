"""Predicted against measured kernel times: by group, by family, what beats physics, and the picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any, NamedTuple

import numpy as np

from ..costmodel.op import Collective
from ..costmodel.roofline import floor_s
from ..costmodel.times.device import device
from ..costmodel.times.families import TIMES
from ..costmodel.times.transfer import Calibrated, Choice, Confidence, choose
from ..hardware.spec import Gpu
from .errors import Errors
from .measured import Batch, batches

COLD_SLACK = 0.98
"""A row is called impossible from cold memory below this share of the datasheet floor."""
MOST_FLAGGED = 1000
PICTURE_DECADES = (-7.0, 1.0)
PICTURE_BINS = 400

Library = Callable[[Gpu], Iterable[Calibrated]]


class Line(NamedTuple):
    """Errors of one group of one GPU."""

    family: str
    gpu: str
    group: str
    floor: Errors
    expected: Errors
    confidence: Confidence

    @property
    def table(self) -> str:
        """The name under which errors of like families are pooled."""
        return TIMES[self.family].table


class Flagged(NamedTuple):
    """A row that was faster than the datasheet allows from cold memory."""

    file: str
    line: int
    family: str
    gpu: str
    group: str
    measured_s: float
    floor_s: float
    fits_l2: bool


class Validation:
    """What a validation found, however long the files were."""

    def __init__(self) -> None:
        self.groups: dict[tuple[str, str, str], Line] = {}
        self.excluded: Counter[str] = Counter()
        self.flagged: list[Flagged] = []
        self.flagged_rows = 0
        self.decades = PICTURE_DECADES
        self.picture = np.zeros((PICTURE_BINS, PICTURE_BINS), dtype=np.int64)

    def lines(self) -> list[Line]:
        return [self.groups[key] for key in sorted(self.groups)]

    def pooled(self, *by: str) -> dict[tuple[str, ...], tuple[Errors, Errors]]:
        """(floor, expected) errors of all lines that agree on `by` (table, gpu), in order of name."""
        out: dict[tuple[str, ...], tuple[Errors, Errors]] = {}
        for line in self.lines():
            floor, expected = out.setdefault(tuple(getattr(line, name) for name in by), (Errors(), Errors()))
            floor += line.floor
            expected += line.expected
        return out

    def add(self, file: str, batch: Batch, predicted_s: Any, confidence: Confidence) -> None:
        """Count one batch with its predictions; rows that have none (a shape beyond all sense) are left
        out."""
        sound = np.isfinite(predicted_s) & (predicted_s > 0)
        if not sound.all():
            self.excluded["shapes that no time can be given for"] += int((~sound).sum())
            batch, predicted_s = select(batch, sound), predicted_s[sound]
            if not len(predicted_s):
                return
        floors = np.broadcast_to(floor_s(batch.work, batch.gpu), batch.time_s.shape)
        key = (batch.family, batch.gpu.name, str(batch.key))
        line = self.groups.get(key)
        if line is None:
            line = self.groups[key] = Line(*key, Errors(), Errors(), confidence)
        line.floor.add(floors, batch.time_s)
        line.expected.add(predicted_s, batch.time_s)
        self._flag(file, batch, floors)
        self._draw(predicted_s, batch.time_s)

    def _flag(self, file: str, batch: Batch, floors: Any) -> None:
        fast = np.flatnonzero(batch.time_s < COLD_SLACK * floors)
        self.flagged_rows += len(fast)
        work = batch.work
        moved = work.wire_bytes if isinstance(work, Collective) else work.bytes.total
        small = np.broadcast_to(moved <= device(batch.gpu).l2_bytes, batch.time_s.shape)
        for i in fast[: max(0, MOST_FLAGGED - len(self.flagged))]:
            self.flagged.append(
                Flagged(
                    file,
                    int(batch.line[i]),
                    batch.family,
                    batch.gpu.name,
                    str(batch.key),
                    float(batch.time_s[i]),
                    float(floors[i]),
                    bool(small[i]),
                )
            )

    def _draw(self, predicted_s: Any, measured_s: Any) -> None:
        low, high = PICTURE_DECADES
        edges = np.linspace(low, high, PICTURE_BINS + 1)
        found = np.histogram2d(np.log10(predicted_s), np.log10(measured_s), bins=(edges, edges))[0]
        self.picture += found.astype(np.int64)


def validate(paths: Iterable[str], library: Library, gpu: Gpu | None = None) -> Validation:
    """Every usable row of the files against the calibrations of `library`.

    `gpu`: what the rows ran on, in place of what they say.
    """
    out = Validation()
    chosen: dict[tuple[str, str, Any], Choice] = {}
    for path in paths:
        for batch in batches(path, out.excluded, gpu):
            key = (batch.family, batch.gpu.name, batch.key)
            if key not in chosen:
                chosen[key] = choose(TIMES[batch.family].family, batch.key, batch.gpu, library(batch.gpu))
            choice = chosen[key]
            out.add(path, batch, predict(batch, choice.params), choice.confidence)
    return out


def predict(batch: Batch, params: Mapping[str, Any]) -> Any:
    """Expected seconds of every row of a batch, at the state of L2 its benchmark left.

    Columns of parameters (as a fit's Jacobian has) give a row of predictions each.
    """
    given = {"key": batch.key, **params}
    seconds = TIMES[batch.family].time_s(batch.work, device(batch.gpu), given, batch.working_set)
    shapes = (value.shape for value in params.values() if hasattr(value, "shape"))
    columns = np.broadcast_shapes(*shapes, batch.time_s.shape)
    return np.broadcast_to(seconds, columns)


def gathered(paths: Iterable[str], excluded: Counter[str], gpu: Gpu | None = None) -> Iterator[Batch]:
    """The batches of whole files, those of one group joined: what a fit needs."""
    parts: dict[tuple[str, str, Any], list[Batch]] = {}
    for path in paths:
        for batch in batches(path, excluded, gpu):
            parts.setdefault((batch.family, batch.gpu.name, batch.key), []).append(batch)
    for same in parts.values():
        yield same[0] if len(same) == 1 else join(same)


def join(parts: list[Batch]) -> Batch:
    """Batches of one group as one."""
    names = ("work", "working_set", "time_s", "shape", "line")
    return parts[0]._replace(**{name: _joined([getattr(part, name) for part in parts]) for name in names})


def select(batch: Batch, keep: Any) -> Batch:
    """The rows of a batch that `keep` selects."""
    names = ("work", "working_set", "time_s", "shape", "line")
    return batch._replace(**{name: _selected(getattr(batch, name), keep) for name in names})


def _selected(value: Any, keep: Any) -> Any:
    if isinstance(value, dict):
        return {name: _selected(each, keep) for name, each in value.items()}
    if is_dataclass(value):
        kind: Any = type(value)
        return kind(**{name: _selected(each, keep) for name, each in vars(value).items()})
    return value[keep] if isinstance(value, np.ndarray) else value


def _joined(values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        return {name: _joined([value[name] for value in values]) for name in values[0]}
    if is_dataclass(values[0]):
        kind: Any = type(values[0])
        return kind(**{name: _joined([getattr(v, name) for v in values]) for name in vars(values[0])})
    return np.concatenate(values) if isinstance(values[0], np.ndarray) else values[0]
