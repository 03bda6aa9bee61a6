"""A measured run beside the prediction: what `request --measured` adds to its screen and its JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..costmodel.setting import Setting
from .output.report import Table
from .text import seconds

if TYPE_CHECKING:
    from ..probes.measured_run import Ran


def placed(setting: Setting, ran: Ran) -> dict[str, Any]:
    """Every figure of a run beside bound, floor and expected."""
    from ..probes.end_to_end import SLACK, beside

    rows = []
    for one in ran.seen:
        times = beside(setting, one.terms)
        expected = times["expected"] if times else None
        rows.append(
            {
                "name": one.label,
                "prompt": one.prompt,
                "gen": one.gen,
                "batch": one.batch,
                "measured_s": one.seconds,
                "predicted_s": times,
                "error": None if expected is None else expected / one.seconds - 1,
                "impossible": bool(times and one.seconds < SLACK * (times["bound"] or 0.0)),
            }
        )
    return {"tool": ran.tool, "rows": rows}


def placed_table(shown: dict[str, Any]) -> Table:
    """A line a figure of the run."""
    table = Table((f"measured ({shown['tool']})", "seen", "bound", "floor", "expected", "error"), "<>>>>>")
    for row in shown["rows"]:
        times = row["predicted_s"]
        cells = three(times) if times else ("-", "-", "-")
        error = "queueing in it" if times is None else "-" if row["error"] is None else f"{row['error']:+.1%}"
        if row["impossible"]:
            error = "faster than the bound"
        table.rows.append((row["name"], seconds(row["measured_s"]), *cells, error))
    return table


def three(times: dict[str, float | None]) -> tuple[str, str, str]:
    """Bound, floor and expected as cells."""
    return seconds(times["bound"]), seconds(times["floor"]), seconds(times["expected"])
