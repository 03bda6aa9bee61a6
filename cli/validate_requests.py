"""`infercost validate --end-to-end`: measured requests held to bound, floor and expected times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import InputError
from .output.report import Report, Table
from .text import count, plural, seconds

if TYPE_CHECKING:
    from ..probes.validate_requests import Found, Line

CONVENTIONS = {
    "error": "|predicted / measured - 1| of seconds: mean (MAPE), median, 90th percentile; bias is the "
    "median of predicted / measured - 1",
    "bound, floor": "of the steps alone; of a closed loop, the decode steps without the prefills among them",
    "expected": "by the profile of the row's engine (hardware/engines/), which was fitted to such rows; "
    "docs/times.md has the errors with each model and each GPU left out. An engine without a profile: "
    "kernels back to back",
    "flagged": "below 98 % of the bound, or weights and cache beyond the memory of the GPUs; left out",
    "clean": "rows that their file marks as faulty are counted and left out",
}
MOST_NAMED = 8


def _figures(line: Line) -> dict[str, Any]:
    from ..probes.errors import grade

    median = line.expected.quantile(0.5)
    return {
        "rows": line.expected.rows,
        "bound_mape": line.bound.mape,
        "floor_mape": line.floor.mape,
        "mape": line.expected.mape,
        "median_ape": median,
        "p90_ape": line.expected.quantile(0.9),
        "bias": line.expected.bias,
        "grade": grade(median),
    }


def requests_json(found: Found) -> dict[str, Any]:
    names = ("engine", "gpu", "scope")

    def listed(*places: int) -> list[dict[str, Any]]:
        return [
            {**dict(zip((names[i] for i in places), key, strict=True)), **_figures(line)}
            for key, line in found.pooled(*places).items()
        ]

    return {
        "groups": listed(0, 1, 2),
        "by_engine": listed(0),
        "by_gpu": listed(1),
        "totals": {key[0]: _figures(line) for key, line in found.pooled(2).items()},
        "flagged": found.flagged,
        "flagged_rows": found.flagged_rows,
        "excluded": dict(found.excluded),
    }


COLUMNS = ("rows", "bound off by", "floor", "expected", "median", "p90", "bias", "")


def requests_report(found: Found, groups: bool) -> Report:
    """Answer, tables and notes. Raises InputError where no row could be held to anything."""
    shown = requests_json(found)
    if not shown["groups"]:
        reasons = "; ".join(f"{count(n)} {why}" for why, n in found.excluded.items()) or "no rows"
        raise InputError(f"nothing to validate: {reasons}")
    answer = [
        f"{scope}, {plural(total['rows'], 'row')}: expected off by {_percent(total['mape'])} % in the mean, "
        f"{_percent(total['median_ape'])} % in the median (floor {_percent(total['floor_mape'])} %)"
        for scope, total in shown["totals"].items()
    ]
    tables = [
        _table("by engine", ("engine",), shown["by_engine"]),
        _table("by GPU", ("gpu",), shown["by_gpu"]),
    ]
    if groups:
        tables.append(_table("by engine, GPU and scope", ("engine", "gpu", "scope"), shown["groups"]))
    notes = [f"left out: {plural(n, 'row')}, {why}" for why, n in found.excluded.most_common(MOST_NAMED)]
    if found.flagged_rows:
        notes.append(f"{plural(found.flagged_rows, 'row')} cannot be what they say; the first:")
        for each in found.flagged[:MOST_NAMED]:
            notes.append(
                f"  {each['file']}:{each['line']} {each['engine']} {each['model']} on {each['gpu']}, "
                f"{each['metric']}: {each['why']} ({seconds(each['measured_s'])} against "
                f"{seconds(each['bound_s'])})"
            )
    return Report({}, answer, tables, notes, records=shown["groups"])


def _table(title: str, names: tuple[str, ...], entries: list[dict[str, Any]]) -> Table:
    table = Table((*names, *COLUMNS), "<" * len(names) + ">" * 7 + "<", title=f"{title}, errors in %")
    keys = ("bound_mape", "floor_mape", "mape", "median_ape", "p90_ape")
    for entry in entries:
        table.rows.append(
            (
                *(entry[name] for name in names),
                count(entry["rows"]),
                *(_percent(entry[key]) for key in keys),
                f"{100 * entry['bias']:+.1f}",
                entry["grade"],
            )
        )
    return table


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"
