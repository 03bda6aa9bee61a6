"""`--assert 'totals.decode.floor_s < 0.01'`: a path into the JSON, a comparison, a number."""

from __future__ import annotations

import operator
import re
from typing import Any

from .. import InputError
from ..sheets import nearest
from .errors import FailedAssertionError

_COMPARE = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_CONDITION = re.compile(r"\s*([A-Za-z_][\w.\[\]-]*)\s*(<=|>=|==|!=|<|>)\s*(.+?)\s*")


def check_assertions(conditions: list[str], document: dict[str, Any]) -> None:
    """Raises FailedAssertionError for the first condition that does not hold.

    With a list given to an option, the condition is on every point's own keys.
    """
    for text in conditions:
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise InputError(
                f"--assert '{text[:80]}' is not 'key comparison value', such as 'logical_bytes < 20e9'"
            )
        path, sign, wanted = match[1], match[2], _literal(match[3])
        first = re.split(r"[.\[]", path)[0]
        for point in document.get("points") or [document]:
            value = look_up(point if first in point else document, path)
            if _is_number(value) != _is_number(wanted) and sign not in ("==", "!="):
                raise InputError(f"--assert {path}: cannot compare {value!r} with {wanted!r}")
            if not _COMPARE[sign](value, wanted):
                raise FailedAssertionError(f"assertion failed: {path} {sign} {match[3]}, but it is {value}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _literal(text: str) -> Any:
    if text in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[text]
    try:
        return float(text.replace("_", ""))
    except ValueError:
        return text.strip("'\"")


def look_up(document: Any, path: str) -> Any:
    """The value at `path`, `a.b[0].c`; a list is entered by index or by an item's `name`."""
    value = document
    for step in re.findall(r"[^.\[\]]+", path):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, list) and any(isinstance(v, dict) and v.get("name") == step for v in value):
            value = next(v for v in value if isinstance(v, dict) and v.get("name") == step)
        else:
            names = list(value) if isinstance(value, dict) else []
            hint = nearest(step, names) or (f"; keys here: {', '.join(names[:12])}" if names else "")
            raise InputError(f"--assert: there is no '{step}' in '{path}'{hint}")
    return value
