"""One of this tool's own commands, run in this process: its report, or its JSON document."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
from functools import cache
from typing import Any

import typer

from .. import InfercostError, InputError
from ..sheets import nearest, only_files
from .app import COMMANDS
from .errors import INTERRUPTED
from .output.report import Report, handed_over

WRITERS = ("output", "plot", "save", "save_to", "results", "write")
"""Parameters that make a command write a file: refused where a command only answers."""
PROCESSES = "jobs"
"""The parameter that says how many processes a command starts."""


def document_of(words: tuple[str, ...]) -> dict[str, Any]:
    """What `infercost WORDS --json` prints, read back.

    Nothing is read from standard input and nothing is written: a command that would write a file is refused.
    Raises what the command raises as an InfercostError with its exit code (usage errors as InputError).
    """
    name, rest = words[0], words[1:]
    allowed = [each for each in COMMANDS if each != "check"]
    if name not in allowed:
        hint = nearest(name, allowed) or f"; commands: {', '.join(allowed)}"
        raise InputError(f"'{name[:60]}' is no command that a check can run{hint}")
    old = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO())
    try:
        with contextlib.redirect_stdout(io.StringIO()), only_files():
            alone = _refuse_all_but_questions(command_of(name), name, rest)
            report = report_of(name, (*rest, *alone, "--json"))
    finally:
        sys.stdin = old
    return as_printed(report)


def report_of(name: str, words: tuple[str, ...]) -> Report:
    """What `infercost NAME WORDS` would write to standard output.

    Raises what the command raises as an InfercostError with its exit code (usage errors as InputError).
    """
    try:
        with handed_over() as reports:
            code = command_of(name)(list(words), standalone_mode=False, prog_name=f"infercost {name}")
    except Exception as error:
        # Typer's usage errors share no public base class; this is what they have in common.
        if isinstance(error, InfercostError) or not hasattr(error, "format_message"):
            raise
        from .synonyms import usage_line

        raise InputError(usage_line(error, words)) from None
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if not reports:
        asked = " ".join((name, *(word for word in words if word != "--json")))
        raise InputError(f"infercost {asked[:60]} has no JSON")
    return reports[-1]


def as_printed(report: Report) -> dict[str, Any]:
    """The report's document with lists where it has tuples, as a reader of the JSON has it."""
    return dict(json.loads(json.dumps(report.document)))


@cache
def command_of(name: str) -> Any:
    """The command (or group of them) called `name`, as typer runs it."""
    return typer.main.get_command(importlib.import_module(f"{__package__}.{name}").app)


def _refuse_all_but_questions(command: Any, name: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """Take the command line apart as the command will, unrun: it is to print JSON and no more.

    Gives the words that keep it to this process.
    """
    left = list(words)
    while True:
        context = command.context_class(command, info_name=name, **command.context_settings)
        given, left, _ = command.make_parser(context).parse_args(left)
        for parameter in command.params:
            if parameter.name in WRITERS and parameter.name in given:
                raise InputError(f"{parameter.opts[0]} writes a file; a check only reads")
            if parameter.name == PROCESSES and given.get(PROCESSES, "1") != "1":
                raise InputError(f"{parameter.opts[0]} starts processes; a check runs in one")
        inner = getattr(command, "commands", {}).get(left[0]) if left else None
        if inner is None:
            break
        command, name, left = inner, f"{name} {left[0]}", left[1:]
    if not any(parameter.name == "json" for parameter in command.params):
        raise InputError(f"infercost {name} has no JSON")
    return ("--jobs", "1") if any(parameter.name == PROCESSES for parameter in command.params) else ()
