"""`--assert 'totals.decode.floor_s < 0.01'`: a path into the JSON, a comparison, a number."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from typing import Any

from .. import InputError
from ..sheets import nearest

COMPARE = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
Condition = tuple[str, str, Any, str]
"""(path, comparison, value, the value as it was written)."""

_CONDITION = re.compile(r"([A-Za-z_][\w.\[\]-]*)\s*(<=|>=|==|!=|<|>)\s*(\S.*)")
"""Of a stripped text. No space follows a run of spaces, so each is looked at once, however many there are."""


_INDEX = re.compile(r"[0-9]{1,18}")


def parse_assertions(conditions: Iterable[str], option: str = "--assert") -> list[Condition]:
    """Conditions taken apart. Raises InputError for one that is none, before anything is printed."""
    out: list[Condition] = []
    for text in conditions:
        match = _CONDITION.fullmatch(text.strip())
        if match is None:
            raise InputError(
                f"{option} '{text[:80]}' is not 'key comparison value', such as 'logical_bytes < 20e9'"
            )
        out.append((match[1], match[2], literal(match[3]), match[3]))
    return out


def check_assertions(conditions: list[Condition], document: dict[str, Any]) -> list[str]:
    """What does not hold, a line each; InputError where a key is not there or cannot be compared.

    With a list given to an option, a condition is on every point's own keys.
    """
    failed = []
    for path, sign, wanted, written in conditions:
        for value in values_at(document, path, "--assert"):
            alike = (is_number(value) and is_number(wanted)) or (
                isinstance(value, str) and isinstance(wanted, str)
            )
            if sign not in ("==", "!=") and not alike:
                raise InputError(f"--assert {path}: cannot compare {_named(value)} with '{written}'")
            if not COMPARE[sign](value, wanted):
                failed.append(f"assertion failed: {path} {sign} {written}, but it is {value}")
    return failed


def values_at(document: dict[str, Any], path: str, option: str) -> list[Any]:
    """The value at `path`, or where a list was given to an option every point's own."""
    first = re.split(r"[.\[]", path)[0]
    points = document.get("points") or []
    if any(first in point for point in points):
        return [look_up(point, path, option) for point in points]
    return [look_up(document, path, option)]


def _named(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "a list of values" if isinstance(value, list) else "a group of values"
    return "null" if value is None else repr(value)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def literal(text: str) -> Any:
    """What is compared with: true, false, null, a number, else the text itself."""
    if text in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[text]
    try:
        return int(text.replace("_", ""))
    except ValueError:
        pass
    try:
        return float(text.replace("_", ""))
    except ValueError:
        return text.strip("'\"")


def look_up(document: Any, path: str, option: str) -> Any:
    """The value at `path`, `a.b[0].c`; a list is entered by index or by an item's `name`.

    Raises InputError, in the name of `option`, with what there is instead.
    """
    value = document
    for step in re.findall(r"[^.\[\]]+", path):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and _INDEX.fullmatch(step) and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, list) and any(isinstance(v, dict) and v.get("name") == step for v in value):
            value = next(v for v in value if isinstance(v, dict) and v.get("name") == step)
        else:
            names = list(value) if isinstance(value, dict) else []
            deeper = _paths_to(document, step)
            hint = nearest(step, names) or (f"; there is {' and '.join(deeper)}" if deeper else "")
            hint = hint or (f"; keys here: {', '.join(names[:12])}" if names else "")
            raise InputError(f"{option}: there is no '{step[:60]}' in '{path[:200]}'{hint}")
    return value


def _paths_to(document: Any, key: str, most: int = 3) -> list[str]:
    """Where else `key` stands, two levels down at the most: `totals.decode.floor_s`."""
    out = []
    for name, value in document.items() if isinstance(document, dict) else ():
        for inner, deeper in value.items() if isinstance(value, dict) else ():
            if inner == key:
                out.append(f"{name}.{key}")
            elif isinstance(deeper, dict) and key in deeper:
                out.append(f"{name}.{inner}.{key}")
    return out[:most]
