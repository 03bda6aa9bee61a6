"""What a budgets file's check makes of the values that its command gave."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from .. import InputError
from .assertions import is_number
from .budgets import Check, unit_of
from .text import number, plural, seconds, size

ROUNDING = 1e-9
"""Share by which a sum of floats may differ between platforms; whole numbers are exact."""


class Judged(NamedTuple):
    """One check held to its values. `why` says what is wrong; `error` that there is no value to judge;
    `before` is the baseline that an update wrote over."""

    check: Check
    value: Any = None
    passed: bool = False
    why: str = ""
    error: bool = False
    exit_code: int = 0
    before: Any = None
    updated: bool = False

    @property
    def off(self) -> float | None:
        """How far the value is from the limit, as a share of it."""
        limit = self.check.limit
        if not (is_number(self.value) and is_number(limit)) or not limit:
            return None
        return float((self.value - limit) / abs(limit))


def judge(check: Check, values: list[Any]) -> Judged:
    """The worst of `values` (a list given to an option makes several) against the check's limit.

    Raises InputError where they cannot be compared with it.
    """
    if check.rule == "baseline" and len(values) > 1:
        raise InputError(
            f"expr {check.expr} has {len(values):,} values, and a baseline is one: say points[0].{check.expr}"
        )
    if check.rule != "equals":
        for value in values:
            if not is_number(value):
                raise InputError(f"expr {check.expr} is {shown(value, '')}, not a number to compare")
    if check.limit is None and check.rule == "baseline":
        return Judged(check, values[0], why=f"{check.expr} has no baseline yet; --update records it")
    value = max(values, key=lambda value: _excess(check, value))
    passed = _excess(check, value) <= 0
    judged = Judged(check, value, passed)
    return judged if passed else judged._replace(why=_why(judged))


def _excess(check: Check, value: Any) -> float:
    """By how much `value` breaks the limit: not at all where this is 0 or less."""
    limit = check.limit
    if not (is_number(value) and is_number(limit)):
        return 0.0 if type(value) is type(limit) and value == limit else math.inf
    if check.rule == "max":
        return float(value - limit)
    if check.rule == "min":
        return float(limit - value)
    exact = isinstance(value, int) and isinstance(limit, int)
    share = check.tolerance if exact else max(check.tolerance, ROUNDING)
    return float(abs(value - limit) - share * abs(limit))


def _why(judged: Judged) -> str:
    check, unit = judged.check, unit_of(judged.check.expr)
    got, wanted = in_full(judged.value, unit), in_full(check.limit, unit)
    if got == wanted:
        got, wanted = repr(judged.value), repr(check.limit)
    off = judged.off
    by = "" if off is None else f"{number(100 * abs(off))} % "
    if check.rule in ("max", "min"):
        where = "above its maximum of" if check.rule == "max" else "below its minimum of"
        return f"{check.expr} is {got}, {by}{where} {wanted}"
    around = f" ± {100 * check.tolerance:g} %" if check.tolerance else ""
    if check.rule == "baseline":
        where = "above" if judged.value > check.limit else "below"
        return f"{check.expr} is {got}, {by}{where} its baseline of {wanted}{around}"
    return f"{check.expr} is {got}, not {wanted}{around}"


def shown(value: Any, unit: str) -> str:
    """A value in a cell, by the unit of its key."""
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    if isinstance(value, (list, dict)):
        return plural(len(value), "value")
    if not is_number(value):
        return str(value)[:60]
    if unit == "bytes":
        return size(value)
    if unit == "seconds" and value >= 0:
        return seconds(value)
    return f"{value:,}" if isinstance(value, int) else number(value)


def in_full(value: Any, unit: str) -> str:
    """The same in a sentence, where whole bytes are also said to the byte."""
    text = shown(value, unit)
    if unit == "bytes" and isinstance(value, int) and not text.endswith(" B"):
        return f"{text} ({value:,} bytes)"
    return text
