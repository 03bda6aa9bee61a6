"""Plain aligned text: what a pipe or a file gets."""

from __future__ import annotations

from ..text import clean
from .report import Report, Table


def render(report: Report) -> str:
    parts = [clean(line) for line in report.answer]
    for table in report.tables:
        parts += ["", *lines(table)]
    if report.picture:
        parts += ["", clean(report.picture)]
    if report.notes:
        parts += ["", *(clean(note) for note in report.notes)]
    return "\n".join(line.rstrip() for line in parts) + "\n"


def lines(table: Table) -> list[str]:
    """The table with columns two spaces apart, as wide as their widest cell."""
    rows = [tuple(clean(cell) for cell in row) for row in (table.columns, *table.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.columns))]
    out = [clean(table.title)] if table.title else []
    for row in rows:
        cells = (f"{cell:{a}{w}}" for cell, a, w in zip(row, table.align, widths, strict=True))
        out.append("  ".join(cells))
    return out
