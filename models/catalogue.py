"""The models infercost knows by name, and a model from a sheet in a file or on standard input."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from .. import InputError
from ..sheets import MAX_SHEET_BYTES, decode, nearest, read_file
from .sheet import model_from_text
from .spec import Model

# Beside this file and not through importlib.resources, whose import alone costs 2 ms of start-up.
SHEETS = Path(__file__).parent / "sheets"


@cache
def model_names() -> tuple[str, ...]:
    """Names of the built-in sheets, sorted; no sheet is read."""
    return tuple(sorted(path.stem for path in SHEETS.glob("*.yaml")))


@cache
def load_builtin(name: str) -> Model:
    """A built-in model by its exact name."""
    text = (SHEETS / f"{name}.yaml").read_text(encoding="utf-8")
    return model_from_text(text, f"{name}.yaml", trusted=True)


@cache
def model_aliases() -> dict[str, str]:
    """Every alias to its model's name: reads all sheets, so it is asked last."""
    return {alias: name for name in model_names() for alias in load_builtin(name).aliases}


def load_model(given: str) -> Model:
    """A model by name, alias, path of a sheet, or `-` for a sheet on standard input.

    Raises InputError for an unknown name (with the nearest) and SheetError for a bad sheet.
    """
    if given == "-":
        return _from_stdin()
    name = given.strip().lower()
    if name in model_names():
        return load_builtin(name)
    path = Path(given)
    if _looks_like_path(given):
        return model_from_text(read_file(path), str(path))
    aliases = model_aliases()
    if name in aliases:
        return load_builtin(aliases[name])
    hint = nearest(name, [*model_names(), *aliases]) or "; `infercost models` lists them"
    raise InputError(f"unknown model '{given}'{hint}")


def _looks_like_path(given: str) -> bool:
    if given.endswith((".yaml", ".yml", ".json", ".gguf")) or "/" in given or "\\" in given:
        return "\0" not in given
    return False


def _from_stdin() -> Model:
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError("'-' reads a sheet from standard input, which is a terminal; pipe a file into it")
    return model_from_text(decode(sys.stdin.buffer.read(MAX_SHEET_BYTES + 1), "<stdin>"), "<stdin>")
