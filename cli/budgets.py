"""A budgets file: named checks, each a command, a key of its JSON and a limit.

::

    checks:
      kv-per-token:
        run: kv --model config.json --seq 1
        expr: bytes_per_token
        baseline: 147456
        note: 40 users must fit beside the weights
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from .. import InputError
from ..sheets import MAX_TEXT, Section, SheetError, kind_of, read_file, read_yaml
from .assertions import is_number, literal
from .sizes import byte_size, duration, share

MAX_CHECKS = 500
MAX_WORDS = 200
RULES = ("max", "min", "equals", "baseline")
_NAME = re.compile(r"[A-Za-z0-9][\w./ -]{0,79}", re.ASCII)
_PATH = re.compile(r"[A-Za-z_][\w.\[\]-]{0,199}", re.ASCII)
_WITH_UNIT = re.compile(
    r"[0-9][0-9_.,]*\s*(?:(?P<bytes>[gm]i?b)|(?P<seconds>[mu]?s))", re.IGNORECASE | re.ASCII
)


class Check(NamedTuple):
    """One check as the file has it. `limit` is in base units; None is a baseline not recorded yet."""

    name: str
    line: int
    words: tuple[str, ...]
    expr: str
    rule: str
    limit: Any
    tolerance: float
    note: str

    @property
    def command_line(self) -> str:
        """What shows the number, to be run in the folder of the budgets file."""
        return f"infercost {shlex.join(self.words)}"


class Budgets(NamedTuple):
    """A budgets file, its text as it is written, and its checks in their order."""

    path: Path
    text: str
    checks: tuple[Check, ...]


class _Place(NamedTuple):
    """Where a check stands: its line from 1, and where its baseline's figure begins and ends."""

    line: int
    start: int = 0
    end: int = 0
    lead: str = ""


def read_budgets(path: Path) -> Budgets:
    """The checks of the file at `path`. Raises InputError or SheetError, naming file and line."""
    return parse_budgets(read_file(path), path)


def parse_budgets(text: str, path: Path) -> Budgets:
    """The checks of `text`, which stands or is to stand at `path`. Raises SheetError with file and line."""
    origin = str(path)
    sheet = Section(read_yaml(text, origin), origin, text)
    listed = sheet.section("checks")
    sheet.close()
    if listed is None or not listed.data:
        raise sheet.error("no checks; a budgets file has 'checks', each with a name, run, expr and a limit")
    if len(listed.data) > MAX_CHECKS:
        raise listed.error(f"{len(listed.data):,} checks; a file has at most {MAX_CHECKS}")
    sections = {name: listed.section(name) for name in listed.data}
    places = _places(text, origin)
    checks = (
        _check(listed, name, section, places[name].line) for name, section in sections.items() if section
    )
    return Budgets(path, text, tuple(checks))


def _check(listed: Section, name: str, section: Section, line: int) -> Check:
    if not _NAME.fullmatch(name):
        raise listed.error("a name is up to 80 letters, digits, spaces and . / _ -", name)
    words = _words(section)
    expr = section.take("expr", "str")
    if not _PATH.fullmatch(expr):
        if re.search(r"[<>=!]", expr):
            raise section.error(f"is a condition; give its key, and its limit as one of {_rules()}", "expr")
        raise section.error("is not a key of the JSON, such as totals.decode.floor_s or ops[0].bytes", "expr")
    given = [rule for rule in RULES if rule in section.data]
    rule = given[0] if given else ""
    limit = _limit(section, rule, expr) if rule else None
    tolerance = _tolerance(section)
    note = section.take("note", "str", "")
    section.known.update(RULES)
    section.close()
    if len(given) != 1:
        raise section.error(f"give one limit of {_rules()}" + (f", not {' and '.join(given)}" * bool(given)))
    if tolerance and (rule in ("max", "min") or (rule == "equals" and not is_number(limit))):
        raise section.error("goes with a baseline or a number that it equals", "tolerance")
    return Check(name, line, words, expr, rule, limit, tolerance, note)


def _rules() -> str:
    return f"{', '.join(RULES[:-1])} and {RULES[-1]}"


def _words(section: Section) -> tuple[str, ...]:
    """The command line of `run`, a line or a list, taken apart as a shell would, but run by none."""
    value = section.data.get("run")
    if isinstance(value, list):
        section.known.add("run")
        for item in value:
            if not isinstance(item, str) and not is_number(item):
                raise section.error(f"is a list of words, and {kind_of(item)} is none", "run")
        words = [str(item) for item in value]
        if any(len(word) > MAX_TEXT for word in words):
            raise section.error(f"has a word of more than {MAX_TEXT:,} characters", "run")
        if not all(word.isprintable() for word in words):
            raise section.error("holds control characters", "run")
    else:
        try:
            words = shlex.split(section.take("run", "str"))
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            raise section.error(f"cannot be taken apart: {str(error).lower()}", "run") from None
    words = words[1:] if words[:1] == ["infercost"] else words
    if not words:
        raise section.error("is empty; give a command such as kv --model config.json --seq 32k", "run")
    if len(words) > MAX_WORDS:
        raise section.error(f"has {len(words):,} words; at most {MAX_WORDS} make a command", "run")
    return tuple(words)


def _limit(section: Section, rule: str, expr: str) -> Any:
    value = section.data[rule]
    section.known.add(rule)
    if rule == "baseline" and value is None:
        return None
    if isinstance(value, str):
        value = _read(section, rule, section.take(rule, "str"), expr)
    if is_number(value):
        if not abs(value) <= 1e30:
            raise section.error("must be a finite number of sensible size", rule)
        return value
    if rule == "equals" and (value is None or isinstance(value, (bool, str))):
        return value
    raise section.error(f"must be a number, such as 20e9, 16 GiB or 20 ms, not {kind_of(value)}", rule)


def _read(section: Section, rule: str, text: str, expr: str) -> Any:
    """A limit written as text: YAML takes 20e9 and 16 GiB for words."""
    value = literal(text)
    if is_number(value):
        return value
    match = _WITH_UNIT.fullmatch(text.strip())
    if match is None:
        return text
    unit, said = ("bytes", "a size") if match["bytes"] else ("seconds", "a time")
    if unit_of(expr) != unit:
        raise section.error(f"'{text[:40]}' is {said}, but {expr} is not in {unit}", rule)
    try:
        return byte_size(text, rule) if unit == "bytes" else duration(text, rule)
    except InputError as error:
        raise section.error(str(error), rule) from None


def _tolerance(section: Section) -> float:
    """Share of the limit that a value may be off: `0.01` or `1%`."""
    value = section.data.get("tolerance")
    if isinstance(value, str):
        section.known.add("tolerance")
        try:
            return share(value, "tolerance")
        except InputError as error:
            raise section.error(str(error)) from None
    found = float(section.take("tolerance", "float", 0.0))
    if not 0 <= found <= 1:
        raise section.error(f"is a share from 0 to 1, such as 0.01 or 1%, not {found:g}", "tolerance")
    return found


def unit_of(expr: str) -> str:
    """`bytes` or `seconds` where the key's name ends in that unit, else nothing."""
    for step in reversed(re.findall(r"[^.\[\]]+", expr)):
        if step.endswith("_per_s"):
            return ""
        if step == "bytes" or step.startswith("bytes_") or "_bytes" in step:
            return "bytes"
        if step.endswith("_s"):
            return "seconds"
    return ""


def with_baselines(budgets: Budgets, found: dict[str, int | float]) -> str:
    """The file's text with these baselines, by check; nothing else of it changes.

    Raises SheetError where the text would not read back as the same checks with those figures.
    """
    origin = str(budgets.path)
    places = _places(budgets.text, origin)
    text = budgets.text
    for name in sorted(found, key=lambda name: places[name].start, reverse=True):
        place = places[name]
        text = text[: place.start] + place.lead + _figure(found[name]) + text[place.end :]
    wanted = tuple(
        check._replace(limit=found[check.name]) if check.name in found else check for check in budgets.checks
    )
    if parse_budgets(text, budgets.path).checks != wanted:
        raise SheetError(f"{origin}: the baselines cannot be written where they stand; write them plainly")
    return text


def _figure(value: int | float) -> str:
    """A number as YAML 1.1 reads it: an exponent only after a decimal point."""
    text = repr(value)
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


def _places(text: str, origin: str) -> dict[str, _Place]:
    """Every check's place in a text that `read_yaml` took."""
    import yaml

    root = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    (listed,) = (value for key, value in _pairs(root, origin) if key.value == "checks")
    return {key.value: _place(key, value, text, origin) for key, value in _pairs(listed, origin)}


def _pairs(node: Any, origin: str) -> list[tuple[Any, Any]]:
    for key, _ in node.value:
        if key.tag == "tag:yaml.org,2002:merge":
            raise SheetError(f"{origin}:{key.start_mark.line + 1}: merge keys (<<) are not allowed here")
    return list(node.value)


def _place(key: Any, check: Any, text: str, origin: str) -> _Place:
    line = key.start_mark.line + 1
    for inner, value in _pairs(check, origin):
        if inner.value == "baseline":
            if value.end_mark.index > value.start_mark.index:
                return _Place(line, value.start_mark.index, value.end_mark.index)
            # Nothing stands there yet: the parser puts its marks behind comments and line ends.
            colon = re.match(r"\s*:", text[inner.end_mark.index :])
            at = inner.end_mark.index + (colon.end() if colon else 0)
            return _Place(line, at, at, " " if colon else ": ")
    return _Place(line)
