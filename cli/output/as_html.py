"""HTML for a notebook's cell: the answer in bold, plain tables, the picture, notes. Nothing is loaded."""

from __future__ import annotations

from html import escape

from ..text import clean
from .report import Report, Table


def render(report: Report, svg: str = "") -> str:
    """One fragment; `svg` (a whole element) stands in for the picture of characters."""
    parts = [f"<p><b>{_text(line)}</b></p>" for line in report.answer[:1]]
    parts += [f"<p>{_text(line)}</p>" for line in report.answer[1:]]
    parts += [_table(table) for table in report.tables if table.columns]
    if svg:
        parts.append(svg)
    elif report.picture:
        parts.append(f"<pre>{_text(report.picture)}</pre>")
    if report.notes:
        parts.append(f"<p><small>{'<br>'.join(_text(note) for note in report.notes)}</small></p>")
    return "\n".join(parts) + "\n"


def _text(text: str) -> str:
    return escape(clean(text))


def _table(table: Table) -> str:
    sides = ["right" if align == ">" else "left" for align in table.align]

    def row(tag: str, cells: tuple[str, ...]) -> str:
        filled = (
            f'<{tag} style="text-align: {side}">{_text(cell)}</{tag}>'
            for cell, side in zip(cells, sides, strict=True)
        )
        return f"<tr>{''.join(filled)}</tr>"

    caption = f"<caption>{_text(table.title)}</caption>" if table.title else ""
    body = "\n".join(row("td", cells) for cells in table.rows)
    return f"<table>{caption}<thead>{row('th', table.columns)}</thead>\n<tbody>\n{body}\n</tbody></table>"
