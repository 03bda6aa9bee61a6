"""Markdown: the answer in bold, tables as pipe tables, notes as a list."""

from __future__ import annotations

from ..text import clean
from .report import Report, Table


def render(report: Report) -> str:
    parts = [f"**{escape(line)}**  " for line in report.answer[:1]]
    parts += [f"{escape(line)}  " for line in report.answer[1:]]
    for table in report.tables:
        parts += ["", *_table(table)]
    if report.picture:
        parts += ["", "```", clean(report.picture), "```"]
    if report.notes:
        parts += ["", *(f"- {escape(note)}" for note in report.notes)]
    return "\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Text that Markdown leaves as it is."""
    out = clean(text).replace("\n", " ")
    for mark in "\\|*_`<>":
        out = out.replace(mark, f"\\{mark}")
    return out


def _table(table: Table) -> list[str]:
    lines = [f"### {escape(table.title)}", ""] if table.title else []
    lines.append("| " + " | ".join(escape(column) for column in table.columns) + " |")
    lines.append("| " + " | ".join("---:" if a == ">" else "---" for a in table.align) + " |")
    lines += ["| " + " | ".join(escape(cell) for cell in row) + " |" for row in table.rows]
    return lines
