"""Which points of a sweep are kept: those that fit, keep their limits, are best in something.

A filter is applied to every chunk, and again to what the chunks (or the shards) have left: a point that is
not the best of its chunk cannot be the best of all.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from .. import InputError
from ..sheets import nearest
from .assertions import COMPARE, Condition, parse_assertions
from .sweep_points import KINDS, Columns, together

MOST_KEPT = 100_000
LEAST = {
    "ttft": "ttft_s",
    "tpot": "tpot_s",
    "e2e": "e2e_s",
    "usd": "usd",
    "usd-per-million": "usd_per_million_output",
    "memory": "peak_memory_bytes",
    "devices": "devices",
}
MOST = {"tokens": "output_tokens_per_s", "mfu": "mfu", "mbu": "mbu", "batch": "batch"}
"""Measures by which points are compared, with the column of each; of the first the least is best, of these
the most. A time is the expected one, or the floor where nothing is expected."""
MEASURES = (*LEAST, *MOST)


@dataclass(frozen=True)
class Filter:
    """`limits`: most seconds by the name of a time; `where`: conditions on columns, as written."""

    fits: bool = False
    limits: tuple[tuple[str, float], ...] = ()
    where: tuple[str, ...] = ()
    pareto: tuple[str, ...] = ()
    by: str | None = None
    top: int | None = None

    def checked(self) -> Filter:
        """Raises InputError for a measure or a column that there is not."""
        for name in (*self.pareto, *([] if self.by is None else [self.by])):
            if name not in MEASURES:
                raise InputError(f"'{name[:60]}' is none of {', '.join(MEASURES)}{nearest(name, MEASURES)}")
        if self.top is not None and not 1 <= self.top <= MOST_KEPT:
            raise InputError(f"--top is between 1 and {MOST_KEPT:,}, not {self.top}")
        if self.top is not None and self.by is None:
            raise InputError(f"--top needs --by: the measure by which, one of {', '.join(MEASURES)}")
        conditions(self.where, "--where")
        return self

    @property
    def compares(self) -> bool:
        """Whether what is kept depends on all points together."""
        return bool(self.pareto) or self.by is not None

    def echo(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_echo(cls, said: dict[str, Any]) -> Filter:
        """The filter that a file's description holds."""
        limits = tuple((str(name), float(value)) for name, value in said["limits"])
        where, pareto = tuple(map(str, said["where"])), tuple(map(str, said["pareto"]))
        return cls(bool(said["fits"]), limits, where, pareto, said["by"], said["top"]).checked()


def conditions(written: tuple[str, ...], option: str) -> list[Condition]:
    """Conditions on columns. Raises InputError for a column that there is not, or an order of texts."""
    out = parse_assertions(written, option)
    for path, sign, wanted, text in out:
        kind = KINDS.get(path)
        if kind is None:
            raise InputError(f"{option}: there is no column '{path[:60]}'{nearest(path, KINDS)}")
        numeric = isinstance(wanted, (int, float)) and not isinstance(wanted, bool)
        alike = numeric if kind in ("int", "number") else isinstance(wanted, str if kind == "text" else bool)
        if (wanted is not None and not alike) or (sign not in ("==", "!=") and not numeric):
            raise InputError(f"{option} {path} {sign}: cannot compare with '{text[:60]}'")
    return out


def holds(columns: Columns, condition: Condition) -> Any:
    """Where a condition holds; what is missing holds no comparison but that with null."""
    import numpy as np

    path, sign, wanted, _ = condition
    values = columns[path]
    missing = (
        np.isnan(values) if values.dtype == float else np.array([value is None for value in values], bool)
    )
    if wanted is None:
        return missing if sign == "==" else ~missing
    return np.asarray(COMPARE[sign](values, wanted), dtype=bool) & ~missing


def measure(columns: Columns, name: str) -> Any:
    """Numbers of which the least is best."""
    import numpy as np

    if name in MOST:
        return -columns[MOST[name]].astype(float)
    column = LEAST[name]
    if column in columns:
        return columns[column].astype(float)
    expected, floor = columns[f"{column}.expected"], columns[f"{column}.floor"]
    return np.where(np.isnan(expected), floor, expected)


def kept(columns: Columns, wanted: Filter) -> Columns:
    """The points that a filter keeps, the best first where it says by what."""
    import numpy as np

    keep = np.ones(len(columns["point"]), dtype=bool)
    if wanted.fits:
        keep &= np.array([value is True for value in columns["fits"]], bool)
    for name, limit in wanted.limits:
        keep &= measure(columns, name) <= limit
    for condition in conditions(wanted.where, "--where"):
        keep &= holds(columns, condition)
    columns = taken(columns, np.flatnonzero(keep))
    if wanted.pareto:
        columns = taken(columns, front(np.stack([measure(columns, name) for name in wanted.pareto], axis=1)))
    if wanted.by is not None:
        order = np.lexsort((columns["point"], measure(columns, wanted.by)))
        columns = taken(columns, order[: wanted.top])
    return columns


def taken(columns: Columns, which: Any) -> Columns:
    return {name: values[which] for name, values in columns.items()}


def front(values: Any) -> Any:
    """Rows of `values` that no other row is as good as in everything and better than in something.

    Rows with a missing value are none of them; the order is kept.
    """
    import numpy as np

    rows = np.flatnonzero(~np.isnan(values).any(axis=1))
    rows = rows[np.lexsort(values[rows].T[::-1])]
    at = 0
    while at < len(rows):
        here = values[rows[at]]
        ahead = values[rows[at + 1 :]]
        stay = (ahead < here).any(axis=1) | (ahead == here).all(axis=1)
        rows = np.concatenate([rows[: at + 1], rows[at + 1 :][stay]])
        at += 1
    return np.sort(rows)


class Collector:
    """Chunks of kept points, held in memory: never more than `MOST_KEPT` of them."""

    def __init__(self, wanted: Filter) -> None:
        self.wanted = wanted
        self._parts: list[Columns] = []
        self._held = 0

    def add(self, columns: Columns) -> None:
        """Raises InputError where too many points are left to be held."""
        self._parts.append(columns)
        self._held += len(columns["point"])
        if self._held > MOST_KEPT and self.wanted.compares:
            self._parts = [self._best()]
            self._held = len(self._parts[0]["point"])
        if self._held > MOST_KEPT:
            raise InputError(
                f"more than {MOST_KEPT:,} points are kept: --output FILE.csv, .jsonl or .parquet writes any "
                "number of them; --top, --pareto, --where and limits keep fewer"
            )

    def _best(self) -> Columns:
        import numpy as np

        every = together(self._parts)
        return kept(taken(every, np.argsort(every["point"], kind="stable")), self.wanted)

    def columns(self) -> Columns:
        """All that is left, in the order of the grid or of the filter."""
        return self._best()
