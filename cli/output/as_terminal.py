"""The terminal: rich tables, the answer in bold, notes dim. Rich is imported only here."""

from __future__ import annotations

import io
import os
import sys

from ..text import clean
from .report import Report, Table

SENTENCE = 20
"""Cells longer than this may be broken between words; a shorter name or number is read in one piece."""


def render(report: Report) -> str:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    out = io.StringIO()
    plain = bool(os.environ.get("NO_COLOR"))
    console = Console(
        file=out,
        force_terminal=True,
        width=_width(),
        no_color=plain,
        color_system=None if plain else "auto",
        highlight=False,
        soft_wrap=False,
    )
    for i, line in enumerate(report.answer):
        console.print(Text(clean(line), style="bold" if i == 0 else ""))
    for table in report.tables:
        least = [_least(table, i) for i in range(len(table.columns))]
        grid = RichTable(
            box=SIMPLE_HEAD,
            title=clean(table.title) or None,
            title_justify="left",
            pad_edge=False,
            padding=(0, 1, 0, 0),
        )
        for i, (column, align) in enumerate(zip(table.columns, table.align, strict=True)):
            grid.add_column(
                Text(clean(column)),
                justify="right" if align == ">" else "left",
                min_width=least[i],
                overflow="fold",
            )
        for row in table.rows:
            grid.add_row(*(Text(clean(cell)) for cell in row))
        # Wider than the terminal rather than cut: what runs over goes on in its next line.
        console.print(grid, width=max(_width(), sum(least) + 2 * len(least)), crop=False)
    if report.picture:
        drawn = Text.from_ansi(report.coloured) if report.coloured else Text(clean(report.picture))
        console.print(drawn, soft_wrap=True)
    for note in report.notes:
        console.print(Text(clean(note), style="dim"))
    return out.getvalue()


def _least(table: Table, column: int) -> int:
    """Width below which a column is not to go."""
    cells = [clean(row[column]) for row in table.rows]
    pieces = clean(table.columns[column]).split()
    for cell in cells:
        pieces += [cell] if len(cell) <= SENTENCE else cell.split()
    return max((len(piece) for piece in pieces), default=0)


def _width() -> int:
    """The terminal's width, or that of COLUMNS; 100 where nobody knows."""
    try:
        width = int(os.environ.get("COLUMNS") or os.get_terminal_size(sys.stdout.fileno()).columns)
    except (OSError, ValueError):
        return 100
    return width if width >= 20 else 80
