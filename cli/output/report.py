"""What a command has to say, and the one place that decides where and in which format it goes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from ... import InputError
from ...sheets import nearest
from ..options import Quiet

FORMATS = ("table", "json", "csv", "md")
_SUFFIXES = {".json": "json", ".csv": "csv", ".md": "md", ".markdown": "md", ".txt": "table"}


class Table:
    """Rows of cells ready to read; `align` has one of < and > for each column."""

    def __init__(
        self, columns: tuple[str, ...], align: str, rows: list[tuple[str, ...]] | None = None, title: str = ""
    ) -> None:
        self.columns, self.align, self.title = columns, align, title
        self.rows = rows if rows is not None else []

    def without(self, column: str) -> Table:
        kept = [i for i, name in enumerate(self.columns) if name != column]
        rows = [tuple(row[i] for i in kept) for row in self.rows]
        align = "".join(self.align[i] for i in kept)
        return Table(tuple(self.columns[i] for i in kept), align, rows, self.title)


class Report:
    """`answer` first, then `tables` that prove it, `picture`, and `notes` with the conventions.

    `document` is the JSON; `records` the flat rows of the main table for CSV; `quiet` the one
    number, a line a point (None: no number is named for this command); `coloured` the picture with ANSI
    colours for a terminal.
    """

    def __init__(
        self,
        document: dict[str, Any],
        answer: list[str],
        tables: list[Table] | None = None,
        notes: list[str] | None = None,
        picture: str = "",
        records: list[dict[str, Any]] | None = None,
        quiet: list[str] | None = None,
        coloured: str = "",
    ) -> None:
        self.document, self.answer, self.picture, self.quiet = document, answer, picture, quiet
        self.coloured = coloured
        self.tables, self.notes, self.records = tables or [], notes or [], records or []


class Sink(NamedTuple):
    """The output options of every command."""

    json: Annotated[
        bool, typer.Option("--json", help="JSON on standard output: raw numbers, base units.")
    ] = False
    csv: Annotated[bool, typer.Option("--csv", help="CSV of the main table, raw numbers.")] = False
    format: Annotated[
        str | None,
        typer.Option("--format", "-f", help="table, json, csv or md (the default is a table)."),
    ] = None
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", help="Write to this file; its suffix (.json, .csv, .md, .txt) is the format."
        ),
    ] = None
    quiet: Quiet = False
    conditions: Annotated[
        list[str] | None,
        typer.Option(
            "--assert",
            help="Condition on a key of the JSON, as in 'key < 20e9'; false is exit 1. Repeatable.",
        ),
    ] = None

    def chosen(self) -> str:
        """The one format asked for; InputError where two are, or an unknown one."""
        named = [name for name, on in (("json", self.json), ("csv", self.csv)) if on]
        if self.format is not None:
            wanted = {"markdown": "md", "text": "table"}.get(self.format.lower(), self.format.lower())
            if wanted not in FORMATS:
                hint = nearest(wanted, FORMATS)
                raise InputError(f"--format is one of {', '.join(FORMATS)}, not '{self.format}'{hint}")
            named.append(wanted)
        if len(set(named)) > 1:
            raise InputError(f"two formats at once: {' and '.join(named)}; choose one")
        if named:
            return named[0]
        if self.output is not None:
            suffix = Path(self.output).suffix.lower()
            if suffix not in _SUFFIXES:
                raise InputError(
                    f"--output {self.output}: the suffix says the format; use {', '.join(_SUFFIXES)} "
                    "or add --format"
                )
            return _SUFFIXES[suffix]
        return "table"


_taker: ContextVar[list[Report] | None] = ContextVar("taker", default=None)


@contextmanager
def handed_over() -> Iterator[list[Report]]:
    """Inside, what `emit` would write to standard output is appended to the list instead."""
    taken: list[Report] = []
    before = _taker.set(taken)
    try:
        yield taken
    finally:
        _taker.reset(before)


def emit(report: Report, sink: Sink) -> None:
    """Hold the report to the conditions, write it where it belongs, then say which did not hold."""
    chosen = sink.chosen()
    failed: list[str] = []
    if sink.conditions:
        from ..assertions import check_assertions, parse_assertions

        failed = check_assertions(parse_assertions(sink.conditions), report.document)
    if sink.quiet and report.quiet is None:
        raise InputError("--quiet: this command has no one number; use --json")
    if sink.quiet and chosen != "table":
        raise InputError(f"--quiet prints the one number; it does not go with {chosen}")
    taker = _taker.get()
    if taker is not None:
        taker.append(report)
    if taker is None or sink.output is not None:
        _write(report, sink, chosen)
    if failed:
        from ..errors import FailedAssertionError

        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise FailedAssertionError(failed[0] + more)


def _write(report: Report, sink: Sink, chosen: str) -> None:
    if sink.quiet and report.quiet is not None:
        text = "\n".join(report.quiet) + "\n"
    else:
        text = _render(report, chosen, sink.output)
    if sink.output is not None:
        write_file(Path(sink.output), text)
    else:
        write_stdout(text)


def write_stdout(text: str) -> None:
    """Write and flush, so that a full disk or a closed pipe is met here and not on the way out."""
    if sys.stdout is None:
        raise InputError("standard output is closed; --output FILE writes elsewhere")
    sys.stdout.write(text)
    sys.stdout.flush()


def _render(report: Report, chosen: str, output: str | None) -> str:
    if chosen == "json":
        from .as_json import render as render_json

        return render_json(report)
    if chosen == "csv":
        from .as_csv import render as render_csv

        return render_csv(report)
    if chosen == "md":
        from .as_markdown import render as render_markdown

        return render_markdown(report)
    if output is None and wants_terminal():
        from .as_terminal import render as render_terminal

        return render_terminal(report)
    from .as_text import render as render_text

    return render_text(report)


def wants_terminal() -> bool:
    """Whether a person is looking: a terminal that is not dumb, or FORCE_COLOR (but 0)."""
    forced = os.environ.get("FORCE_COLOR")
    if forced:
        return forced != "0"
    return sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def write_file(path: Path, content: str | bytes) -> None:
    """Write whole or not at all, through links, keeping an existing file's mode; text as UTF-8.

    Devices and pipes are written in place. Raises InputError where the place cannot be written.
    """
    from .files import write_file as write

    write(path, content)
