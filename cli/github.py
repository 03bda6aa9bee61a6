"""Failed checks as GitHub annotations: a line each, which Actions pins to the budgets file.

The form is that of GitHub's workflow commands, `::error file=F,line=N,title=T::message`.
"""

from __future__ import annotations

import os
from pathlib import Path

from .judging import Judged
from .text import clean


def annotation_lines(file: Path, results: list[Judged]) -> list[str]:
    """One line for each check that did not pass."""
    return [_annotation(place_in_repository(file), each) for each in results if not each.passed]


def place_in_repository(file: Path) -> str:
    """`file` from the top of the checked-out repository, as annotations name files."""
    top = os.environ.get("GITHUB_WORKSPACE")
    if top:
        inside = os.path.relpath(os.path.realpath(file), os.path.realpath(top))
        if not inside.startswith(".."):
            return Path(inside).as_posix()
    return str(file)


def _annotation(file: str, judged: Judged) -> str:
    check = judged.check
    said = judged.why + (f" ({check.note})" if check.note else "")
    where = f"file={_property(file)},line={check.line},title={_property(f'infercost: {check.name}')}"
    return f"::error {where}::{_data(said)}"


def _data(text: str) -> str:
    return clean(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
