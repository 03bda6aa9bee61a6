"""What a sweep says of itself: its document, its screen, and the description beside its file."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from .inputs import model_source, without_constant
from .output.report import Report, Table, write_file
from .price import price_notes
from .room import FITS
from .stand_ins import stand_ins
from .sweep_described import SCHEMA
from .sweep_files import rows_of
from .sweep_filter import LEAST, MOST, Filter, measure, taken
from .sweep_grid import Grid
from .sweep_points import INPUTS, KINDS, Columns
from .text import clean, count, plural, seconds, si, size

MOST_SHOWN = 40
MOST_REASONS = 20
CONVENTIONS = {
    "point": "number in the grid: model, gpu, weights, kv, attention, mla, fusion, tp, pp, ep, batch, "
    "prompt, gen, cached, the last counting fastest",
    "ttft_s, tpot_s, e2e_s, output_tokens_per_s, mfu, mbu, usd": "as of `infercost request`",
    "tpot_s": "mean of the G - 1 decode steps; beyond 64 steps and 256 tokens of context, every 16 (of more "
    "than 16,384 steps: more) stand at their mean context: within one part in 10,000 of the sum step by step",
    "confidence, error": "of the expected times of all points that were computed together",
    "weight_bytes, kv_bytes": "of the whole model and all sequences of --batch at prompt + gen - 1 tokens",
    "peak_memory_bytes": "fullest rank: weights, cache, widest moment of the prefill",
    "fits": FITS,
    "prefill_verdict, decode_verdict": "of the whole phase: compute over memory time, against the ridge",
    "usd_per_million_output": "what the decode steps cost, over them",
    "impossible": "points that there cannot be, by reason: they are counted, not written",
    "pareto": "points that no other is as good as in every measure and better than in one",
}
TIMES = ("ttft_s", "tpot_s", "e2e_s")


class Totals:
    """Points of a sweep, counted while it runs."""

    def __init__(self) -> None:
        self.points = 0
        self.impossible: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()

    def add(self, points: int, impossible: dict[str, int], failed: dict[str, int]) -> None:
        self.points += points
        self.impossible.update(impossible)
        self.failed.update(failed)

    @property
    def impossible_points(self) -> int:
        return sum(self.impossible.values())

    def reasons(self) -> list[dict[str, Any]]:
        """The commonest reasons why points cannot be."""
        return [{"reason": why, "points": n} for why, n in self.impossible.most_common(MOST_REASONS)]


def head(grid: Grid, wanted: Filter, what_if: dict[str, int]) -> dict[str, Any]:
    """What every document of a sweep begins with."""
    sources = {gpu.name: gpu.source for gpu in grid.gpus}
    for model in grid.models:
        sources |= model_source(model)
    return {
        "inputs": {"command": "sweep", "what_if": what_if, **grid.echo(), "filter": wanted.echo()},
        "conventions": CONVENTIONS,
        "sources": sources,
        "inferred": {model.name: list(model.inferred) for model in grid.models if model.inferred},
        "grid_points": grid.points,
        "settings": grid.settings,
    }


def describe(
    grid: Grid, wanted: Filter, what_if: dict[str, int], totals: Totals, rest: dict[str, Any]
) -> dict[str, Any]:
    """The description that stands beside a file: all but the points."""
    out = {"schema": SCHEMA, **head(grid, wanted, what_if), "columns": KINDS, "digest": grid.digest()}
    out |= {"filter": wanted.echo(), "points": totals.points, "impossible": totals.reasons()}
    return {**out, "impossible_points": totals.impossible_points, **rest}


def write_about(path: Path, about: dict[str, Any]) -> None:
    write_file(path, json.dumps(about, indent=1, allow_nan=False) + "\n")


def nested(row: dict[str, Any]) -> dict[str, Any]:
    """A point as the JSON has it: `inputs`, and a mapping for each time."""
    out: dict[str, Any] = {"point": row["point"], "inputs": {name: row[name] for name in INPUTS}}
    for name, value in row.items():
        if name in INPUTS or name == "point":
            continue
        group, _, part = name.partition(".")
        if part:
            out.setdefault(group, {})[part] = value
        else:
            out[name] = value
    return out


def report(grid: Grid, wanted: Filter, what_if: dict[str, int], totals: Totals, columns: Columns) -> Report:
    """Points that are held in memory, on a screen, in a document, as records."""
    rows = list(rows_of(columns))
    document = {"schema": "infercost.sweep/1", **head(grid, wanted, what_if)}
    document |= {"impossible_points": totals.impossible_points, "impossible": totals.reasons()}
    document["points"] = [nested(row) for row in rows]
    table, notes = without_constant(_table(rows[:MOST_SHOWN]), (*NAMES, "±", "fits"))
    if len(rows) > MOST_SHOWN:
        notes.append(
            f"the first {MOST_SHOWN} of {len(rows):,}: --by and --top choose, --output writes them all"
        )
    notes += reason_notes(totals.reasons(), totals.impossible_points)
    notes.append(_kind(rows))
    notes += _near_limits(wanted, columns)
    notes.append(
        "a batch's prompts are computed together and $/M out pays the decode steps alone, as in `request`; "
        "slots that refill, prompts in the price: `infercost serve`"
    )
    notes += stand_ins(grid.models, grid.recipes, grid.gpus)
    notes += price_notes(grid.gpus, grid.price)
    quiet = [repr(_time(row, "e2e_s")) for row in rows]
    return Report(document, [_answer(grid, wanted, columns)], [table], notes, records=rows, quiet=quiet)


NAMES = (
    *("model", "gpu", "weights", "kv", "attention", "mla", "fusion"),
    *("tp", "pp", "ep", "batch", "prompt", "gen", "cached"),
)
USUAL = {"attention": "flash", "mla": "auto", "fusion": "engine", "tp": 1, "pp": 1, "ep": 1, "cached": 0}
"""What is not worth saying where every point has it."""
MEASURED = ("TTFT", "TPOT", "±", "tok/s", "memory", "fits", "$/M out")


def _table(rows: list[dict[str, Any]]) -> Table:
    names = [name for name in NAMES if any(row[name] != USUAL.get(name) for row in rows)]
    align = "".join(">" if KINDS[name] == "int" else "<" for name in names)
    table = Table((*names, *MEASURED), f"{align}>>>>><>")
    for row in rows:
        usd = row["usd_per_million_output"]
        fits = {True: "yes", False: "no", None: "-"}[row["fits"]]
        table.rows.append(
            (
                *(count(row[name]) if KINDS[name] == "int" else clean(row[name]) for name in names),
                seconds(_time(row, "ttft_s")),
                seconds(_time(row, "tpot_s")),
                "-" if row["error"] is None else f"{row['error']:.0%}",
                si(row["output_tokens_per_s"]),
                size(row["peak_memory_bytes"]),
                fits,
                "-" if usd is None else f"{usd:,.3g}",
            )
        )
    return table


def _time(row: dict[str, Any], name: str) -> Any:
    """The expected time, or the floor where nothing is expected."""
    expected = row[f"{name}.expected"]
    return row[f"{name}.floor"] if expected is None else expected


def _kind(rows: list[dict[str, Any]]) -> str:
    sure = {(row["confidence"], row["error"]) for row in rows if row["confidence"]}
    if not sure:
        return "times are floors"
    kinds = sorted({kind for kind, _ in sure})
    errors = sorted(error for _, error in sure)
    ends = dict.fromkeys(f"{error:.0%}" for error in (errors[0], errors[-1]))
    between = " to ".join(ends)
    return f"times: expected, of kernels alone, {' and '.join(kinds)}: median error {between}"


def _near_limits(wanted: Filter, columns: Columns) -> list[str]:
    """How many kept points are nearer a limit than the error that is stated of them."""
    import numpy as np

    near = np.zeros(len(columns["point"]), dtype=bool)
    for name, limit in wanted.limits:
        near |= measure(columns, name) * (1 + columns["error"]) > limit
    if not near.any():
        return []
    many = plural(int(near.sum()), "point")
    return [f"{many} kept within the stated error of a limit: measured, some of them may be beyond it"]


def _answer(grid: Grid, wanted: Filter, columns: Columns) -> str:
    """How many points are left, and the best of them."""
    import numpy as np

    held = len(columns["point"])
    said = plural(held, "point") if held == grid.points else f"{held:,} of {plural(grid.points, 'point')}"
    if not held:
        return f"{said}: none is left"
    name = wanted.by or (wanted.pareto[0] if wanted.pareto else None)
    if name is None:
        priced = bool((~np.isnan(columns["usd_per_million_output"])).any())
        name = "usd-per-million" if priced else "tokens"
    values = measure(columns, name)
    fitting = np.array([value is True for value in columns["fits"]], bool)
    which = np.flatnonzero(fitting & ~np.isnan(values))
    if not fitting.any():
        unknown = all(value is None for value in columns["fits"])
        return f"{said}; of no card is the capacity known" if unknown else f"{said}, none of which fits"
    if not len(which):
        return f"{said}; of none that fits is there a figure for {name}{_lacking(name)}"
    best = next(rows_of(taken(columns, which[[int(np.argmin(values[which]))]])))
    varied = [each for each in NAMES if len(set(columns[each].tolist())) > 1]
    where = ", ".join(_named(each, best[each]) for each in varied) or "the only one"
    left = int(fitting.sum()) - len(which)
    without = f"; {left:,} more fit, without a figure{_lacking(name)}" if left else ""
    return f"{said}; {_superlative(name)} of those that fit: {_value(name, best)} ({where}){without}"


def _lacking(name: str) -> str:
    return ": no price is known, --price gives one" if name.startswith("usd") else ""


def _superlative(name: str) -> str:
    words = {
        "ttft": "least time to first token",
        "tpot": "least time per token",
        "e2e": "least end to end",
        "usd": "least dollars a request",
        "usd-per-million": "least dollars per million output tokens",
        "memory": "least memory",
        "devices": "fewest devices",
        "tokens": "most output tokens/s",
        "mfu": "highest MFU",
        "mbu": "highest MBU",
        "batch": "largest batch",
    }
    return words[name]


def _value(name: str, row: dict[str, Any]) -> str:
    column = LEAST.get(name) or MOST[name]
    if column in TIMES:
        return seconds(_time(row, column))
    value = row[column]
    if name == "memory":
        return size(value)
    return f"{value:.1%}" if name in ("mfu", "mbu") else f"{value:,.4g}"


def _named(name: str, value: Any) -> str:
    return clean(value) if KINDS[name] == "text" else f"{name} {value:,}"


def reason_notes(reasons: list[dict[str, Any]], points: int, most: int = 3) -> list[str]:
    """Points that cannot be, as lines of a screen."""
    if not points:
        return []
    said = [f"{each['reason']} ({each['points']:,})" for each in reasons[:most]]
    more = len(reasons) - most
    rest = f"; and {more} more reasons" if more > 0 else ""
    return [f"{plural(points, 'point')} cannot be: {'; '.join(said)}{rest}"]
