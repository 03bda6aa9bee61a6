"""The terminal: rich tables, the answer in bold, notes dim. Rich is imported only here."""

from __future__ import annotations

import io
import os
import sys

from ..text import clean
from .report import Report, Table

SENTENCE = 12
"""Cells longer than this may be broken between words; a shorter one is read in one piece."""
SPARE = ("±", "also")
"""Columns that a narrow terminal does without: the answer's line has the error, topics have other names."""


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
    notes = list(report.notes)
    for whole in report.tables:
        table, gap, given_up = _fitted(whole, _width())
        if given_up:
            notes.append(f"{_width()} columns have no room for {', '.join(given_up)}: --format md has it")
        grid = RichTable(
            box=SIMPLE_HEAD,
            show_edge=False,
            title=clean(table.title) or None,
            title_justify="left",
            pad_edge=False,
            padding=(0, gap - 1, 0, 0),
        )
        widths = _widths(table, _width() - gap * (len(table.columns) - 1))
        for column, align, width in zip(table.columns, table.align, widths, strict=True):
            grid.add_column(
                Text(clean(column)),
                justify="right" if align == ">" else "left",
                width=width,
                overflow="fold",
            )
        for row in table.rows:
            grid.add_row(*(Text(clean(cell)) for cell in row))
        # Wider than the terminal rather than cut: what runs over goes on in its next line.
        console.width = max(_width(), sum(widths) + gap * len(widths))
        console.print()
        console.print(grid)
        console.width = _width()
    if report.tables:
        console.print()
    if report.picture:
        drawn = Text.from_ansi(report.coloured) if report.coloured else Text(clean(report.picture))
        console.print(drawn, soft_wrap=True)
    for note in dict.fromkeys(notes):
        console.print(Text(clean(note), style="dim"))
    return out.getvalue()


def _fitted(whole: Table, room: int) -> tuple[Table, int, list[str]]:
    """A table, the blanks between its columns, and what it does without, to be no wider than `room`; all of
    it where that does not help."""
    table, given_up = whole, list[str]()
    for gap, spare in ((2, ""), (1, ""), *((1, name) for name in SPARE)):
        if spare in table.columns and spare:
            table = table.without(spare)
            given_up.append(spare)
        least = [_least(table, i) for i in range(len(table.columns))]
        if sum(least) + gap * (len(least) - 1) <= room:
            return table, gap, given_up
    return whole, 1, []


def _widths(table: Table, room: int) -> list[int]:
    """Widths of the columns: what they would take, the widest made narrower until all fit in `room`."""
    least = [_least(table, i) for i in range(len(table.columns))]
    widths = [
        max(len(clean(cell)) for cell in (table.columns[i], *(row[i] for row in table.rows)))
        for i in range(len(least))
    ]
    while sum(widths) > room and widths != least:
        at = max((i for i, low in enumerate(least) if widths[i] > low), key=lambda i: widths[i])
        widths[at] -= 1
    return widths


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
